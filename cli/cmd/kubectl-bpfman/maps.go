// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/objectmaps"
	"github.com/bpfman/bpfman-operator/cli/output"
)

const mapsLong = `List the maps of an object on each node where it is loaded: the kernel ID, type, and size of each map, and where it is pinned.

Without an object, and with --node, the command lists all maps in the kernels of these nodes, no matter what created them: the memory of each map, the programs that use it, and the pods that mount it. A map without programs and pods only takes memory.

The command requires permission to list the object's reports (bpfprograms or bpfnsprograms). To show IDs, types, and sizes, it also requires permission to get bpfnodes, and an inspector on the node. Without an object, it requires permission to get bpfnodes; to show pods, also to list pods in all namespaces.`

const mapsExample = `  # List the maps of a program, with their paths
  kubectl bpfman maps tcxprogram/counter -o wide

  # Show the content of one of them
  kubectl bpfman dump tcxprogram/counter tcx_stats_map

  # List all maps of a node, those with the most memory last
  kubectl bpfman maps --node worker-1 --sort-by memory`

type mapsOptions struct {
	nodes  []string
	format *output.Flags
}

func mapsCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := mapsOptions{format: output.NewFlags()}
	command := &cobra.Command{
		Use:               "maps (KIND/NAME | --node NODE)",
		Short:             "List the maps of an object, node by node, or all maps of a node",
		Long:              mapsLong,
		Example:           mapsExample,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeUserObject(connect),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), connect, streams, args) },
	}
	addNodes(command, &o.nodes, connect, "Nodes whose maps to list. By default, all that the object is loaded on.")
	o.format.AddTo(command, append(mapsTable.Keys(), nodeMapsTable.Keys()...)...)
	return command
}

// kernel returns a cell with data from an inspector.
func kernel(of func(*v1alpha1.BpfNodeMap) any) func(objectmaps.Map) any {
	return func(m objectmaps.Map) any {
		if m.Kernel == nil {
			return nil
		}
		return of(m.Kernel)
	}
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

var mapsTable = output.Table[objectmaps.Map]{
	Kind: "ObjectMap",
	Columns: []output.Column[objectmaps.Map]{
		{Name: "NODE", Cell: func(m objectmaps.Map) any { return m.Node }},
		{Name: "NAME", Cell: func(m objectmaps.Map) any { return m.Name }},
		{Name: "ID", Cell: kernel(func(m *v1alpha1.BpfNodeMap) any { return int64(m.ID) })},
		{Name: "TYPE", Cell: kernel(func(m *v1alpha1.BpfNodeMap) any { return m.Type })},
		{Name: "KEY", Cell: kernel(func(m *v1alpha1.BpfNodeMap) any { return int64(m.KeySize) })},
		{Name: "VALUE", Cell: kernel(func(m *v1alpha1.BpfNodeMap) any { return int64(m.ValueSize) })},
		{Name: "ENTRIES", Cell: kernel(func(m *v1alpha1.BpfNodeMap) any { return int64(m.MaxEntries) })},
		{Name: "MEMORY", Cell: kernel(func(m *v1alpha1.BpfNodeMap) any {
			if m.MemoryBytes == 0 {
				return nil
			}
			return m.MemoryBytes
		})},
		{Name: "FUNCTIONS", Wide: true, Cell: func(m objectmaps.Map) any { return strings.Join(m.Functions, ", ") }},
		{Name: "SHARED FROM", Wide: true, Cell: func(m objectmaps.Map) any {
			if m.OwnerID == nil {
				return ""
			}
			return "program " + number(*m.OwnerID)
		}},
		{Name: "PINNED", Wide: true, Cell: func(m objectmaps.Map) any { return m.Path }},
	},
}

func (o mapsOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams, args []string) error {
	if len(args) == 0 && len(o.nodes) == 0 {
		return errors.New("specify an object, such as tcxprogram/counter, or a node with --node")
	}
	c, err := connect()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return o.ofNodes(ctx, c, streams)
	}
	reports, err := reportsOf(ctx, c, args, o.nodes)
	if err != nil {
		return err
	}
	nodes, unseen := nodesOf(ctx, c, reports)
	listed := objectmaps.List(reports, nodes)
	if err := mapsTable.Print(streams.Out, o.format, listed); err != nil {
		return err
	}
	unseen = append(unseen, unreported(listed, nodes)...)
	switch {
	case len(reports) > 0 && len(listed) == 0:
		unseen = append(unseen, "none of its maps is pinned; global variables are listed when the inspector of a node has found them")
	case len(reports) == 0:
		unseen = append(unseen, fmt.Sprintf("%s isn't loaded on any node: to find out why, run kubectl bpfman why %s", args[0], strings.Join(args, " ")))
	}
	return remark(streams.ErrOut, unseen)
}

// unreported says which maps have no types and sizes yet, although their nodes have BpfNodes.
func unreported(listed []objectmaps.Map, nodes map[string]*v1alpha1.BpfNode) []string {
	count := 0
	for _, m := range listed {
		if m.Kernel == nil && nodes[m.Node] != nil {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	return []string{fmt.Sprintf("maps whose types and sizes aren't known: %d; inspectors report new maps within 10 seconds", count)}
}

// nodesOf reads the BpfNodes of the nodes that have reports. It returns the first reasons, if some can't be read.
func nodesOf(ctx context.Context, from client.Reader, reports []v1alpha1.ProgramObject) (map[string]*v1alpha1.BpfNode, []string) {
	nodes := map[string]*v1alpha1.BpfNode{}
	var unseen []string
	for _, r := range reports {
		name := r.GetStatus().Node
		if _, known := nodes[name]; known {
			continue
		}
		nodes[name] = nil
		var node v1alpha1.BpfNode
		if err := from.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			unseen = append(unseen, fmt.Sprintf("failed to get types and sizes on node %s: %v", name, err))
			continue
		}
		nodes[name] = &node
	}
	const told = 3
	if more := len(unseen) - told; more > 0 {
		unseen = append(unseen[:told], fmt.Sprintf("and on %d more nodes", more))
	}
	return nodes, unseen
}
