// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package rollout decides which nodes run the newest revision of a user object that a RolloutPolicy matches. Package
// status writes the decision to the object's status, from which each agent finds out what its node runs: see
// internal/rollout.
package rollout

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Nodes are the nodes of an object.
type Nodes struct {
	// Matching is the number of nodes that the object's node selector matches. Selected is the number of these that run an
	// agent.
	Matching, Selected int
	// Waiting and Failed count the nodes that are to have the newest revision, and aren't healthy. A node is healthy if it
	// reports the revision as attached, and the node and its agent are ready.
	Waiting, Failed int
	// Names contains the first of the nodes that aren't healthy, with the reasons of failures.
	Names []string
	// Positions returns the sorted positions of the selected nodes.
	Positions func() []int64
}

// Input is what the next state of a rollout depends on.
type Input struct {
	Policy *v1alpha1.RolloutPolicySpec
	Nodes  Nodes
	Now    time.Time
	// HealthySince is since when all nodes of the step are healthy, as far as is known.
	HealthySince time.Time
	// WaitingSince is since when nodes of the step wait that were all healthy before, or zero. For example, a node joined.
	WaitingSince time.Time
	// Paused and Resumed are what the object's annotations say: see [v1alpha1.AnnotationRolloutResumed].
	Paused  bool
	Resumed string
}

// Begin returns the state of a rollout to a revision in its first step.
func Begin(policy string, revision Numbered, previous *v1alpha1.RolloutRevision, in Input) *v1alpha1.RolloutStatus {
	now := metav1.NewTime(in.Now.Truncate(time.Second))
	s := &v1alpha1.RolloutStatus{
		Policy: policy, State: v1alpha1.RolloutProgressing, Hash: revision.Hash, Revision: revision.Number,
		Started: &now, Canaries: in.Policy.Canaries, MaxRunTimePercent: in.Policy.MaxRunTimePercent, Previous: previous,
	}
	enter(s, 1, in)
	s.Message = said(s, in)
	return s
}

// Complete returns the state of a revision that all nodes have, or are to have.
func Complete(policy string, revision Numbered) *v1alpha1.RolloutStatus {
	return &v1alpha1.RolloutStatus{Policy: policy, State: v1alpha1.RolloutComplete, Hash: revision.Hash, Revision: revision.Number}
}

// enter begins a step. Steps never take the revision away from a node.
func enter(s *v1alpha1.RolloutStatus, step int, in Input) {
	positions := in.Nodes.Positions()
	s.Step, s.StepStarted = int32(step), &metav1.Time{Time: in.Now.Truncate(time.Second)} //nolint:gosec // at most 17
	if step > len(in.Policy.Steps) {
		s.Until, s.Nodes = nil, int32(len(positions)) //nolint:gosec // there are fewer than 2^31 nodes
		return
	}
	until := int64(0)
	if n := min(size(in.Policy.Steps[step-1].Nodes, len(positions), true), len(positions)); n > 0 {
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

// Next returns the next state of a rollout, and when to decide again, or 0 if only an event can change it.
func Next(was *v1alpha1.RolloutStatus, in Input) (*v1alpha1.RolloutStatus, time.Duration) {
	s := was.DeepCopy()
	if s.State == v1alpha1.RolloutComplete || s.State == v1alpha1.RolloutUndone {
		return s, 0
	}
	s.MaxRunTimePercent = in.Policy.MaxRunTimePercent
	resumed := in.Resumed == was.Position()
	began := s.StepStarted.Time
	if in.WaitingSince.After(began) {
		began = in.WaitingSince
	}
	limit := in.Now.Sub(began) - in.Policy.TimeLimit.Duration
	unhealthy := in.Nodes.Failed
	if limit >= 0 {
		unhealthy += in.Nodes.Waiting
	}
	remaining := time.Duration(0) // until nodes that wait are unhealthy
	if in.Nodes.Waiting > 0 && limit < 0 {
		remaining = max(-limit, time.Second)
	}
	final := s.Until == nil // the policy can have had another number of steps
	switch {
	case in.Nodes.Matching == 0:
		return Complete(s.Policy, Numbered{s.Revision, s.Hash}), 0
	case s.State == v1alpha1.RolloutHalted && !resumed:
		return s, 0
	case unhealthy > size(in.Policy.MaxUnhealthy, int(s.Nodes), false) && !resumed:
		return fail(s, in, unhealthy), 0
	case in.Paused:
		s.State, s.Message = v1alpha1.RolloutPaused, "the annotation "+v1alpha1.AnnotationRolloutPaused+" pauses the rollout"
		return s, remaining
	case s.Nodes == 0 && in.Nodes.Selected > 0:
		enter(s, 1, in) // when it began, no node ran an agent
	case s.Nodes == 0 || remaining != 0 && !resumed:
		s.State, s.Message = v1alpha1.RolloutProgressing, said(s, in)
		return s, remaining
	case final:
		return Complete(s.Policy, Numbered{s.Revision, s.Hash}), 0
	default:
		if wait := next(s, in, resumed); wait != 0 {
			return s, max(wait, 0)
		}
	}
	s.State, s.Message = v1alpha1.RolloutProgressing, said(s, in)
	return s, in.Policy.TimeLimit.Duration
}

// next enters the next step unless this one ends with a pause. It returns how long that still takes, or a negative
// duration if a user has to end it.
func next(s *v1alpha1.RolloutStatus, in Input, resumed bool) time.Duration {
	if int(s.Step) > len(in.Policy.Steps) { // the policy had more steps
		enter(s, int(s.Step)+1, in)
		return 0
	}
	step := in.Policy.Steps[s.Step-1]
	if step.UntilResumed && !resumed {
		s.State, s.Message = v1alpha1.RolloutPaused, fmt.Sprintf("step %d is complete, and the rollout waits until you resume it", s.Step)
		return -1
	}
	if step.Pause != nil && !resumed {
		if left := in.HealthySince.Add(step.Pause.Duration).Sub(in.Now); left > 0 {
			s.State, s.Message = v1alpha1.RolloutProgressing, fmt.Sprintf("%s, and the next step follows after a pause of %s", said(s, in), step.Pause.Duration)
			return left
		}
	}
	enter(s, int(s.Step)+1, in)
	return 0
}

func fail(s *v1alpha1.RolloutStatus, in Input, unhealthy int) *v1alpha1.RolloutStatus {
	why := fmt.Sprintf("%d of %d nodes with revision %d aren't healthy (%s)", unhealthy, s.Nodes, s.Revision, strings.Join(in.Nodes.Names, "; "))
	if in.Policy.OnFailure == v1alpha1.RolloutUndo {
		none := int64(0)
		s.State, s.Until = v1alpha1.RolloutUndone, &none
		s.Message = why + ": " + runs(s) + " on all nodes until you edit the object"
		return s
	}
	s.State = v1alpha1.RolloutHalted
	s.Message = why + ": no other node changes until you edit the object or resume the rollout"
	return s
}

func runs(s *v1alpha1.RolloutStatus) string {
	if s.Previous == nil {
		return "nothing runs"
	}
	return fmt.Sprintf("revision %d runs again", s.Previous.Revision)
}

// said describes a step.
func said(s *v1alpha1.RolloutStatus, in Input) string {
	steps := max(len(in.Policy.Steps)+1, int(s.Step))
	if s.Until == nil {
		steps = int(s.Step)
	}
	text := fmt.Sprintf("revision %d, step %d of %d on %d of %d nodes", s.Revision, s.Step, steps, s.Nodes, max(in.Nodes.Selected, int(s.Nodes)))
	if s.Nodes == 0 {
		return text + ", waiting for a node"
	}
	return text
}
