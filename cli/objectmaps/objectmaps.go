// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package objectmaps lists the maps of an object of bpfman on each node. It combines what agents report with
// what inspectors see.
package objectmaps

import (
	"cmp"
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/globals"
)

// Map is a map of an object on a node.
type Map struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// Path is the path of its pin on the node. It is empty for a section of global variables, such as .bss, which
	// isn't pinned.
	Path string `json:"path"`
	// Functions are the functions of the object's programs that use the map.
	Functions []string `json:"functions"`
	// OwnerID is the kernel's id of the program that the map is shared from. It is absent if the map belongs to
	// the object.
	OwnerID *uint32 `json:"ownerID,omitempty"`
	// Kernel is the map as an inspector sees it, or nil if no inspector does.
	Kernel *v1alpha1.BpfNodeMap `json:"kernel,omitempty"`
}

// List lists the maps in reports, by node and name. nodes contains the BpfNodes that could be read, without which
// sections of global variables aren't known.
func List(reports []v1alpha1.ProgramObject, nodes map[string]*v1alpha1.BpfNode) []Map {
	// The programs of an object come from one object file, and share the maps that have the same name.
	type key struct{ node, name string }
	found := map[key]int{}
	var all []Map
	for _, report := range reports {
		status := report.GetStatus()
		add := func(m Map) {
			k := key{status.Node, m.Name}
			i, ok := found[k]
			if !ok {
				i, found[k] = len(all), len(all)
				m.Node = status.Node
				all = append(all, m)
			}
			if !slices.Contains(all[i].Functions, status.Function) {
				all[i].Functions = append(all[i].Functions, status.Function)
			}
		}
		node := nodes[status.Node]
		for name, path := range report.GetSpec().Maps {
			pinned := seen(node, func(m *v1alpha1.BpfNodeMap) bool { return slices.Contains(m.Pins, path) })
			add(Map{Name: name, Path: path, OwnerID: status.MapOwnerID, Kernel: pinned})
		}
		for _, id := range status.MapIDs {
			variables := seen(node, func(m *v1alpha1.BpfNodeMap) bool { return m.ID == id && globals.IsSection(m.Name) })
			if variables != nil {
				add(Map{Name: variables.Name, Kernel: variables})
			}
		}
	}
	for _, m := range all {
		slices.Sort(m.Functions)
	}
	slices.SortFunc(all, func(a, b Map) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path))
	})
	return all
}

// seen returns the first map that an inspector sees and that matches, or nil.
func seen(node *v1alpha1.BpfNode, matches func(*v1alpha1.BpfNodeMap) bool) *v1alpha1.BpfNodeMap {
	if node == nil {
		return nil
	}
	for i := range node.Status.Maps {
		if m := &node.Status.Maps[i]; matches(m) {
			return m
		}
	}
	return nil
}
