// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package view computes what the pages of `kubectl bpfman ui` show, from facts about the cluster. It is pure: package
// ui reads the facts, and sends the views.
package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unique"

	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/timeline"
	"github.com/bpfman/bpfman-operator/internal/liststream"
)

// record implements the methods of runtime.Object that a reflector needs.
type record struct{}

func (record) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// Inventory is what is kept of a BpfNode. A cluster of 5,000 nodes with 50 programs each has 250,000 programs, so what
// they have in common is stored once.
type Inventory struct {
	record

	Name, Version string
	Programs      []Loaded
	// Total, Bpfman, and Conflicting count all programs and conflicts, including those that a BpfNode has no room for.
	Total, Bpfman, Conflicting int
	Conflicts                  []v1alpha1.BpfNodeConflict
	// Problem says why the node couldn't be inspected.
	Problem string
}

// DeepCopyObject implements [runtime.Object].
func (r *Inventory) DeepCopyObject() runtime.Object { return r }

// Loaded is a program on a node.
type Loaded struct {
	Sort unique.Handle[Sort]
	ID   uint32
	// At is the time when it was loaded, in seconds since 1970.
	At int64
}

// Sort is what the same program on different nodes has in common.
type Sort struct {
	Name, Type string
	Bpfman     bool
	Owner      v1alpha1.BpfNodeOwner
	// Holder describes who holds a program of others.
	Holder string
}

// Key identifies a sort in the page.
func (s Sort) Key() string {
	return strings.Join([]string{s.Type, s.Name, s.Owner.Kind, s.Owner.Namespace, s.Owner.Name, s.Holder}, "|")
}

// Owned returns the object of bpfman or the holder.
func (s Sort) Owned() string {
	switch {
	case s.Owner.Name != "":
		return s.Owner.String()
	case s.Bpfman:
		return "bpfman"
	default:
		return s.Holder
	}
}

// SortOf returns the sort of a program.
func SortOf(p v1alpha1.BpfNodeProgram) Sort {
	s := Sort{Name: p.Name, Type: p.Type, Bpfman: p.Bpfman}
	if p.Owner != nil {
		s.Owner = *p.Owner
	}
	if !p.Bpfman {
		s.Holder = holder(p)
	}
	return s
}

// holder describes the most informative holder of a program, without what differs between nodes, such as the names of
// pods and the IDs of processes.
func holder(p v1alpha1.BpfNodeProgram) string {
	h, found := inventory.KnownHolder(p)
	switch {
	case !found:
		return ""
	case h.Pod != "":
		return h.Namespace + "/" + cmp.Or(h.Container, h.Process, h.Pod)
	default:
		return cmp.Or(h.Unit, h.Process, h.Path)
	}
}

// DecodeInventory decodes a BpfNode.
func DecodeInventory(object jsontext.Value) (*Inventory, liststream.Metadata, error) {
	node, err := cluster.DecodeWithoutMaps(object)
	if err != nil {
		return nil, liststream.Metadata{}, err
	}
	status := &node.Status
	r := &Inventory{
		Name: node.Name, Version: node.ResourceVersion,
		Total: int(status.ProgramCount), Bpfman: int(status.BpfmanCount),
		Conflicting: int(status.ConflictCount), Conflicts: status.Conflicts,
		Programs: make([]Loaded, 0, len(status.Programs)),
	}
	for _, p := range status.Programs {
		if inventory.Routine(p) {
			continue
		}
		loaded := Loaded{Sort: unique.Make(SortOf(p)), ID: p.ID}
		if p.LoadedAt != nil {
			loaded.At = p.LoadedAt.Unix()
		}
		r.Programs = append(r.Programs, loaded)
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.BpfNodeInspected); c != nil && c.Status != metav1.ConditionTrue {
		r.Problem = c.Message
	}
	return r, liststream.Metadata{Name: node.Name, ResourceVersion: node.ResourceVersion, Annotations: node.Annotations}, nil
}

// Machine is what is kept of a Node.
type Machine struct {
	record

	Name     string
	NotReady string // the reason, if the node isn't ready
}

// DeepCopyObject implements [runtime.Object].
func (r *Machine) DeepCopyObject() runtime.Object { return r }

// DecodeMachine decodes a Node.
func DecodeMachine(object jsontext.Value) (*Machine, liststream.Metadata, error) {
	var node struct {
		Metadata liststream.Metadata `json:"metadata"`
		Status   struct {
			Conditions []corev1.NodeCondition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(object, &node); err != nil {
		return nil, node.Metadata, fmt.Errorf("decode a Node: %w", err)
	}
	r := &Machine{Name: node.Metadata.Name, NotReady: "the kubelet hasn't reported yet"}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			r.NotReady = ""
			if c.Status != corev1.ConditionTrue {
				r.NotReady = cmp.Or(c.Message, c.Reason, "not ready")
			}
		}
	}
	return r, node.Metadata, nil
}

// Declared is a user object or a policy.
type Declared struct {
	record

	Owner v1alpha1.BpfNodeOwner
	// User is nil for a policy, and for an object that can't be decoded.
	User v1alpha1.UserObject
	// Conditions are those of a policy, and Named is the problem that its status names.
	Conditions []metav1.Condition
	Named      string
	// Problem says why the object can't be decoded.
	Problem string
}

// DeepCopyObject implements [runtime.Object].
func (r *Declared) DeepCopyObject() runtime.Object { return r }

// DecodeUserObject returns a function that decodes objects of a kind.
func DecodeUserObject(kind v1alpha1.Kind[v1alpha1.UserObject]) liststream.Decode[*Declared] {
	return func(object jsontext.Value) (*Declared, liststream.Metadata, error) {
		user := kind.New()
		metadata, err := decodeInto(object, user)
		if err != nil && metadata.Name == "" {
			return nil, metadata, err
		}
		r := &Declared{Owner: v1alpha1.BpfNodeOwner{Kind: kind.Name, Namespace: metadata.Namespace, Name: metadata.Name}}
		if err == nil {
			user.SetManagedFields(nil)
			r.User = user
		} else {
			r.Problem = err.Error()
		}
		return r, metadata, nil
	}
}

// DecodePolicy returns a function that decodes policies of a kind.
func DecodePolicy(kind string) liststream.Decode[*Declared] {
	return func(object jsontext.Value) (*Declared, liststream.Metadata, error) {
		var policy struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
				Problem    string             `json:"problem"`
			} `json:"status"`
		}
		metadata, err := decodeInto(object, &policy)
		if err != nil && metadata.Name == "" {
			return nil, metadata, err
		}
		r := &Declared{Owner: v1alpha1.BpfNodeOwner{Kind: kind, Name: metadata.Name}, Conditions: policy.Status.Conditions, Named: policy.Status.Problem}
		if err != nil {
			r.Problem = err.Error()
		}
		return r, metadata, nil
	}
}

// decodeInto decodes an object. After an error, it returns at least the metadata, if these can be decoded.
func decodeInto(object jsontext.Value, into any) (liststream.Metadata, error) {
	var of struct {
		Metadata liststream.Metadata `json:"metadata"`
	}
	if err := json.Unmarshal(object, &of); err != nil {
		return of.Metadata, fmt.Errorf("decode the metadata of an object: %w", err)
	}
	if err := json.Unmarshal(object, into); err != nil {
		return of.Metadata, fmt.Errorf("decode %s: %w", of.Metadata.Name, err)
	}
	return of.Metadata, nil
}

// Event is an Event about an object of bpfman.
type Event struct {
	record `json:"-"`

	UID     types.UID             `json:"uid"`
	Owner   v1alpha1.BpfNodeOwner `json:"owner"`
	Warning bool                  `json:"warning,omitempty"`
	Reason  string                `json:"reason"`
	Message string                `json:"message"`
	Count   int32                 `json:"count"`
	At      time.Time             `json:"at"`
}

// DeepCopyObject implements [runtime.Object].
func (r *Event) DeepCopyObject() runtime.Object { return r }

// DecodeEvent decodes an Event.
func DecodeEvent(object jsontext.Value) (*Event, liststream.Metadata, error) {
	var e corev1.Event
	metadata, err := decodeInto(object, &e)
	if err != nil {
		return nil, metadata, err
	}
	at, count := timeline.Last(&e)
	r := &Event{
		UID: e.UID, Owner: v1alpha1.BpfNodeOwner{Kind: e.InvolvedObject.Kind, Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name},
		Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Message: e.Message, Count: count, At: at.Time,
	}
	return r, metadata, nil
}
