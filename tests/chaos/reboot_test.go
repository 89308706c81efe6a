// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// reportsOn returns the reports of a node by their UIDs.
func (w *world) reportsOn(ctx context.Context, nodeName string) (map[string]v1alpha1.ProgramObject, error) {
	label := client.MatchingLabels{v1alpha1.LabelHostname: nodeName}
	var cluster v1alpha1.BpfProgramList
	if err := w.List(ctx, &cluster, label); err != nil {
		return nil, fmt.Errorf("list the reports of %s: %w", nodeName, err)
	}
	var namespaced v1alpha1.BpfNsProgramList
	if err := w.List(ctx, &namespaced, label); err != nil {
		return nil, fmt.Errorf("list the reports of %s: %w", nodeName, err)
	}
	all := map[string]v1alpha1.ProgramObject{}
	for i := range cluster.Items {
		all[string(cluster.Items[i].UID)] = &cluster.Items[i]
	}
	for i := range namespaced.Items {
		all[string(namespaced.Items[i].UID)] = &namespaced.Items[i]
	}
	return all, nil
}

// awaitReload waits until a node that was rebooted has loaded its programs again. The
// registry has no images meanwhile, so they come from the node's store. It doesn't wait for
// programs whose objects change at the same time, or that other reasons keep from loading.
func (w *world) awaitReload(ctx context.Context, nodeName string, before map[string]v1alpha1.ProgramObject) error {
	return await(ctx, accepted, func(ctx context.Context) error {
		now, err := w.reportsOn(ctx, nodeName)
		if err != nil {
			return err
		}
		for uid, old := range before {
			is, same := now[uid]
			if !same || condition(old) != string(v1alpha1.BpfProgCondLoaded) || is.GetStatus().OwnerGeneration != old.GetStatus().OwnerGeneration {
				continue
			}
			waits := is.GetStatus().ProgramID != 0 && is.GetStatus().LoadedAt == old.GetStatus().LoadedAt
			if waits || condition(is) == string(v1alpha1.BpfProgCondBytecodeSelectorError) || condition(is) == string(v1alpha1.BpfProgCondNone) {
				return fmt.Errorf("%s isn't loaded again without the registry: %v", is.GetName(), is.GetStatus().Conditions)
			}
		}
		return nil
	})
}

// condition returns the type of a report's condition.
func condition(o v1alpha1.ProgramObject) string {
	if conditions := o.GetStatus().Conditions; len(conditions) > 0 {
		return conditions[0].Type
	}
	return ""
}
