// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package nodes finds node components that don't run, and agents of another version than the operator. The
// ConfigMap can name an image that contains something else, and the only sign of that is a container that ends.
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

	// restarts is the number of restarts that are normal after a component was killed, or started before another
	// one was ready.
	restarts = 2

	// The limits of the text, in nodes per line, bytes per line without the nodes, and lines. The text is in an
	// annotation, and all annotations of an object together can have 256 KiB.
	maxNamed = 3
	maxLine  = 500
	maxLines = 20
)

// Problems returns the problems of the node components, one per line. The problems that most nodes have are first.
// If there are too many, the last line counts the rest. version is the operator's version.
func Problems(pods []corev1.Pod, version string) []string {
	nodes := map[string][]string{}
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
			continue
		}
		for _, problem := range problemsOf(pod, version) {
			problem = oneLine(problem)
			nodes[problem] = append(nodes[problem], pod.Spec.NodeName)
		}
	}
	problems := slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(nodes[b]), len(nodes[a])), cmp.Compare(a, b))
	})
	var rest []string
	if len(problems) > maxLines {
		problems, rest = problems[:maxLines], problems[maxLines:]
	}
	var lines []string
	for _, problem := range problems {
		lines = append(lines, problem+where(nodes[problem]))
	}
	if len(rest) > 0 {
		var others []string
		for _, problem := range rest {
			others = append(others, nodes[problem]...)
		}
		lines = append(lines, fmt.Sprintf("%d more problems", len(rest))+where(others))
	}
	return lines
}

func problemsOf(pod *corev1.Pod, version string) []string {
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
	return problems
}

// failure returns the reason why a container doesn't run, or "".
func failure(status corev1.ContainerStatus) string {
	ended := status.LastTerminationState.Terminated
	waiting := status.State.Waiting
	switch {
	case status.Ready:
		return ""
	case ended != nil && ended.ExitCode != 0 && status.RestartCount >= restarts:
		return fmt.Sprintf("exit code %d: %s", ended.ExitCode, cmp.Or(ended.Message, ended.Reason))
	case waiting != nil && slices.Contains(hopeless, waiting.Reason):
		return waiting.Reason + ": " + waiting.Message
	}
	return ""
}

// hopeless are the kubelet's reasons for failures that a user has to solve.
var hopeless = []string{
	"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError",
}

func where(nodes []string) string {
	slices.Sort(nodes)
	nodes = slices.Compact(nodes) // several problems of one node
	more := ""
	if n := len(nodes) - maxNamed; n > 0 {
		nodes, more = nodes[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return " (" + strings.Join(nodes, ", ") + more + ")"
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return text
}
