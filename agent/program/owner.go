// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/policy"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Owner is a user object, reduced to what decides what this node loads.
type Owner struct {
	Key
	UID          types.UID
	Generation   int64
	NodeSelector metav1.LabelSelector
	Bytecode     v1alpha1.BytecodeSelector
	GlobalData   map[string][]byte
	// ReplacePinnedMaps allows that pins of maps are removed that the bytecode
	// declares in another shape.
	ReplacePinnedMaps bool
	// Members are the programs; one, unless the owner is an application.
	Members []Member
	// Subject is the object as policies see it, on this node.
	Subject policy.Subject
}

// Member is one program of an owner.
type Member struct {
	Kind
	// ID is unique within the owner: empty for a program on its own, else the
	// Kind's ID, with a number behind it from the second of its like on.
	ID string
	// Type is the BpfProgram's spec.type.
	Type string
}

// OwnerOf reads a user object of the given kind. The error is for objects that
// the API server should not have admitted.
func OwnerOf(kind string, o v1alpha1.UserObject) (Owner, error) {
	common := o.GetAppCommon()
	owner := Owner{
		Key:          Key{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()},
		UID:          o.GetUID(),
		Generation:   o.GetGeneration(),
		NodeSelector: common.NodeSelector,
		Bytecode:     common.ByteCode,
		GlobalData:   common.GlobalData,
		// Pins are the node's, which no namespace has a say in.
		ReplacePinnedMaps: o.GetNamespace() == "" && o.GetAnnotations()[v1alpha1.AnnotationReplacePinnedMaps] == "true",
	}
	if of, ok := kinds[kind]; ok {
		k := of(o)
		owner.Members = []Member{{Kind: attachedOrNot(k), Type: k.Type()}}
		return owner, nil
	}

	members, err := membersOf(o)
	if err != nil {
		return owner, err
	}
	seen := map[string]int{}
	for _, k := range members {
		id := k.ID()
		if seen[id]++; seen[id] > 1 {
			id += "-" + strconv.Itoa(seen[id])
		}
		owner.Members = append(owner.Members, Member{Kind: attachedOrNot(k), ID: id, Type: "application"})
	}
	return owner, nil
}

func attachedOrNot(k Kind) Kind {
	if k.Attached() {
		return k
	}
	return unattached{k}
}

func membersOf(o v1alpha1.UserObject) ([]Kind, error) {
	var out []Kind
	add := func(i int, t v1alpha1.EBPFProgType, k Kind) {
		if k == nil {
			k = untypedOf(i, t)
		}
		out = append(out, k)
	}
	switch app := o.(type) {
	case *v1alpha1.BpfApplication:
		for i := range app.Spec.Programs {
			p := &app.Spec.Programs[i]
			var k Kind
			if of, ok := members[p.Type]; ok {
				k = of(p)
			}
			add(i, p.Type, k)
		}
	case *v1alpha1.BpfNsApplication:
		for i := range app.Spec.Programs {
			p := &app.Spec.Programs[i]
			var k Kind
			if of, ok := nsMembers[p.Type]; ok {
				k = of(app.Namespace, p)
			}
			add(i, p.Type, k)
		}
	default:
		return nil, fmt.Errorf("%T is not a kind of user object", o)
	}
	return out, nil
}

// Choices says what was chosen for a member where the spec leaves a choice, as
// upstream chooses.
func (o Owner) Choices(m Member) []string {
	var choices []string
	if o.Bytecode.Image != nil && o.Bytecode.Path != nil {
		choices = append(choices, "bytecode has both an image and a path: the image is used")
	}
	if k, ok := m.Kind.(interface{ choices() []string }); ok {
		choices = append(choices, k.choices()...)
	}
	return choices
}

// Needs is what all members need together.
func (o Owner) Needs() Needs {
	var all Needs
	for _, m := range o.Members {
		n := m.Needs()
		all.Interfaces = all.Interfaces || n.Interfaces
		all.Containers = all.Containers || n.Containers
		all.PodInterfaces = all.PodInterfaces || n.PodInterfaces
	}
	return all
}

// SharesMaps tells whether some member uses another program's maps.
func (o Owner) SharesMaps() bool {
	return slices.ContainsFunc(o.Members, func(m Member) bool { return m.MapOwner() != nil })
}
