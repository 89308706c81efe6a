// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/pace"
)

// Limits of a message.
const (
	maxNamed   = 5
	maxError   = 600
	maxMessage = 4096
)

// Summary is the state of one user object on all nodes.
type Summary struct {
	// Kind is the owner's kind, which decides about the names of its conditions, with Namespaced.
	Kind       string
	Namespaced bool
	// Generation is the metadata.generation of the owner that the summary is about.
	Generation int64
	// Deleting is true if the owner is being deleted.
	Deleting bool
	// Invalid describes the error in the node selector.
	Invalid string
	// Undecodable is the reason why the object can't be decoded.
	Undecodable string

	// Agents is the number of nodes that run an agent.
	Agents int
	// Matching is the number of nodes that the node selector matches. Selected is the number of these that run an
	// agent. Unreachable is the number of these that can't be reached, so it isn't known what they run.
	Matching, Selected, Unreachable int
	// Attached is the number of selected nodes where everything is attached as requested. Idle is the number of
	// those where everything is loaded, but there is nothing to attach to.
	Attached, Idle int
	// Failed is the number of nodes that report a failure. Stalled is the number of these where it stays until
	// somebody changes something. Waiting is the number of nodes that haven't reported all
	// programs yet.
	Failed, Stalled, Waiting int

	// Reporting is the number of nodes with reports.
	Reporting int
	// Rollout is the state of the rollout that the summary is about, or nil. Changing is that of its nodes.
	Rollout  *v1alpha1.RolloutStatus
	Changing Changing

	// WaitingFor, Failures, IdleOn, OutOfReach, and WithoutAgent contain the first nodes in these states. Failures
	// contains stalled nodes first.
	WaitingFor   []NodeReason
	Failures     []NodeReason
	IdleOn       []NodeReason
	OutOfReach   []string
	WithoutAgent []string
}

// NodeReason is the reason of a node's state.
type NodeReason struct{ Node, Reason string }

// Counts returns the numbers for the object's status.
func (s Summary) Counts() v1alpha1.NodeCounts {
	//nolint:gosec // there are fewer than 2^31 nodes
	return v1alpha1.NodeCounts{Selected: int32(s.Selected), Attached: int32(s.Attached), Idle: int32(s.Idle), Failed: int32(s.Failed)}
}

// pace returns the minimum interval between writes of the same type of condition. While the object waits for
// nodes, each report changes the status, so the interval grows with the number of agents. After an edit, it is
// short, so that users soon see the new generation observed.
func (s Summary) pace(observedGeneration int64) time.Duration {
	if s.Waiting == 0 || observedGeneration != s.Generation {
		return writePace
	}
	return pace.Between(writePace, s.Agents)
}

// Conditions returns the object's conditions, the first of which is upstream's.
func (s Summary) Conditions() []metav1.Condition {
	condition, message := s.Condition()
	state := v1alpha1.Reconciling
	switch {
	case s.Rollout != nil && s.Rollout.State.Stalled():
		state = v1alpha1.Stalled
	case condition == v1alpha1.ProgramReconcileSuccess:
		state = v1alpha1.Ready
	case s.Stalled > 0, s.Undecodable != "", s.Invalid != "":
		state = v1alpha1.Stalled
	}
	conditions := state.Conditions(condition.For(s.Kind, s.Namespaced, message))
	for i := range conditions {
		conditions[i].ObservedGeneration = s.Generation
		if nowhere := s.nowhere(); state == v1alpha1.Ready && nowhere != "" && conditions[i].Type == string(v1alpha1.Ready) {
			conditions[i].Reason = nowhere
		}
	}
	return conditions
}

// nowhere returns the reason of an object's condition Ready if the object is attached nowhere, or "".
func (s Summary) nowhere() string {
	switch {
	case s.Selected == 0:
		return v1alpha1.NothingSelected
	case s.Attached == 0:
		return v1alpha1.NothingMatched
	}
	return ""
}

// Condition returns the type of the object's first condition, and its message.
func (s Summary) Condition() (condition v1alpha1.ProgramConditionType, message string) {
	switch {
	case s.Deleting && s.Failed == 0:
		// It is only seen while a finalizer of another client delays the deletion.
		condition, message = v1alpha1.ProgramNotYetLoaded, "Being deleted, its programs are unloaded"
		if s.Reporting > 0 {
			message = "Being deleted, waiting for " + count(s.Reporting, "node") + " to unload its programs"
		}
	case s.Deleting:
		condition, message = v1alpha1.ProgramDeleteError, fmt.Sprintf("Failed to unload on %s: %s", count(s.Failed, "node"), s.failures())
	case s.Undecodable != "":
		condition, message = v1alpha1.ProgramReconcileError, "The object can't be read, and its programs stay loaded: "+s.Undecodable
	case s.Invalid != "":
		condition, message = v1alpha1.ProgramReconcileError, "The node selector is invalid: "+s.Invalid
	case s.Rollout != nil && s.Rollout.State != v1alpha1.RolloutComplete && !s.awaitsNodes():
		condition, message = s.rollout()
	case s.Waiting > 0:
		condition, message = v1alpha1.ProgramNotYetLoaded, s.attached()+", waiting for "+list(explained(s.WaitingFor), s.Waiting)
		if s.Failed > 0 {
			message += fmt.Sprintf("; failed on %s: %s", count(s.Failed, "node"), s.failures())
		}
	case s.Failed > 0:
		condition, message = v1alpha1.ProgramReconcileError, fmt.Sprintf("Failed on %s, %s: %s", count(s.Failed, "node"), lowerFirst(s.attached()), s.failures())
	case s.Agents == 0:
		condition, message = v1alpha1.ProgramNotYetLoaded, "Waiting for the node components: no node runs the agent yet"
	case s.Matching == 0:
		condition, message = v1alpha1.ProgramReconcileSuccess, "No node matches the node selector"
	case s.Selected == 0 && s.Unreachable == s.Matching:
		condition, message = v1alpha1.ProgramReconcileSuccess, "The node selector matches "+count(s.Matching, "node")+", but none can be reached: "+list(s.OutOfReach, s.Unreachable)
	case s.Selected == 0:
		condition, message = v1alpha1.ProgramReconcileSuccess, "The node selector matches "+count(s.Matching, "node")+", but no agent runs there: "+
			list(slices.Concat(s.WithoutAgent, s.OutOfReach), s.Matching)
	default:
		condition, message = v1alpha1.ProgramReconcileSuccess, s.attached()+s.remarks()
	}
	return condition, shorten.Middle(message, maxMessage)
}

// awaitsNodes reports whether a rollout has nothing to do, because no node matches. The object is Ready then, as without a
// RolloutPolicy, and nodes that match later get the revision in steps.
func (s Summary) awaitsNodes() bool {
	return s.Matching == 0 && s.Rollout.State == v1alpha1.RolloutProgressing
}

// rollout returns the condition during a rollout.
func (s Summary) rollout() (condition v1alpha1.ProgramConditionType, message string) {
	condition = v1alpha1.ProgramNotYetLoaded
	if s.Rollout.State.Stalled() {
		condition = v1alpha1.ProgramReconcileError
	}
	message = fmt.Sprintf("Rollout %s: %s. %s", strings.ToLower(string(s.Rollout.State)), s.Rollout.Message, s.attached())
	if s.Failed > 0 {
		message += fmt.Sprintf("; failed on %s: %s", count(s.Failed, "node"), s.failures())
	}
	return condition, message
}

func (s Summary) attached() string {
	return fmt.Sprintf("Attached on %d of %s", s.Attached, count(s.Selected, "selected node"))
}

// remarks explains a success that isn't complete.
func (s Summary) remarks() string {
	var text string
	if s.Idle > 0 {
		text += "; nothing to attach to on " + list(explained(s.IdleOn), s.Idle)
	}
	if without := s.Matching - s.Selected - s.Unreachable; without > 0 {
		text += fmt.Sprintf("; no agent runs on %s that the node selector also matches: %s", count(without, "node"), list(s.WithoutAgent, without))
	}
	if s.Unreachable > 0 {
		text += fmt.Sprintf("; %s that the node selector also matches can't be reached: %s", count(s.Unreachable, "node"), list(s.OutOfReach, s.Unreachable))
	}
	return text
}

// explained returns the names of nodes, with the reasons that are known.
func explained(nodes []NodeReason) []string {
	names := make([]string, len(nodes))
	for i, on := range nodes {
		names[i] = on.Node
		if on.Reason != "" {
			names[i] += " (" + shorten.Middle(on.Reason, maxError) + ")"
		}
	}
	return names
}

// list returns the names of the first nodes, of the given number of nodes.
func list(names []string, of int) string {
	return strings.Join(names, ", ") + more(of-len(names))
}

func (s Summary) failures() string {
	texts := make([]string, len(s.Failures))
	for i, f := range s.Failures {
		texts[i] = f.Node + ": " + shorten.Middle(f.Reason, maxError)
	}
	return strings.Join(texts, "; ") + more(s.Failed-len(s.Failures))
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
