// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// Invariant is something that always holds.
type Invariant struct {
	Name string
	// Sentence is what users are told.
	Sentence string
	// Watch returns the checks of one history. They can keep what they need to remember.
	Watch func(*Cluster) Checks
}

// Checks are called with what happens. Those that are nil aren't called. One that returns an error has found that the invariant
// is broken. They are called one at a time.
type Checks struct {
	// Write is called after each write of the API server, in order.
	Write func(Write) error
	// Call is called after each call of a daemon that took effect.
	Call func(*simulation.Node, simulation.Event) error
	// Second is called each second.
	Second func() error
	// Rest is called when the cluster is at rest: the faults have ended, and nothing was written or loaded for a while.
	Rest func() error
}

// Write is a write of the API server. Before or After is nil if the object was created or deleted.
type Write struct {
	Actor, Resource string
	Before, After   *unstructured.Unstructured
}

func (w Write) String() string {
	o, verb := w.After, "writes"
	if o == nil {
		o, verb = w.Before, "deletes"
	}
	return fmt.Sprintf("%s %s %s %s", w.Actor, verb, o.GetKind(), o.GetName())
}

// Invariants contains all invariants.
var Invariants = []Invariant{
	finalStates, stepsInTurn, stepsAreLimits, cutOffIsBack, reachableIsKept, causeIsRefused, knownIsAttached, readyIsAttached, listedFirst,
	asExpected, reportsAreTrue, loadedOnce, keptPrograms, attachedInTime, readOnce, usedImages, goneIsGone, statusLoadsNothing, restInvariant,
}

// BrokenError says which invariant a history broke.
type BrokenError struct {
	Invariant *Invariant
	Err       error
	// Log contains the last events.
	Log []string
}

func (b *BrokenError) Error() string { return fmt.Sprintf("%s: %v", b.Invariant.Name, b.Err) }
