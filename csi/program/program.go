// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package program finds the programs that the daemon has loaded, and their
// pinned maps.
package program

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/maps"
)

var (
	// ErrNotFound is in the chain when a program or map isn't there, or not yet.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous is in the chain when a name means several user objects.
	ErrAmbiguous = errors.New("ambiguous")
)

// Query is what a pod asks for.
type Query struct {
	// Name is that of the user object, a program or an application.
	Name string
	// Namespace is the pod's own.
	Namespace string
	// Kind of the user object; empty for any.
	Kind string
}

// Program is one program loaded for a user object.
type Program struct {
	// ID is the kernel's. Of two programs the one loaded later has the higher.
	ID uint32
	// Name, Namespace and Kind are the user object's. Namespace is empty for a
	// cluster-scoped one, Kind also for programs that the agent didn't load.
	Name, Namespace, Kind string
	// Pins is the daemon's directory with the program's maps.
	Pins string
}

// Select returns the programs of the user object that the query means, newest
// first: one in the pod's namespace, else a cluster-scoped one.
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

// Pinned is a program with the names of its pinned maps.
type Pinned struct {
	Program
	Maps []string
}

// Choose picks each wanted map, or all where none are named, from the newest
// program that has it. The programs are those of one user object, newest first:
// during a reload, both the old and the new ones.
func Choose(programs []Pinned, wanted []string) ([]maps.Map, error) {
	paths := map[string]string{}
	for _, program := range slices.Backward(programs) {
		for _, name := range program.Maps {
			paths[name] = filepath.Join(program.Pins, name)
		}
	}
	available := make([]string, 0, len(paths))
	for name := range paths {
		available = append(available, name)
	}
	slices.Sort(available)
	if len(available) == 0 {
		return nil, fmt.Errorf("maps %w: program %q has no pinned maps", ErrNotFound, programs[0].Name)
	}
	if len(wanted) == 0 {
		wanted = available
	}
	chosen := make([]maps.Map, 0, len(wanted))
	for _, name := range wanted {
		path, ok := paths[name]
		if !ok {
			return nil, fmt.Errorf("map %q %w in program %q, which has: %s",
				name, ErrNotFound, programs[0].Name, strings.Join(available, ", "))
		}
		chosen = append(chosen, maps.Map{Name: name, Path: path})
	}
	return chosen, nil
}
