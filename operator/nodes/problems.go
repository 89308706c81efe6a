// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package nodes tells which of the node components don't run, or aren't of the operator's version: another image may have
// come under the name that the ConfigMap gives, and all that is seen of that is a container that ends.
package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// agentInit is the container that ends with the agent's version as its termination message.
	agentInit      = "mount-bpffs"
	agentComponent = "bpfman-agent"

	// restarts are more than a component needs that was killed, or began before another was ready.
	restarts = 2

	maxNamed = 3
	maxCause = 300
)

// Problems says in a line each what is wrong with the node components, nothing if all is well. version is the operator's,
// plugins are those of the CSI plugin, as far as they are known.
func Problems(pods []corev1.Pod, version string, plugins Versions) []string {
	nodes := map[string][]string{}
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
			continue
		}
		for _, problem := range problemsOf(pod, version, plugins) {
			nodes[problem] = append(nodes[problem], pod.Spec.NodeName)
		}
	}
	var lines []string
	for _, problem := range slices.Sorted(maps.Keys(nodes)) {
		lines = append(lines, problem+where(nodes[problem]))
	}
	return lines
}

func problemsOf(pod *corev1.Pod, version string, plugins Versions) []string {
	var problems []string
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		what := fmt.Sprintf("container %s with image %s", status.Name, status.Image)
		if cause := failure(status); cause != "" {
			problems = append(problems, what+" fails: "+cause)
		}
		if ended := status.State.Terminated; status.Name == agentInit && ended != nil && ended.ExitCode == 0 {
			if its, _ := strings.CutPrefix(ended.Message, agentComponent+" "); its != version {
				problems = append(problems, fmt.Sprintf("image %s contains an agent of version %s, but the operator has version %s", status.Image, cmp.Or(its, "unknown"), version))
			}
		}
	}
	if plugin := pluginOf(pod); plugin != nil {
		if its := cmp.Or(plugins[plugin.ImageID], version); its != version {
			problems = append(problems, fmt.Sprintf("image %s contains a CSI plugin of version %s, but the operator has version %s", plugin.Image, its, version))
		}
	}
	return problems
}

// failure says why a container doesn't come to run, or "".
func failure(status corev1.ContainerStatus) string {
	ended := status.LastTerminationState.Terminated
	waiting := status.State.Waiting
	switch {
	case status.Ready:
		return ""
	case ended != nil && ended.ExitCode != 0 && status.RestartCount >= restarts:
		return fmt.Sprintf("exit code %d: %s", ended.ExitCode, oneLine(cmp.Or(ended.Message, ended.Reason)))
	case waiting != nil && slices.Contains(hopeless, waiting.Reason):
		return oneLine(waiting.Reason + ": " + waiting.Message)
	}
	return ""
}

// hopeless are the reasons of the kubelet that somebody has to do something about.
var hopeless = []string{
	"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError",
}

func where(nodes []string) string {
	slices.Sort(nodes)
	more := ""
	if n := len(nodes) - maxNamed; n > 0 {
		nodes, more = nodes[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return " (" + strings.Join(nodes, ", ") + more + ")"
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "…"
	}
	return text
}
