// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Positions are below end. Those of canaries are below others.
const (
	others = int64(1) << 32
	end    = others << 1
)

// Position returns the position of a node in the rollouts of an object. Canaries come first, in the order of a hash of the
// node and the object, so that not all objects change on the same nodes first.
func Position(object types.UID, node string, set map[string]string, canaries labels.Selector) int64 {
	sum := sha256.Sum256([]byte(string(object) + "\x00" + node))
	position := int64(binary.BigEndian.Uint32(sum[:]))
	if canaries != nil && !canaries.Empty() && canaries.Matches(labels.Set(set)) {
		return position
	}
	return others + position
}

// Canaries returns the selector of a rollout's first nodes. It selects nothing if it is absent or invalid.
func Canaries(selector *metav1.LabelSelector) labels.Selector {
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return labels.Nothing()
	}
	return compiled
}

// Changes reports whether a node at this position is to have the newest revision.
func Changes(s *v1alpha1.RolloutStatus, position int64) bool {
	return s == nil || s.Until == nil || position < *s.Until
}

// Governed says whether a RolloutPolicy matches an object, as far as a node knows.
type Governed int

const (
	// Unknown means that the node hasn't read the policies.
	Unknown Governed = iota
	// Free means that no policy matches.
	Free
	// Staged means that a policy matches.
	Staged
)

// Run is what a node is to run of an object.
type Run int

const (
	// Hold means that the node keeps what it runs, because nobody has decided yet.
	Hold Run = iota
	// Newest is the newest revision.
	Newest
	// Previous is the revision in the status.
	Previous
	// Nothing means that the status has no previous revision.
	Nothing
)

// Turn decides what a node is to run of an object with a status, whose newest revision has a hash.
//
// A status can hold back the newest revision on its own: a node can know of the status before it knows of the policy. It
// can't make a node run something else, so permission to write a status isn't permission to load programs.
func Turn(s *v1alpha1.RolloutStatus, newest string, governed Governed, position int64) Run {
	switch {
	case s == nil && governed == Free:
		return Newest
	case s == nil || s.Hash != newest:
		return Hold
	case Changes(s, position):
		return Newest
	case governed != Staged:
		return Hold
	case s.Previous == nil:
		return Nothing
	}
	return Previous
}

// Assigned says what a node is to run of an object.
type Assigned struct {
	// Object is the object, possibly in its previous revision. It is nil if the node is to run nothing yet.
	Object v1alpha1.UserObject
	// Held means that the operator hasn't decided yet: the node keeps what it runs.
	Held bool
	// Previous means that Object isn't the newest revision.
	Previous bool
}

// Assign returns what a node is to run of an object.
func Assign(kind string, o v1alpha1.UserObject, governed Governed, node string, set map[string]string) (Assigned, error) {
	s := o.GetStatus().Rollout
	if s == nil {
		return Assigned{Object: o, Held: Turn(nil, "", governed, 0) == Hold}, nil
	}
	now, err := RevisionOf(o)
	if err != nil {
		return Assigned{}, err
	}
	switch Turn(s, now.Hash(), governed, Position(o.GetUID(), node, set, Canaries(s.Canaries))) {
	case Hold:
		return Assigned{Object: o, Held: true}, nil
	case Newest:
		return Assigned{Object: o}, nil
	case Nothing:
		return Assigned{Previous: true}, nil
	case Previous:
	}
	previous, err := Parse(s.Previous.Object.Raw)
	if err != nil {
		return Assigned{}, fmt.Errorf("status.rollout.previous of %s %s: %w", kind, o.GetName(), err)
	}
	// Only what programs do comes from the status.
	previous.Metadata.Name, previous.Metadata.Namespace, previous.Metadata.UID = o.GetName(), o.GetNamespace(), o.GetUID()
	object, err := previous.Object(kind)
	if err != nil {
		return Assigned{}, err
	}
	common := object.GetAppCommon()
	common.NodeSelector = o.GetAppCommon().NodeSelector
	object.SetAppCommon(common)
	return Assigned{Object: object, Previous: true}, nil
}
