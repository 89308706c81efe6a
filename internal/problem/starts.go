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
		ToDo:   "the message ends with the reason: set `bpfman.agent.beforestart.enabled` of the ConfigMap to `true`, or enable NRI in the node's container runtime",
		Links:  []Link{{"enable NRI", "programs.md#attach-before-the-start"}},
	},
	{
		Reason: StartedBeforeAttached,
		ToDo:   "the program is attached now, but not to what the pod did before: read the reason behind it, and restart the pod if that matters. To have such pods not start, set `failurePolicy: Fail`",
		Links:  []Link{{"failurePolicy: Fail", "programs.md#attach-before-the-start"}},
	},
}
