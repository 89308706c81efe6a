// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/hints"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// hinted waits for hints.
func hinted(t *testing.T, c client.Client, what string, check func(hints.Hints) bool) *corev1.ConfigMap {
	t.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hints.ConfigMapName}}
	envtest.Eventually(t, what, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(configMap), configMap); err != nil {
			return err
		}
		if !check(hints.Parse(configMap.Data)) {
			return fmt.Errorf("the hints are %q", configMap.Data)
		}
		return nil
	})
	return configMap
}

// The operator publishes a kind from its first object on, and reverts changes of others
// to the ConfigMap, which is deleted with the configuration.
func TestKindsAreNamed(t *testing.T) {
	c := cluster(t)
	named := func(h hints.Hints) bool { return h.Kinds["TracepointProgram"] }
	create(t, c, tracepoint("named", "nowhere"))
	configMap := hinted(t, c, "the kind to be named", named)
	if owner := metav1.GetControllerOf(configMap); owner == nil || owner.Name != configMapKey.Name {
		t.Errorf("it is owned by %v", configMap.OwnerReferences)
	}
	configMap.Data = map[string]string{"kinds": "TcProgram\nnothing", "relist": "all of them"}
	must.Succeed(t, c.Update(t.Context(), configMap))
	hinted(t, c, "an edit to be undone", named)
	must.Succeed(t, c.Delete(t.Context(), configMap))
	hinted(t, c, "it to come back", named)
}

// The operator publishes the node of a report that another client has deleted, but not
// of a report that is deleted with its object.
func TestNodesWithoutAReportAreNamed(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "robbed", map[string]string{"pool": "robbed"})
	addNode(t, c, "honest", map[string]string{"pool": "honest"})
	loaded := v1alpha1.BpfProgCondLoaded.Condition()
	robbed, honest := tracepoint("robbed", "robbed"), tracepoint("honest", "honest")
	create(t, c, robbed)
	create(t, c, honest)
	stolen := report(t, c, robbed, "robbed", loaded)
	removed := report(t, c, honest, "honest", loaded)
	shows(t, c, robbed, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	shows(t, c, honest, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	for _, o := range []client.Object{honest, removed, stolen} {
		must.Succeed(t, c.Delete(t.Context(), o))
	}
	configMap := hinted(t, c, "the node to be named", func(h hints.Hints) bool { return !h.Relist["robbed"].IsZero() })
	if at, named := hints.Parse(configMap.Data).Relist["honest"]; named {
		t.Errorf("a report that went with its object is missed, since %v", at)
	}
}
