// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Daemon is a bpfman daemon, and how many nodes run it.
type Daemon struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
}

// Daemons are the daemons of a cluster, by name.
type Daemons []Daemon

// Add counts the daemon of a node, if it is known.
func (d *Daemons) Add(node *v1alpha1.BpfNode) {
	name := node.Status.Daemon
	if name == "" {
		return
	}
	n, found := slices.BinarySearchFunc(*d, name, func(known Daemon, name string) int { return strings.Compare(known.Name, name) })
	if !found {
		*d = slices.Insert(*d, n, Daemon{Name: name})
	}
	(*d)[n].Nodes++
}

// String returns for example "bpfman v0.6 (Rust) on 3 nodes".
func (d Daemons) String() string {
	var told []string
	for _, daemon := range d {
		nodes := "nodes"
		if daemon.Nodes == 1 {
			nodes = "node"
		}
		told = append(told, fmt.Sprintf("%s on %d %s", daemon.Name, daemon.Nodes, nodes))
	}
	return strings.Join(told, ", ")
}
