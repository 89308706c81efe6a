// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
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
	// somebody changes something, and Previous the number of those where a program of the previous revision keeps
	// running. Waiting is the number of nodes that haven't reported all programs yet.
	Failed, Stalled, Previous, Waiting int

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

// NodeReason is the reason of a node's state, and what it is about, or "".
type NodeReason struct {
	Node, Reason string
	Problem      problem.Reason
}

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
	condition, said := s.Condition()
	state := v1alpha1.Reconciling
	switch {
	case s.Rollout != nil && s.Rollout.State.Stalled():
		state = v1alpha1.Stalled
	case condition == v1alpha1.ProgramReconcileSuccess:
		state = v1alpha1.Ready
	case s.Stalled > 0, s.Undecodable != "", s.Invalid != "":
		state = v1alpha1.Stalled
	}
	conditions := state.Conditions(condition.For(s.Kind, s.Namespaced, said.Text))
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

// Condition returns the type of the object's first condition, and its message with what that is about.
func (s Summary) Condition() (condition v1alpha1.ProgramConditionType, said problem.Note) {
	switch {
	case s.Deleting && s.Failed == 0:
		// It is only seen while a finalizer of another client delays the deletion.
		condition, said = v1alpha1.ProgramNotYetLoaded, problem.Notef(problem.BeingDeleted, "Being deleted, its programs are unloaded")
		if s.Reporting > 0 {
			said = problem.Notef(problem.BeingDeleted, "Being deleted, waiting for %s to unload its programs", count(s.Reporting, "node"))
		}
	case s.Deleting:
		condition, said = v1alpha1.ProgramDeleteError, problem.Notef(first(s.Failures), "Failed to unload on %s: %s", count(s.Failed, "node"), s.failures())
	case s.Undecodable != "":
		condition, said = v1alpha1.ProgramReconcileError, problem.Notef(problem.ObjectUnreadable, "The object can't be read, and its programs stay loaded: %s", s.Undecodable)
	case s.Invalid != "":
		condition, said = v1alpha1.ProgramReconcileError, problem.Notef(problem.NodeSelectorInvalid, "The node selector is invalid: %s", s.Invalid)
	case s.Rollout != nil && s.Rollout.State != v1alpha1.RolloutComplete && !s.awaitsNodes():
		condition, said = s.rollout()
	case s.Waiting > 0:
		condition, said = v1alpha1.ProgramNotYetLoaded, problem.Note{
			Reason: cmp.Or(first(s.Failures), first(s.WaitingFor)), Text: s.attached() + ", waiting for " + list(explained(s.WaitingFor), s.Waiting) + s.besides(),
		}
	case s.Failed > 0:
		condition, said = v1alpha1.ProgramReconcileError, problem.Notef(first(s.Failures), "Failed on %s, %s: %s", s.failed(), lowerFirst(s.attached()), s.failures())
	default:
		condition, said = s.success()
	}
	said.Text = shorten.Middle(said.Text, maxMessage)
	return condition, said
}

// success returns the condition of an object without failures.
func (s Summary) success() (condition v1alpha1.ProgramConditionType, said problem.Note) {
	switch condition = v1alpha1.ProgramReconcileSuccess; {
	case s.Agents == 0:
		return v1alpha1.ProgramNotYetLoaded, problem.Notef(problem.NoAgents, "Waiting for the node components: no node runs the agent yet")
	case s.Matching == 0:
		return condition, problem.Notef(problem.NoNodeMatches, "No node matches the node selector")
	case s.Selected == 0 && s.Unreachable == s.Matching:
		return condition, problem.Notef(problem.NodesUnreachable, "The node selector matches %s, but none can be reached: %s", count(s.Matching, "node"), list(s.OutOfReach, s.Unreachable))
	case s.Selected == 0:
		return condition, problem.Notef(problem.NodesWithoutAgent, "The node selector matches %s, but no agent runs there: %s", count(s.Matching, "node"),
			list(slices.Concat(s.WithoutAgent, s.OutOfReach), s.Matching))
	}
	said.Text = s.attached()
	for _, remark := range s.remarks() {
		said.Text += "; " + remark.Text
		said.Reason = cmp.Or(said.Reason, remark.Reason)
	}
	return condition, said
}

// first returns the problem on the first of the nodes, with which a message begins. It is "" if that has no name, because what
// to do about another one doesn't help there.
func first(nodes []NodeReason) problem.Reason {
	if len(nodes) == 0 {
		return ""
	}
	return nodes[0].Problem
}

// awaitsNodes reports whether a rollout has nothing to do, because no node matches. The object is Ready then, as without a
// RolloutPolicy, and nodes that match later get the revision in steps.
func (s Summary) awaitsNodes() bool {
	return s.Matching == 0 && s.Rollout.State == v1alpha1.RolloutProgressing
}

// rollout returns the condition during a rollout.
func (s Summary) rollout() (condition v1alpha1.ProgramConditionType, said problem.Note) {
	condition = v1alpha1.ProgramNotYetLoaded
	if s.Rollout.State.Stalled() {
		condition = v1alpha1.ProgramReconcileError
	}
	return condition, problem.Note{Reason: cmp.Or(problem.Reason(s.Rollout.Problem), first(s.Failures)), Text: fmt.Sprintf("Rollout %s: %s. %s%s", strings.ToLower(string(s.Rollout.State)), s.Rollout.Message, s.attached(), s.besidesRollout())}
}

// besidesRollout is besides without failures that explain the rollout: their reasons can be long.
func (s Summary) besidesRollout() string {
	if s.Failed > 0 && !slices.ContainsFunc(s.Failures, func(f NodeReason) bool {
		failure := f.Node + ": " + shorten.Middle(f.Reason, maxError)
		return !strings.Contains(s.Rollout.Message, "("+failure) && !strings.Contains(s.Rollout.Message, "; "+failure)
	}) {
		return "; failed on " + s.failed()
	}
	return s.besides()
}

// besides returns the failures beside what else is to say.
func (s Summary) besides() string {
	if s.Failed == 0 {
		return ""
	}
	return fmt.Sprintf("; failed on %s: %s", s.failed(), s.failures())
}

// failed returns on how many nodes the object failed, and what runs there instead.
func (s Summary) failed() string {
	switch nodes := count(s.Failed, "node"); s.Previous {
	case 0:
		return nodes
	case s.Failed:
		return nodes + ", where the previous revision keeps running"
	default:
		return fmt.Sprintf("%s, on %d of which the previous revision keeps running", nodes, s.Previous)
	}
}

func (s Summary) attached() string {
	return fmt.Sprintf("Attached on %d of %s", s.Attached, count(s.Selected, "selected node"))
}

// remarks explains a success that isn't complete.
func (s Summary) remarks() (remarks []problem.Note) {
	if s.Idle > 0 {
		remarks = append(remarks, problem.Notef(problem.NothingMatches, "nothing to attach to on %s", list(explained(s.IdleOn), s.Idle)))
	}
	if without := s.Matching - s.Selected - s.Unreachable; without > 0 {
		remarks = append(remarks, problem.Notef(problem.NodesWithoutAgent, "no agent runs on %s that the node selector also matches: %s", count(without, "node"), list(s.WithoutAgent, without)))
	}
	if s.Unreachable > 0 {
		remarks = append(remarks, problem.Notef(problem.NodesUnreachable, "%s that the node selector also matches can't be reached: %s", count(s.Unreachable, "node"), list(s.OutOfReach, s.Unreachable)))
	}
	return remarks
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

// failures returns the first failing nodes, with their reasons. Nodes that fail for the same reason share it.
func (s Summary) failures() string {
	nodes, texts := map[string][]string{}, []string(nil)
	for _, f := range s.Failures {
		nodes[f.Reason] = append(nodes[f.Reason], f.Node)
	}
	for _, f := range s.Failures {
		if names := nodes[f.Reason]; names[0] == f.Node {
			texts = append(texts, strings.Join(names, ", ")+": "+shorten.Middle(f.Reason, maxError))
		}
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
