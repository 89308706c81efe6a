// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inspectors"
)

// liveRights describes the permissions of commands that query inspectors.
const liveRights = `The command queries the inspectors of the nodes through exec. It requires permission to list pods, and to create pods/exec, in the namespace in which bpfman is installed. Whoever has this permission can do on the nodes everything that bpfman can do.`

// liveFlags are the flags of commands that query inspectors.
type liveFlags struct {
	nodes     []string
	namespace string
}

func (f *liveFlags) addTo(command *cobra.Command, connect cluster.Connect, nodes string) {
	addNodes(command, &f.nodes, connect, nodes)
	addNamespace(command, &f.namespace)
}

// addNamespace adds the flag for the namespace of the operator and the node components.
func addNamespace(command *cobra.Command, namespace *string) {
	command.Flags().StringVar(namespace, "bpfman-namespace", cluster.DefaultComponents, "Namespace in which bpfman is installed.")
}

// inspectors returns the inspectors of the given nodes. If there are none, it uses the nodes of
// --node, or else all nodes.
func (f *liveFlags) inspectors(ctx context.Context, c *cluster.Cluster, nodes ...string) ([]inspectors.Inspector, error) {
	found, err := inspectors.Find(ctx, c, f.namespace)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		nodes = f.nodes
	}
	return found.On(nodes...)
}

// programs returns the kernel's ids of the programs of the object in the arguments, by node. Without an object, it
// returns nothing.
func (f *liveFlags) programs(ctx context.Context, c *cluster.Cluster, args []string) (map[string][]uint32, error) {
	if len(args) == 0 {
		return nil, nil
	}
	reports, err := reportsOf(ctx, c, args, f.nodes)
	if err != nil {
		return nil, err
	}
	programs := map[string][]uint32{}
	for _, report := range reports {
		status := report.GetStatus()
		if status.ProgramID != 0 {
			programs[status.Node] = append(programs[status.Node], status.ProgramID)
		}
	}
	if len(programs) == 0 {
		object := strings.Join(args, " ")
		return nil, fmt.Errorf("%s isn't loaded on any of the nodes: to find out why, run kubectl bpfman why %s", object, object)
	}
	return programs, nil
}
