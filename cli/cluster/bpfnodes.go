// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// BpfNodes calls visit with the BpfNodes of the named nodes. If names is empty, it visits all BpfNodes, but without
// their maps. A BpfNode can have a size of a megabyte, so visit shouldn't keep them.
func (c *Cluster) BpfNodes(ctx context.Context, names []string, visit func(*v1alpha1.BpfNode) error) error {
	for _, name := range names {
		var node v1alpha1.BpfNode
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
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
	return decodeItems(body, func(n bpfNodeWithoutMaps) error {
		return visit(&v1alpha1.BpfNode{ObjectMeta: n.ObjectMeta, Status: n.Status.BpfNodeStatus})
	})
}

// bpfNodeWithoutMaps decodes a BpfNode without its maps. The decoder skips elements that exceed an array's length.
type bpfNodeWithoutMaps struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		v1alpha1.BpfNodeStatus
		Maps [0]struct{} `json:"maps"`
	} `json:"status"`
}

// decodeItems calls visit with each item of a list in JSON, one at a time.
func decodeItems[T any](list io.Reader, visit func(T) error) error {
	decoder := json.NewDecoder(list)
	if err := expect(decoder, json.Delim('{')); err != nil {
		return err
	}
	for {
		key, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("decode a list: %w", err)
		}
		if key == "items" {
			break
		}
		var skipped json.RawMessage
		if err := decoder.Decode(&skipped); err != nil {
			return fmt.Errorf("decode a list: %w", err)
		}
	}
	if err := expect(decoder, json.Delim('[')); err != nil {
		return err
	}
	for decoder.More() {
		var item T
		if err := decoder.Decode(&item); err != nil {
			return fmt.Errorf("decode an item of a list: %w", err)
		}
		if err := visit(item); err != nil {
			return err
		}
	}
	return expect(decoder, json.Delim(']'))
}

func expect(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("decode a list: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return fmt.Errorf("decode a list: %w", err)
	case token != want:
		return fmt.Errorf("decode a list: %v where %v was expected", token, want)
	}
	return nil
}
