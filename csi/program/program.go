// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package program finds the programs that the daemon has loaded, and their pinned maps.
package program

import (
	"cmp"
	"errors"
	"fmt"
	stdmaps "maps"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/maps"
)

var (
	// ErrNotFound is in the error chain if a program or map doesn't exist, or doesn't
	// exist yet.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous is in the error chain if several user objects have the name.
	ErrAmbiguous = errors.New("ambiguous")
)

// Query describes the program that a pod requests.
type Query struct {
	// Name is the name of the user object, which is a program object or an application.
	Name string
	// Namespace is the namespace of the pod.
	Namespace string
	// Kind is the kind of the user object. If it is empty, any kind matches.
	Kind string
}

// Program is one program that was loaded for a user object.
type Program struct {
	// ID is the kernel's id. Programs that were loaded later have higher ids.
	ID uint32
	// Name, Namespace, and Kind identify the user object. Namespace is empty for a
	// cluster-scoped object. Kind is empty for programs that the agent didn't load.
	Name, Namespace, Kind string
	// Pins is the directory where the daemon pins the program's maps.
	Pins string
}

// Select returns the programs of the user object that matches the query, newest first.
// An object in the pod's namespace takes precedence over a cluster-scoped one.
func Select(programs []Program, query Query) ([]Program, error) {
	var own, cluster []Program
	for _, program := range programs {
		switch {
		case program.Name != query.Name || query.Kind != "" && program.Kind != query.Kind:
		case program.Namespace == query.Namespace:
			own = append(own, program)
		case program.Namespace == "":
			cluster = append(cluster, program)
		}
	}
	found := own
	if len(found) == 0 {
		found = cluster
	}
	if len(found) == 0 {
		kind := cmp.Or(query.Kind, "program")
		return nil, fmt.Errorf("%s %q %w among the programs loaded on this node: none in namespace %q and none cluster-scoped",
			kind, query.Name, ErrNotFound, query.Namespace)
	}
	if kinds := kindsOf(found); len(kinds) > 1 {
		return nil, fmt.Errorf("program %q is %w: there are %s; name one of these kinds in the volume attribute %s",
			query.Name, ErrAmbiguous, strings.Join(kinds, ", "), v1alpha1.VolumeAttributeKind)
	}
	slices.SortFunc(found, func(a, b Program) int { return cmp.Compare(b.ID, a.ID) })
	return found, nil
}

func kindsOf(programs []Program) []string {
	var kinds []string
	for _, program := range programs {
		kinds = append(kinds, cmp.Or(program.Kind, "one without a kind"))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Pinned is a program with the maps that a volume can have.
type Pinned struct {
	Program
	Maps []maps.Map
}

// Choose returns each wanted map, or all maps if wanted is empty, from the newest
// program that has it. The programs belong to one user object, and are sorted, newest
// first. During a reload, they include both the old and the new programs.
func Choose(programs []Pinned, wanted []string) ([]maps.Map, error) {
	found := map[string]maps.Map{}
	for _, program := range slices.Backward(programs) {
		for _, m := range program.Maps {
			found[m.Name] = m
		}
	}
	available := slices.Sorted(stdmaps.Keys(found))
	if len(available) == 0 {
		return nil, fmt.Errorf("maps %w: program %q has none; for its global variables, name a section, such as .bss", ErrNotFound, programs[0].Name)
	}
	if len(wanted) == 0 {
		wanted = available
	}
	chosen := make([]maps.Map, 0, len(wanted))
	for _, name := range wanted {
		m, ok := found[name]
		if !ok {
			return nil, fmt.Errorf("map %q %w in program %q, which has: %s",
				name, ErrNotFound, programs[0].Name, strings.Join(available, ", "))
		}
		chosen = append(chosen, m)
	}
	return chosen, nil
}
