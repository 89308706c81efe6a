// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

// Health is the state of a node that is to have the newest revision.
type Health int

// The states of a node, from the best to the worst.
const (
	Healthy Health = iota
	// Waiting means that the node isn't healthy yet. If it stays so for the time limit, it is unhealthy.
	Waiting
	Failing
)

// Reported is what a node reports about the newest revision.
type Reported int

const (
	// Nothing means that the node hasn't reported all programs of the revision.
	Nothing Reported = iota
	// Attached means that everything is attached, or that there is nothing to attach to.
	Attached
	// Failed means that something failed.
	Failed
	// FailedInPods means that the programs are attached on the node, except for some pods.
	FailedInPods
)

// Node is what the health of a node depends on.
type Node struct {
	Reported Reported
	// Shared means that the object is cluster-scoped, so its programs can be attached in pods of tenants, who mustn't be
	// able to stop its rollout.
	Shared bool
	// Ready means that the node and its agent are.
	Ready bool
	// Restarted means that the agent or the daemon terminated since the step began, and Conflicted that the inspector has
	// reported a conflict since then.
	Restarted, Conflicted bool
	// RunTime is Healthy unless run times are limited.
	RunTime Health
}

// Failed reports whether the node is failing because of what it reports.
func (n Node) Failed() bool { return n.Reported == Failed || n.Reported == FailedInPods && !n.Shared }

// Health returns the state of the node.
func (n Node) Health() Health {
	switch {
	case n.Failed():
		return Failing
	case n.Reported == Nothing || !n.Ready:
		return Waiting
	case n.Restarted || n.Conflicted:
		return Failing
	}
	return n.RunTime
}
