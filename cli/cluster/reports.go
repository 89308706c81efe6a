// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Reports returns the BpfPrograms or BpfNsPrograms of a user object, sorted by node and name. There is one for
// each of its programs on each selected node. Their statuses have the names of the nodes.
func Reports(ctx context.Context, from client.Reader, owner v1alpha1.BpfNodeOwner) ([]v1alpha1.ProgramObject, error) {
	labels := client.MatchingLabels{
		v1alpha1.LabelOwnedByProgram: v1alpha1.LabelValue(owner.Name),
		v1alpha1.LabelOwnerKind:      owner.Kind,
	}
	var out []v1alpha1.ProgramObject
	for _, kind := range v1alpha1.ProgramKinds {
		list, ok := kind.NewList().(client.ObjectList)
		if !ok || kind.Namespaced != (owner.Namespace != "") {
			continue
		}
		err := Each(ctx, from, list, func(report v1alpha1.ProgramObject) error {
			status := report.GetStatus()
			if status.Node == "" { // the agent hasn't written the status yet
				status.Node = v1alpha1.NodeOfLabel(report.GetLabels()[v1alpha1.LabelHostname])
			}
			if status.Node != "" {
				out = append(out, report)
			}
			return nil
		}, client.InNamespace(owner.Namespace), labels)
		if err != nil {
			return nil, fmt.Errorf("list the reports of %s %s: %w", owner.Kind, owner.Name, err)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.ProgramObject) int {
		return cmp.Or(strings.Compare(a.GetStatus().Node, b.GetStatus().Node), strings.Compare(a.GetName(), b.GetName()))
	})
	return out, nil
}
