// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package objectmaps lists the maps of an object of bpfman on each node. It combines what agents report with
// what inspectors see.
package objectmaps

import (
	"cmp"
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Map is a map of an object on a node.
type Map struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// Path is the path of its pin on the node.
	Path string `json:"path"`
	// Functions are the functions of the object's programs that use the map.
	Functions []string `json:"functions"`
	// OwnerID is the kernel's id of the program that the map is shared from. It is absent if the map belongs to
	// the object.
	OwnerID *uint32 `json:"ownerID,omitempty"`
	// Kernel is the map as an inspector sees it, or nil if no inspector does.
	Kernel *v1alpha1.BpfNodeMap `json:"kernel,omitempty"`
}

// List lists the maps in reports, by node and name. nodes contains the BpfNodes that could be read.
func List(reports []v1alpha1.ProgramObject, nodes map[string]*v1alpha1.BpfNode) []Map {
	type key struct{ node, path string }
	found := map[key]int{}
	var all []Map
	for _, report := range reports {
		status := report.GetStatus()
		for name, path := range report.GetSpec().Maps {
			k := key{status.Node, path}
			i, ok := found[k]
			if !ok {
				i, found[k] = len(all), len(all)
				all = append(all, Map{Node: status.Node, Name: name, Path: path, OwnerID: status.MapOwnerID, Kernel: seen(nodes[status.Node], path)})
			}
			if !slices.Contains(all[i].Functions, status.Function) {
				all[i].Functions = append(all[i].Functions, status.Function)
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

// seen returns the map that is pinned at a path.
func seen(node *v1alpha1.BpfNode, path string) *v1alpha1.BpfNodeMap {
	if node == nil {
		return nil
	}
	for i := range node.Status.Maps {
		if m := &node.Status.Maps[i]; slices.Contains(m.Pins, path) {
			return m
		}
	}
	return nil
}
