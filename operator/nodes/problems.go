// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package nodes finds node components that don't run, and agents of another version than the operator. The
// ConfigMap can name an image that contains something else, and the only sign of that is a container that ends. It can
// have a port that other software uses, or the API server refuses the pods.
package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/operator/deploy"
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

// Observed is what is known about the node components.
type Observed struct {
	Pods []corev1.Pod
	// Unready contains the containers that have run for longer than they need to start, and aren't ready.
	Unready map[Container]bool
	// DaemonSet is nil if there is none.
	DaemonSet *appsv1.DaemonSet
	// Events are about the DaemonSet.
	Events []corev1.Event
	// Servers are at ports of the nodes.
	Servers []deploy.Server
	// Version is the version of the operator.
	Version string
}

// Container is a container of a pod.
type Container struct {
	Pod  types.UID
	Name string
}

// Problems returns the problems of the node components, one per line, with their names. Pods that the API server refuses are
// first, and then the problems that most nodes have. If there are too many, the last line counts the rest.
func (o Observed) Problems() []string {
	problems := o.problemsOfPods()
	if refusal := o.refusal(); refusal != "" {
		problems = append([]string{line(problem.PodsRefused, "the API server refuses pods of DaemonSet %s: %s", deploy.DaemonSetName, refusal)}, problems...)
	}
	return problems
}

// podNames matches the names of pods, which differ from attempt to attempt.
var podNames = regexp.MustCompile(`\b` + deploy.DaemonSetName + `-[a-z0-9]{5}\b`)

// refusal returns the last reason why a pod of the DaemonSet couldn't be created, or "" if it has all pods.
func (o Observed) refusal() string {
	if o.DaemonSet == nil || o.DaemonSet.Status.CurrentNumberScheduled >= o.DaemonSet.Status.DesiredNumberScheduled {
		return ""
	}
	var last *corev1.Event
	for i, e := range o.Events {
		if e.Reason == "FailedCreate" && e.InvolvedObject.UID == o.DaemonSet.UID && (last == nil || last.LastTimestamp.Before(&e.LastTimestamp)) {
			last = &o.Events[i]
		}
	}
	if last == nil {
		return ""
	}
	return podNames.ReplaceAllString(strings.TrimPrefix(last.Message, "Error creating: "), deploy.DaemonSetName)
}

func (o Observed) problemsOfPods() []string {
	nodes := map[string][]string{}
	for i := range o.Pods {
		pod := &o.Pods[i]
		if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
			continue
		}
		for _, found := range o.problemsOf(pod) {
			nodes[found] = append(nodes[found], pod.Spec.NodeName)
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
	for _, found := range problems {
		lines = append(lines, found+where(nodes[found]))
	}
	if len(rest) > 0 {
		var others []string
		for _, found := range rest {
			others = append(others, nodes[found]...)
		}
		lines = append(lines, fmt.Sprintf("%d more problems", len(rest))+where(others))
	}
	return lines
}

func (o Observed) problemsOf(pod *corev1.Pod) []string {
	var problems []string
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		what := fmt.Sprintf("container %s with image %s", status.Name, status.Image)
		server := slices.IndexFunc(o.Servers, func(s deploy.Server) bool { return s.Container == status.Name })
		switch cause := failure(status); {
		case portInUse.MatchString(cause):
			port := portInUse.FindStringSubmatch(cause)[1]
			problems = append(problems, line(problem.PortTaken, "%s can't use port %s of the node%s: other software does", what, port, o.keyOf(port)))
		case cause != "":
			problems = append(problems, line(problem.ComponentFails, "%s fails: %s", what, cause))
		case server >= 0 && o.Unready[Container{pod.UID, status.Name}]:
			problems = append(problems, line(problem.ComponentNotReady, "%s runs, but isn't ready at port %s%s", what, o.Servers[server].Port, o.keyOf(o.Servers[server].Port)))
		}
		if ended := status.State.Terminated; status.Name == agentInit && ended != nil && ended.ExitCode == 0 {
			if its, _ := strings.CutPrefix(ended.Message, agentComponent+" "); its != o.Version {
				problems = append(problems, line(problem.AgentVersion, "image %s contains an agent of version %s, but the operator has version %s", status.Image, cmp.Or(its, "unknown"), o.Version))
			}
		}
	}
	return problems
}

// portInUse matches the message of a component that couldn't listen, and finds the port.
var portInUse = regexp.MustCompile(`:([0-9]+): bind: address already in use`)

// keyOf returns the key of the ConfigMap with a port, in parentheses, or "" if the ConfigMap is invalid.
func (o Observed) keyOf(port string) string {
	for _, server := range o.Servers {
		if server.Port == port {
			return " (" + server.Key + ")"
		}
	}
	return ""
}

// failure returns the reason why a container doesn't run, or "".
func failure(status corev1.ContainerStatus) string {
	ended := status.LastTerminationState.Terminated
	waiting := status.State.Waiting
	switch {
	case status.Ready:
		return ""
	case ended != nil && ended.ExitCode != 0 && (status.RestartCount >= restarts || portInUse.MatchString(ended.Message)):
		return fmt.Sprintf("exit code %d: %s", ended.ExitCode, cmp.Or(ended.Message, ended.Reason))
	case ended != nil && status.RestartCount >= restarts: // no component ends by itself without an error
		return "exit code 0: the kubelet ends it, because it doesn't answer its liveness probe"
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

// line returns a problem in one line, which begins with its name.
func line(reason problem.Reason, format string, args ...any) string {
	text := strings.Join(strings.Fields(string(reason)+": "+fmt.Sprintf(format, args...)), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return text
}
