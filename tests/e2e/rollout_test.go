// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/tests/must"
)

func configMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "bpfman-config"}}
}

func operatorDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "bpfman-operator"}}
}

func nodeComponents() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "bpfman-daemon"}}
}

// get reads an object.
func get[O client.Object](ctx context.Context, t *testing.T, o O) O {
	t.Helper()
	if err := under.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatalf("get %T %s: %v", o, o.GetName(), err)
	}
	return o
}

// deployed is the deployed state of bpfman: the generations of its Deployment and its
// DaemonSet, and the pods of both.
type deployed struct {
	operator, components         int64
	operatorPods, componentsPods []types.UID
}

func whatIsDeployed(ctx context.Context, t *testing.T) deployed {
	t.Helper()
	d := deployed{
		operator: get(ctx, t, operatorDeployment()).Generation, components: get(ctx, t, nodeComponents()).Generation,
	}
	var pods corev1.PodList
	must.Succeed(t, under.List(ctx, &pods, client.InNamespace(bpfmanSpace)))
	for _, pod := range pods.Items {
		if pod.Labels["name"] == "bpfman-daemon" {
			d.componentsPods = append(d.componentsPods, pod.UID)
		} else {
			d.operatorPods = append(d.operatorPods, pod.UID)
		}
	}
	slices.Sort(d.operatorPods)
	slices.Sort(d.componentsPods)
	return d
}

// checkOnly checks that one edit rolled out only the operator, or only the node components.
func (d deployed) checkOnly(ctx context.Context, t *testing.T, rolled string) {
	t.Helper()
	now, want := whatIsDeployed(ctx, t), d
	switch rolled {
	case "operator":
		want.operator++
		want.operatorPods = now.operatorPods
	case "node components":
		want.components++
		want.componentsPods = now.componentsPods
		if slices.ContainsFunc(d.componentsPods, func(pod types.UID) bool { return slices.Contains(now.componentsPods, pod) }) {
			t.Errorf("there are pods of before: %v, then %v", d.componentsPods, now.componentsPods)
		}
	}
	if !reflect.DeepEqual(now, want) {
		t.Errorf("rolled is not just %q: %+v, then %+v", rolled, d, now)
	}
}

// edit changes keys of the ConfigMap, and waits until the node components are rolled out.
func edit(ctx context.Context, t *testing.T, data map[string]string) {
	t.Helper()
	before := get(ctx, t, nodeComponents())
	modify(ctx, t, configMap(), func(c *corev1.ConfigMap) { maps.Copy(c.Data, data) })
	awaitNodeComponents(ctx, t, func(d *appsv1.DaemonSet) bool { return d.Generation > before.Generation })
}

// restoreConfig restores the current ConfigMap and node components when the test ends.
func restoreConfig(ctx context.Context, t *testing.T) {
	t.Helper()
	data, template := get(ctx, t, configMap()).Data, get(ctx, t, nodeComponents()).Spec.Template
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		modify(ctx, t, configMap(), func(c *corev1.ConfigMap) { c.Data = data })
		awaitNodeComponents(ctx, t, func(d *appsv1.DaemonSet) bool { return reflect.DeepEqual(d.Spec.Template, template) })
	})
}

// awaitNodeComponents waits until the DaemonSet satisfies a condition, and exactly its
// current pods exist and are ready.
func awaitNodeComponents(ctx context.Context, t *testing.T, wanted func(*appsv1.DaemonSet) bool) {
	t.Helper()
	awaitFor(ctx, t, recovery, "the node components are rolled out", func(ctx context.Context) (bool, string) {
		d := nodeComponents()
		if err := under.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return false, err.Error()
		}
		s := d.Status
		if s.ObservedGeneration != d.Generation || !wanted(d) {
			return false, fmt.Sprintf("generation %d, status %+v", d.Generation, s)
		}
		pods, err := componentPods(ctx)
		if err != nil {
			return false, err.Error()
		}
		var states []string
		for i := range pods {
			states = append(states, podState(&pods[i]))
		}
		n := int(s.DesiredNumberScheduled)
		ok := n > 0 && n == int(s.UpdatedNumberScheduled) && n == int(s.NumberReady) && n == len(pods)
		return ok, fmt.Sprintf("%+v; %s", s, strings.Join(states, "; "))
	})
}

func componentPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := under.List(ctx, &pods, client.InNamespace(bpfmanSpace), client.MatchingLabels{"name": "bpfman-daemon"}); err != nil {
		return nil, fmt.Errorf("list the pods of the node components: %w", err)
	}
	return pods.Items, nil
}

// setOperatorImage changes the operator's image, and waits until it runs.
func setOperatorImage(ctx context.Context, t *testing.T, image string) {
	t.Helper()
	changeOperator(ctx, t, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
}

// changeOperator changes the operator's Deployment, and waits until exactly its replicas run.
func changeOperator(ctx context.Context, t *testing.T, change func(*appsv1.Deployment)) {
	t.Helper()
	d := operatorDeployment()
	modify(ctx, t, d, change)
	awaitFor(ctx, t, recovery, "the operator is rolled out", func(ctx context.Context) (bool, string) {
		if err := under.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return false, err.Error()
		}
		var pods corev1.PodList
		if err := under.List(ctx, &pods, client.InNamespace(bpfmanSpace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return false, err.Error()
		}
		s, n := d.Status, *d.Spec.Replicas
		ok := s.ObservedGeneration == d.Generation && s.UpdatedReplicas == n && s.AvailableReplicas == n && len(pods.Items) == int(n)
		return ok, fmt.Sprintf("%+v, %d pods", s, len(pods.Items))
	})
}
