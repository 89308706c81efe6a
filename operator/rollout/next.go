// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package rollout decides which nodes run the newest revision of a user object that a RolloutPolicy matches. Package
// status writes the decision to the object's status, from which each agent finds out what its node runs: see
// internal/rollout.
package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Nodes are the nodes of an object.
type Nodes struct {
	// Listed means that all nodes, agents, reports, and conflicts are known. Until then, nothing is decided: a node that
	// isn't known isn't absent. Current means that the numbers are about the current step.
	Listed, Current bool
	// Matching is the number of nodes that the object's node selector matches. Selected is the number of these that run an
	// agent.
	Matching, Selected int
	// Healthy, Waiting, and Failed count the selected nodes that are to have the newest revision, by their [Health].
	Healthy, Waiting, Failed int
	// Names contains the first of the nodes that aren't healthy, with the reasons of failures.
	Names []string
	// Positions returns the sorted positions of the selected nodes.
	Positions func() []int64
}

// Input is what the next state of a rollout depends on.
type Input struct {
	// Policies are the policies that match the object.
	Policies []Policy
	// Hash identifies the newest revision of the object.
	Hash string
	// Adopted means that nodes ran the object before a policy matched it, and Ran is the revision that they ran then. It is nil if
	// it isn't known, or if nodes have the newest one already.
	Adopted bool
	Ran     *v1alpha1.RecordedRevision
	Nodes   Nodes
	Now     time.Time
	Memory  Memory
	// Paused and Resumed are what the object's annotations say: see [v1alpha1.AnnotationRolloutResumed].
	Paused  bool
	Resumed string
}

func (in Input) policy() *v1alpha1.RolloutPolicySpec { return in.Policies[0].Spec }

// begin returns the state of a rollout to a revision in its first step.
func begin(revision v1alpha1.RecordedRevision, previous *v1alpha1.RolloutRevision, in Input) *v1alpha1.RolloutStatus {
	now := metav1.NewTime(in.Now.Truncate(time.Second))
	s := &v1alpha1.RolloutStatus{
		Policy: in.Policies[0].Name, State: v1alpha1.RolloutProgressing, Hash: revision.Hash, Revision: revision.Number,
		Started: &now, Canaries: in.policy().Canaries, MaxRunTimePercent: in.policy().MaxRunTimePercent, Previous: previous,
	}
	enter(s, 1, in)
	become(s, v1alpha1.RolloutProgressing, said(s, in))
	return s
}

// complete returns the state of a revision that all nodes have, or are to have.
func complete(s *v1alpha1.RolloutStatus) *v1alpha1.RolloutStatus {
	return &v1alpha1.RolloutStatus{Policy: s.Policy, State: v1alpha1.RolloutComplete, Hash: s.Hash, Revision: s.Revision}
}

// enter begins a step. Steps never take the revision away from a node.
func enter(s *v1alpha1.RolloutStatus, step int, in Input) {
	positions := in.Nodes.Positions()
	s.Step, s.StepStarted = int32(step), &metav1.Time{Time: in.Now.Truncate(time.Second)} //nolint:gosec // at most 17
	if step > len(in.policy().Steps) {
		s.Until, s.Nodes = nil, int32(len(positions)) //nolint:gosec // there are fewer than 2^31 nodes
		return
	}
	until := int64(0)
	if n := min(size(in.policy().Steps[step-1].Nodes, len(positions), true), len(positions)); n > 0 {
		until = positions[n-1] + 1
	}
	if s.Until != nil {
		until = max(until, *s.Until)
	}
	s.Until, s.Nodes = &until, 0
	for _, p := range positions {
		if p < until {
			s.Nodes++
		}
	}
}

// size returns a number of nodes of a total. A percentage is rounded up or down.
func size(n intstr.IntOrString, total int, up bool) int {
	size, err := intstr.GetScaledValueFromIntOrPercent(&n, total, up)
	if err != nil { // the API server doesn't admit it
		return 0
	}
	return size
}

// involved returns the number of nodes that must be healthy for the next step, and how many of them are missing: they had
// the revision, and were deleted, don't run an agent anymore, or can't be reached. Nodes that join count too. If fewer nodes
// match than when the step began, the policy requires fewer.
func involved(s *v1alpha1.RolloutStatus, in Input) (total, missing int) {
	required := in.Nodes.Matching
	if steps := in.policy().Steps; s.Until != nil && int(s.Step) <= len(steps) {
		required = 0
		for _, step := range steps[:s.Step] { // no step takes the revision away from a node
			required = max(required, min(size(step.Nodes, in.Nodes.Matching, true), in.Nodes.Matching))
		}
	}
	required = min(required, int(s.Nodes))
	present := in.Nodes.Healthy + in.Nodes.Waiting + in.Nodes.Failed
	return max(required, present), max(0, required-present)
}

// next returns the next state of a rollout, and when to decide again, or 0 if only an event can change it.
func next(was *v1alpha1.RolloutStatus, in Input, memory *Memory) (*v1alpha1.RolloutStatus, time.Duration) {
	s := was.DeepCopy()
	if s.State == v1alpha1.RolloutComplete || s.State == v1alpha1.RolloutUndone {
		return s, 0
	}
	s.MaxRunTimePercent = in.policy().MaxRunTimePercent
	resumed := in.Resumed == was.Position()
	total, missing := involved(s, in)
	waits := in.Nodes.Waiting + missing
	healthy, waiting := memory.observe(s.Position(), waits > 0, in.Now)
	limit := in.Now.Sub(waiting) - in.policy().TimeLimit.Duration
	unhealthy := in.Nodes.Failed
	if limit >= 0 {
		unhealthy += waits
	}
	remaining := time.Duration(0) // until nodes that wait are unhealthy
	if waits > 0 && limit < 0 {
		remaining = max(-limit, time.Second)
	}
	final := s.Until == nil // the policy can have had another number of steps
	switch {
	case s.State == v1alpha1.RolloutHalted && !resumed:
		return s, 0
	case unhealthy > size(in.policy().MaxUnhealthy, total, false) && !resumed:
		return fail(s, in, unhealthy, total, missing), 0
	case in.Paused:
		become(s, v1alpha1.RolloutPaused, problem.Notef(problem.RolloutPaused, "the annotation %s pauses the rollout", v1alpha1.AnnotationRolloutPaused))
		return s, remaining
	case total == 0 && in.Nodes.Selected > 0:
		enter(s, 1, in) // when it began, no node ran an agent
	case total == 0 || remaining != 0 && !resumed:
		become(s, v1alpha1.RolloutProgressing, said(s, in))
		return s, remaining
	case final:
		return complete(s), 0
	default:
		if wait := advance(s, in, resumed, healthy); wait != 0 {
			return s, max(wait, 0)
		}
	}
	become(s, v1alpha1.RolloutProgressing, said(s, in))
	return s, in.policy().TimeLimit.Duration
}

// advance enters the next step unless this one, whose nodes have been healthy since a time, ends with a pause. It returns how
// long that still takes, or a negative duration if a user has to end it.
func advance(s *v1alpha1.RolloutStatus, in Input, resumed bool, healthy time.Time) time.Duration {
	if int(s.Step) > len(in.policy().Steps) { // the policy had more steps
		enter(s, int(s.Step)+1, in)
		return 0
	}
	step := in.policy().Steps[s.Step-1]
	if step.UntilResumed && !resumed {
		become(s, v1alpha1.RolloutPaused, problem.Notef(problem.RolloutAwaitsYou, "step %d is complete, and the rollout waits until you resume it", s.Step))
		return -1
	}
	if step.Pause != nil && !resumed {
		if left := healthy.Add(step.Pause.Duration).Sub(in.Now); left > 0 {
			become(s, v1alpha1.RolloutProgressing, problem.Notef(problem.RolloutProceeds, "%s, and the next step follows after a pause of %s", said(s, in).Text, step.Pause.Duration))
			return left
		}
	}
	enter(s, int(s.Step)+1, in)
	return 0
}

func fail(s *v1alpha1.RolloutStatus, in Input, unhealthy, total, missing int) *v1alpha1.RolloutStatus {
	names := slices.Clone(in.Nodes.Names)
	if missing > 0 {
		names = append(names, fmt.Sprintf("%d deleted, unreachable, or without an agent", missing))
	}
	why := fmt.Sprintf("%d of %d nodes with revision %d aren't healthy (%s)", unhealthy, total, s.Revision, strings.Join(names, "; "))
	if in.policy().OnFailure == v1alpha1.RolloutUndo {
		none := int64(0)
		s.Until = &none
		become(s, v1alpha1.RolloutUndone, problem.Notef(problem.RolloutUndone, "%s: %s on all nodes until you edit the object", why, runs(s)))
		return s
	}
	become(s, v1alpha1.RolloutHalted, problem.Notef(problem.RolloutHalted, "%s: no other node changes until you edit the object or resume the rollout", why))
	return s
}

// become sets the state of a rollout, with what explains it.
func become(s *v1alpha1.RolloutStatus, state v1alpha1.RolloutState, note problem.Note) {
	s.State, s.Message, s.Problem = state, note.Text, string(note.Reason)
}

func runs(s *v1alpha1.RolloutStatus) string {
	if s.Previous == nil {
		return "nothing runs"
	}
	return fmt.Sprintf("revision %d runs again", s.Previous.Revision)
}

// said describes a step.
func said(s *v1alpha1.RolloutStatus, in Input) problem.Note {
	steps := max(len(in.policy().Steps)+1, int(s.Step))
	if s.Until == nil {
		steps = int(s.Step)
	}
	text := fmt.Sprintf("revision %d, step %d of %d on %d of %d nodes", s.Revision, s.Step, steps, s.Nodes, max(in.Nodes.Selected, int(s.Nodes)))
	if total, _ := involved(s, in); total == 0 || in.Nodes.Selected == 0 {
		return problem.Notef(problem.RolloutProceeds, "%s, waiting for a node", text)
	}
	return problem.Note{Text: text}
}
