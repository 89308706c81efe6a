// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about attaching a program before a pod starts.
const (
	StartsNotReported     Reason = "StartsNotReported"
	StartedBeforeAttached Reason = "StartedBeforeAttached"
)

var starting = []Row{
	{
		Reason: StartsNotReported,
		Messages: []string{
			"attached after pods start, although attachment is BeforeStart", "bpfman.agent.beforestart.enabled of the ConfigMap", "the container runtime's NRI",
			"register with the container runtime", "the registration takes too long", "it ended the connection",
		},
		ToDo:  "the message ends with the reason: set `bpfman.agent.beforestart.enabled` of the ConfigMap to `true`, or enable NRI in the node's container runtime",
		Links: []Link{{"enable NRI", "programs.md#attach-before-the-start"}},
	},
	{
		Reason: StartedBeforeAttached,
		Messages: []string{
			"started before the program was attached", "more started before", "this took longer than", "an earlier pod still waits for this",
			"starts have waited for the objects of the namespace", "the agent doesn't know yet what this node runs of the object",
			"the program isn't loaded", "the program isn't attached to", "bpfman: program … isn't attached", "the container runtime doesn't report the pod's namespaces",
			"the container runtime doesn't report the container's process before its start",
		},
		ToDo:  "the program is attached now, but not to what the pod did before: read the reason behind it, and restart the pod if that matters. To have such pods not start, set `failurePolicy: Fail`",
		Links: []Link{{"failurePolicy: Fail", "programs.md#attach-before-the-start"}},
	},
}
