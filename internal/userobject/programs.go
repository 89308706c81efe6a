// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package userobject gives the user objects of all kinds one form.
package userobject

import (
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Program is one program of a user object, in the form of a member of a BpfApplication.
type Program struct {
	v1alpha1.BpfApplicationProgram
	// Namespaced means that the object is of a namespaced kind. Containers is then present,
	// and selects only containers in the object's namespace.
	Namespaced bool
}

// Programs returns the only program of an object, or all members of an application. They can
// share memory with the object.
func Programs(o v1alpha1.UserObject) []Program {
	members, namespaced := o.Members()
	programs := make([]Program, len(members))
	for i, m := range members {
		programs[i] = Program{m, namespaced}
	}
	return programs
}

// Containers returns the selector of containers, or nil for a program that isn't attached in
// containers.
func (p Program) Containers() *v1alpha1.ContainerSelector {
	if info := p.Info(); info != nil {
		return info.ContainerSelector()
	}
	return nil
}
