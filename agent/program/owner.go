// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/userobject"
)

// Owner contains what a user object configures for this node.
type Owner struct {
	Key
	UID        types.UID
	Generation int64
	Bytecode   v1alpha1.BytecodeSelector
	// GlobalData are the bytes of global variables, and Globals are values.
	GlobalData map[string][]byte
	Globals    map[string]json.RawMessage
	// ReplacePinnedMaps permits the agent to remove the pins of maps whose
	// definition differs from the bytecode's.
	ReplacePinnedMaps bool
	// RestartedAt is the annotation that makes another revision of the object, although its generation stays.
	RestartedAt string
	// Members contains the programs. Only applications have several.
	Members []Member
	// Subject is the object as policies on this node see it.
	Subject policy.Subject
}

// Member is one program of an owner.
type Member struct {
	Spec
	// ID is unique within the owner. It is empty unless the owner is an
	// application. It consists of the Spec's ID and, for a repeated Spec's ID, a
	// number starting with 2.
	ID string
	// Type is the spec.type of the BpfProgram, for example "xdp" or "application".
	Type string
	// ProgramType is the type of the program, for example "xdp".
	ProgramType string
}

// OwnerOf converts a user object of a kind.
func OwnerOf(kind string, o v1alpha1.UserObject) Owner {
	common := o.GetAppCommon()
	owner := Owner{
		Key:        Key{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()},
		UID:        o.GetUID(),
		Generation: o.GetGeneration(),
		Bytecode:   common.ByteCode,
		GlobalData: common.GlobalData,
		Globals:    common.Globals,
		// Pins belong to the node, so namespaced owners can't remove them.
		ReplacePinnedMaps: o.GetNamespace() == "" && o.GetAnnotations()[v1alpha1.AnnotationReplacePinnedMaps] == "true",
		RestartedAt:       o.GetAnnotations()[v1alpha1.AnnotationRestartedAt],
	}
	application := strings.HasSuffix(kind, "Application")
	ids := userobject.MemberIDs{}
	for i, p := range userobject.Programs(o) {
		k := specOf(p, i)
		programType := strings.ToLower(string(p.Type))
		m := Member{Spec: k, Type: programType, ProgramType: programType}
		if !k.Attached() {
			m.Spec = unattached{k}
		}
		if application {
			m.Type, m.ID = "application", ids.Unique(k.ID())
		}
		owner.Members = append(owner.Members, m)
	}
	return owner
}

// Choices describes which option is used for a member if the spec sets several.
// Upstream uses the same one.
func (o Owner) Choices(m Member) []problem.Note {
	var choices []problem.Note
	if o.Bytecode.Image != nil && o.Bytecode.Path != nil {
		choices = append(choices, problem.Notef(problem.TwoBytecodes, "bytecode has both an image and a path: the image is used"))
	}
	if k, ok := m.Spec.(interface{ choices() []problem.Note }); ok {
		choices = append(choices, k.choices()...)
	}
	return choices
}

// Needs returns the combined needs of all members.
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

// SharesMaps reports whether a member uses another program's maps.
func (o Owner) SharesMaps() bool {
	return slices.ContainsFunc(o.Members, func(m Member) bool { return m.MapOwner() != nil })
}
