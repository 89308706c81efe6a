// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Reports returns the BpfPrograms or BpfNsPrograms of a user object, sorted by node and name. There is one for
// each of its programs on each selected node. For a cluster-scoped kind, namespace is ignored.
func Reports(ctx context.Context, from client.Reader, owner Named[v1alpha1.UserObject], namespace string) ([]v1alpha1.ProgramObject, error) {
	options := []client.ListOption{client.MatchingLabels{
		v1alpha1.LabelOwnedByProgram: v1alpha1.LabelValue(owner.Name),
		v1alpha1.LabelOwnerKind:      owner.Kind.Name,
	}}
	if owner.Kind.Namespaced {
		options = append(options, client.InNamespace(namespace))
	}
	var out []v1alpha1.ProgramObject
	for _, kind := range v1alpha1.ProgramKinds {
		list, ok := kind.NewList().(client.ObjectList)
		if !ok || kind.Namespaced != owner.Kind.Namespaced {
			continue
		}
		err := Each(ctx, from, list, func(report v1alpha1.ProgramObject) error {
			out = append(out, report)
			return nil
		}, options...)
		if err != nil {
			return nil, fmt.Errorf("list the reports of %s %s: %w", owner.Kind.Name, owner.Name, err)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.ProgramObject) int {
		if byNode := strings.Compare(a.GetStatus().Node, b.GetStatus().Node); byNode != 0 {
			return byNode
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
	return out, nil
}
