// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// BpfNodes hands the BpfNodes of some nodes to visit, or, if none is named, of all. A BpfNode has up to a megabyte: visit
// shouldn't keep all of many.
func BpfNodes(ctx context.Context, from client.Reader, names []string, visit func(*v1alpha1.BpfNode) error) error {
	for _, name := range names {
		var node v1alpha1.BpfNode
		if err := from.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return fmt.Errorf("get the BpfNode of node %s: %w", name, err)
		}
		if err := visit(&node); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		return nil
	}
	if err := Each(ctx, from, &v1alpha1.BpfNodeList{}, visit, client.Limit(bpfNodesPage)); err != nil {
		return fmt.Errorf("list BpfNodes: %w", err)
	}
	return nil
}

// bpfNodesPage is how many a request asks for.
const bpfNodesPage = 50
