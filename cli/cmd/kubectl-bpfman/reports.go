// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
)

// reportsOf returns the reports about the object in the arguments, from the given nodes. If nodes is empty, it
// returns the reports from all nodes.
func reportsOf(ctx context.Context, c *cluster.Cluster, object, nodes []string) ([]v1alpha1.ProgramObject, error) {
	owner, err := c.Find(ctx, object)
	if err != nil {
		return nil, err
	}
	reports, err := cluster.Reports(ctx, c, owner)
	return slices.DeleteFunc(reports, func(r v1alpha1.ProgramObject) bool {
		return len(nodes) > 0 && !slices.Contains(nodes, r.GetStatus().Node)
	}), err
}
