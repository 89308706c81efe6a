// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package hints

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/hints"
	"github.com/bpfman/bpfman-operator/operator/deploy"
)

// A request that arrives while a pass lists the kinds is published by that pass.
func TestRelistWhileKindsAreListed(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	clock := testingclock.NewFakePassiveClock(time.Unix(5000, 0))
	r := &Reconciler{Namespace: "bpfman", Clock: clock, gone: map[string]time.Time{}}
	listed := func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		clock.SetTime(clock.Now().Add(time.Millisecond))
		r.Relist("node")
		return c.List(ctx, list, options...)
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: deploy.ConfigMapName, UID: "1"}}
	r.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).WithInterceptorFuncs(interceptor.Funcs{List: listed}).Build()
	r.own = r.Client
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	published := &corev1.ConfigMap{}
	if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: r.Namespace, Name: hints.ConfigMapName}, published); err != nil {
		t.Fatal(err)
	}
	if at, _ := hints.Parse(published.Data).For("node"); at.IsZero() {
		t.Errorf("the request is lost: %v", published.Data)
	}
}
