// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/output"
)

var nodeMapsTable = output.Table[inventory.Map]{
	Kind: "NodeMap",
	Columns: []output.Column[inventory.Map]{
		{Name: "NODE", Cell: func(m inventory.Map) any { return m.Node }},
		{Name: "ID", Cell: func(m inventory.Map) any { return int64(m.ID) }},
		{Name: "NAME", Cell: func(m inventory.Map) any { return m.Name }},
		{Name: "TYPE", Cell: func(m inventory.Map) any { return m.Type }},
		{Name: "MEMORY", Cell: func(m inventory.Map) any { return m.MemoryBytes }},
		{Name: "PROGRAMS", Cell: func(m inventory.Map) any { return listed(m.Programs) }},
		{Name: "PODS", Cell: func(m inventory.Map) any { return listed(m.Pods) }},
		{Name: "PINS", Cell: func(m inventory.Map) any { return int64(len(m.Pins)) }},
		{Name: "PINNED", Wide: true, Cell: func(m inventory.Map) any { return strings.Join(m.Pins, ", ") }},
	},
}

// ofNodes prints all maps of nodes.
func (o mapsOptions) ofNodes(ctx context.Context, c *cluster.Cluster, streams genericiooptions.IOStreams) error {
	pods, unseen := cluster.All[corev1.Pod](ctx, c, &corev1.PodList{})
	var found []inventory.Map
	omitted := 0
	err := c.BpfNodes(ctx, o.nodes, func(node *v1alpha1.BpfNode) error {
		found = append(found, inventory.Maps(node, pods)...)
		if node.Status.Omitted != nil {
			omitted += int(node.Status.Omitted.Maps)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := withNode(nodeMapsTable, len(o.nodes)).Print(streams.Out, o.format, found); err != nil {
		return err
	}
	if !o.format.Human() {
		return nil
	}
	sum := func(of func(inventory.Map) bool) (maps int, bytes int64) {
		for _, m := range found {
			if of(m) {
				maps, bytes = maps+1, bytes+m.MemoryBytes
			}
		}
		return maps, bytes
	}
	all, bytes := sum(func(inventory.Map) bool { return true })
	remarks := []string{fmt.Sprintf("Maps: %d, with %d bytes.", all, bytes)}
	if unused, bytes := sum(inventory.Map.Unused); unused > 0 {
		remarks[0] += fmt.Sprintf(" Not used by any program or pod: %d, with %d bytes.", unused, bytes)
	}
	if stale, bytes := sum(inventory.Map.Stale); stale > 0 {
		remarks[0] += fmt.Sprintf(" Only in volumes of pods, as their program is gone: %d, with %d bytes.", stale, bytes)
	}
	if omitted > 0 {
		remarks = append(remarks, fmt.Sprintf("%d maps aren't listed: their nodes have more maps than fit in a BpfNode.", omitted))
	}
	if client.IgnoreNotFound(unseen) != nil {
		remarks = append(remarks, "Pods aren't listed: "+unseen.Error())
	}
	return remark(streams.ErrOut, remarks)
}
