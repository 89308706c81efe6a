// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// function contains what programs of all types have: the entry function, and
// the selector of the map owner. Its methods are right for most types. The others
// have their own.
type function struct {
	kind     gobpfman.BpfmanProgramType
	name     string
	mapOwner metav1.LabelSelector
	attached bool
}

func functionOf(kind gobpfman.BpfmanProgramType, c v1alpha1.BpfProgramCommon) function {
	return function{kind, c.BpfFunctionName, c.MapOwnerSelector, c.Attach == nil || *c.Attach}
}

func (f function) Attached() bool { return f.attached }

func (f function) LoadInfo() *gobpfman.LoadInfo {
	return &gobpfman.LoadInfo{Name: f.name, ProgramType: f.kind}
}

func (function) Needs() Needs { return Needs{} }

// unattached is a program that is only loaded.
type unattached struct{ Spec }

func (unattached) Needs() Needs { return Needs{} }

// ReturnProbe implements [ReturnProbe].
func (u unattached) ReturnProbe() string {
	if probe, can := u.Spec.(ReturnProbe); can {
		return probe.ReturnProbe()
	}
	return ""
}

func (unattached) AttachPoints(Node) ([]AttachPoint, error) { return nil, nil }

func (f function) MapOwner() *metav1.LabelSelector {
	if len(f.mapOwner.MatchLabels) == 0 && len(f.mapOwner.MatchExpressions) == 0 {
		return nil // Go clients write {} for an empty selector
	}
	return &f.mapOwner
}

func (f function) Incomplete() error { return whereEmpty("bpffunctionname", f.name) }

// whereEmpty returns an error if the value of a field is empty.
func whereEmpty(field, value string) error {
	if value != "" {
		return nil
	}
	return problem.Errorf(problem.FieldEmpty, "%s is empty", field)
}

// unlessLoadedOnly is [whereEmpty] for a field that only attaching needs.
func (f function) unlessLoadedOnly(field, value string) error {
	if !f.attached {
		return nil
	}
	return whereEmpty(field, value)
}

func containersOf(s *v1alpha1.ContainerSelector, namespaced bool) *containerSelector {
	if s == nil {
		return nil
	}
	return &containerSelector{*s, namespaced}
}

// numbers converts actions to the daemon's numbers, without duplicates.
func numbers[T ~string](of map[T]int32, words []T) []int32 {
	out := make([]int32, 0, len(words))
	for _, w := range words {
		if n, ok := of[w]; ok && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}
