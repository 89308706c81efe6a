// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"slices"
	"strings"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Policy is a RolloutPolicy that matches an object.
type Policy struct {
	Name    string
	Created time.Time
	Spec    *v1alpha1.RolloutPolicySpec
	// Undecodable is the reason why the policy can't be decoded, or "". Then its steps aren't known.
	Undecodable string
}

// unambiguous reports whether the policies say how the object is rolled out.
func unambiguous(matching []Policy) bool { return len(matching) == 1 && matching[0].Undecodable == "" }

// Decision is what follows from an Input.
type Decision struct {
	// Status is the next state, which is nil if no policy matches the object.
	Status *v1alpha1.RolloutStatus
	// Begins means that the object has another revision than Status, which can be nil. The caller records it, and calls Start.
	Begins bool
	// Again is when to decide again, or 0 if only an event can change the state.
	Again time.Duration
	// Memory is for the next Input.
	Memory Memory
}

// Decide returns the next state of an object's rollout. See docs/rollouts.md, "What always holds", for its invariants.
func Decide(was *v1alpha1.RolloutStatus, in Input) Decision {
	if first(was) && in.Adopted && in.Ran != nil && len(in.Policies) > 0 && in.Nodes.Listed {
		was = complete(&v1alpha1.RolloutStatus{Policy: in.Policies[0].Name, Hash: in.Ran.Hash, Revision: in.Ran.Number})
	}
	same := Decision{Status: was, Memory: in.Memory}
	switch {
	case len(in.Policies) == 0:
		return Decision{Memory: in.Memory}
	case !unambiguous(in.Policies) && hasFailed(was, in):
		return same // it has to stay so after the contest
	case !unambiguous(in.Policies):
		return Decision{Status: Contest(was, "", conflict(in.Policies)), Memory: in.Memory}
	case !in.Nodes.Listed:
		return same
	case was == nil || was.Hash != in.Hash, wasUndone(was):
		same.Begins = true
		return same
	case !in.Nodes.Current:
		return same
	}
	current := was.DeepCopy()
	current.Policy = in.Policies[0].Name
	if current.State == v1alpha1.RolloutContested {
		become(current, v1alpha1.RolloutProgressing, problem.Note{})
		if current.Step == 0 { // it was complete
			return Decision{Status: complete(current), Memory: in.Memory}
		}
	}
	d := Decision{Memory: in.Memory}
	d.Status, d.Again = next(current, in, &d.Memory)
	return d
}

// first reports whether no revision of the object has been rolled out or adopted yet.
func first(was *v1alpha1.RolloutStatus) bool { return was == nil || was.Revision == 0 }

// Before returns where the revision is that nodes run which don't have the newest one yet: it has a number, or it is in the
// status already. The number is 0 if nodes run nothing, or what they run isn't a revision that a rollout has reached.
func Before(was *v1alpha1.RolloutStatus) (number int64, stored *v1alpha1.RolloutRevision) {
	switch {
	case first(was):
	case was.Previous != nil:
		return was.Previous.Revision, was.Previous
	case was.Until == nil: // all nodes have it
		return was.Revision, nil
	}
	return 0, nil
}

// Start returns the first state of a revision. previous is what the other nodes run, or nil, and back means that it is this
// revision.
func Start(was *v1alpha1.RolloutStatus, revision v1alpha1.RecordedRevision, previous *v1alpha1.RolloutRevision, back bool, in Input) *v1alpha1.RolloutStatus {
	if back || first(was) && in.Adopted {
		return complete(&v1alpha1.RolloutStatus{Policy: in.Policies[0].Name, Hash: revision.Hash, Revision: revision.Number})
	}
	return begin(revision, previous, in)
}

// Past is what is known about an object that has no state of a rollout.
type Past struct {
	// Observed means that the object's status says that nodes ran it, and Reporting is the number of nodes that report it.
	Observed  bool
	Reporting int
	// Created and Policy are when the object and the policy were created, by the clocks of API servers, which can differ by
	// less than [together].
	Created, Policy time.Time
}

// together is the maximum time between the creations of objects that are applied together.
const together = 5 * time.Second

// Adopted reports whether nodes ran the object before a policy matched it. Nodes can also run an object that was applied
// together with its policy, because they didn't know the policy. That isn't a reason to skip the steps.
func (p Past) Adopted() bool {
	return p.Observed || p.Reporting > 0 && p.Policy.Sub(p.Created) > together
}

// Contest returns the state of an object whose newest revision can't be rolled out until somebody changes what the note names.
// Until then, nodes keep what they run: those that aren't to change yet wouldn't know what to run instead.
func Contest(was *v1alpha1.RolloutStatus, policy string, why problem.Note) *v1alpha1.RolloutStatus {
	s := &v1alpha1.RolloutStatus{}
	if was != nil {
		s = was.DeepCopy()
	}
	s.Policy = policy
	become(s, v1alpha1.RolloutContested, why)
	return s
}

// wasUndone reports whether the rollout of a revision was undone before a contest about another one. Somebody has edited the
// object twice since then.
func wasUndone(s *v1alpha1.RolloutStatus) bool {
	return s.State == v1alpha1.RolloutContested && s.Until != nil && *s.Until == 0
}

// hasFailed reports whether the rollout of an object's revision has failed, so that nothing changes until somebody edits
// the object, or resumes the rollout.
func hasFailed(was *v1alpha1.RolloutStatus, in Input) bool {
	switch {
	case was == nil || was.Hash != in.Hash:
		return false
	case was.State == v1alpha1.RolloutHalted:
		return was.Position() != in.Resumed
	}
	return was.State == v1alpha1.RolloutUndone
}

// conflict returns why policies don't say how an object is rolled out.
func conflict(matching []Policy) problem.Note {
	names := make([]string, len(matching))
	for i, p := range matching {
		names[i] = p.Name
		if p.Undecodable != "" {
			return problem.Notef(problem.RolloutPolicyUnreadable, "the RolloutPolicy %s can't be read, so no node changes until you correct or delete it: %s", p.Name, p.Undecodable)
		}
	}
	slices.Sort(names)
	return problem.Notef(problem.PoliciesConflict, "the RolloutPolicies %s match the object, so no node changes until only one does", strings.Join(names, ", "))
}
