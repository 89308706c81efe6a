// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/liststream"
)

// missingBpfNodeError says why there can be no BpfNode of a node.
type missingBpfNodeError struct {
	node string
	err  error
}

func (e *missingBpfNodeError) Error() string {
	return fmt.Sprintf("node %s has no BpfNode: there is no such node, or its inspector is turned off or hasn't reported yet", e.node)
}

func (e *missingBpfNodeError) Unwrap() error { return e.err }

// BpfNodes calls visit with the BpfNodes of the named nodes. If names is empty, it visits all BpfNodes, but without
// their maps. A BpfNode can have a size of a megabyte, so visit shouldn't keep them.
func (c *Cluster) BpfNodes(ctx context.Context, names []string, visit func(*v1alpha1.BpfNode) error) error {
	for _, name := range names {
		var node v1alpha1.BpfNode
		err := c.Get(ctx, client.ObjectKey{Name: name}, &node)
		if apierrors.IsNotFound(err) {
			return &missingBpfNodeError{name, err}
		}
		if err != nil {
			return fmt.Errorf("get the BpfNode of node %s: %w", name, err)
		}
		if err := visit(&node); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		return nil
	}
	if err := c.allBpfNodes(ctx, visit); err != nil {
		return fmt.Errorf("list BpfNodes: %w", err)
	}
	return nil
}

// allBpfNodes decodes each BpfNode as it arrives, while the API server encodes the next. It doesn't use pages: the
// API server has the whole list in its cache, but reads the pages after the first from etcd if the resource
// version of the first page was compacted. That costs several times as much.
func (c *Cluster) allBpfNodes(ctx context.Context, visit func(*v1alpha1.BpfNode) error) (err error) {
	body, err := c.API.Get().Resource(v1alpha1.NodeKind.Resource()).Stream(ctx)
	if err != nil {
		return err //nolint:wrapcheck // the caller adds what was listed
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	_, err = liststream.EachItem(body, func(item jsontext.Value) error {
		node, err := DecodeWithoutMaps(item)
		if err != nil {
			return err
		}
		return visit(node)
	})
	return err
}

// DecodeWithoutMaps decodes a BpfNode without its maps.
func DecodeWithoutMaps(object []byte) (*v1alpha1.BpfNode, error) {
	var node struct {
		metav1.ObjectMeta `json:"metadata"`

		Status struct {
			v1alpha1.BpfNodeStatus
			// The decoder skips elements that exceed an array's length.
			Maps [0]struct{} `json:"maps"`
		} `json:"status"`
	}
	if err := json.Unmarshal(object, &node); err != nil {
		return nil, fmt.Errorf("decode a BpfNode: %w", err)
	}
	return &v1alpha1.BpfNode{ObjectMeta: node.ObjectMeta, Status: node.Status.BpfNodeStatus}, nil
}
