// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/takeover"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/upstream"
)

// rival simulates another operator, which reverts changes to an object immediately, until the test ends or stop is
// called. It counts its writes.
func rival(t *testing.T, c client.Client, object client.Object, putBack func(client.Object) bool, write func(context.Context, client.Object) error) (writes *atomic.Int32, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	writes, ended := &atomic.Int32{}, make(chan struct{})
	go func() {
		defer close(ended)
		_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			// It retries after a failure, like a controller.
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err == nil && putBack(object) {
				if write(ctx, object) == nil {
					writes.Add(1)
				}
			}
			return false, nil
		})
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return writes, stop
}

// mostWrites is the maximum number of the rival's writes until it is detected, and shortly afterwards. Without a
// limit, there would be hundreds.
const mostWrites = 20

// Two operators don't overwrite each other in a tight loop. This one reports the other, and slows down.
func TestTwoOperators(t *testing.T) {
	c := cluster(t)
	update := func(ctx context.Context, o client.Object) error { return c.Update(ctx, o, upstream.FieldManager) }
	noticed := func(t *testing.T, writes *atomic.Int32, about client.Object, words string) {
		t.Helper()
		envtest.Eventually(t, "an Event says so", hasEvent(c, about, takeover.ReasonAnotherOperator, func(note string) bool {
			return strings.Contains(note, words)
		}))
		// Without a limit, it would have been reverted many more times.
		envtest.Eventually(t, "another takes its turn", func(context.Context) error {
			if n := writes.Load(); n < 6 {
				return fmt.Errorf("%d writes", n)
			}
			return nil
		})
		if n := writes.Load(); n > mostWrites {
			t.Errorf("the other operator wrote %d times", n)
		}
	}

	t.Run("DaemonSet", func(t *testing.T) {
		configMap := alone(t, c)
		theirs := upstream.DaemonSet(namespace, standIn)
		writes, stop := rival(t, c, getDaemonSet(t, c), func(o client.Object) bool {
			ds := o.(*appsv1.DaemonSet) //nolint:errcheck // it has this type
			changed := image(ds, "bpfman-agent") != standIn.Image
			ds.Spec.Template = theirs.Spec.Template
			return changed
		}, update)
		noticed(t, writes, configMap, "DaemonSet bpfman-daemon (by field manager bpfman-operator (Update))")
		stop()
		envtest.Eventually(t, "without the other it is ours", isOurs(c))
	})
	t.Run("finalizer of the ConfigMap", func(t *testing.T) {
		configMap := alone(t, c)
		writes, _ := rival(t, c, configMap.DeepCopy(), func(o client.Object) bool {
			absent := !slices.Contains(o.GetFinalizers(), upstream.Finalizer)
			o.SetFinalizers([]string{upstream.Finalizer})
			return absent
		}, update)
		noticed(t, writes, configMap, "ConfigMap bpfman-config (by upstream's operator, which adds its finalizer again)")
	})
	t.Run("finalizer of an object", func(t *testing.T) {
		o := tracepoint("rival-finalizer", "rival")
		create(t, c, o)
		writes, stop := rival(t, c, tracepoint(o.Name, ""), func(o client.Object) bool {
			absent := !slices.Contains(o.GetFinalizers(), upstream.Finalizer)
			o.SetFinalizers([]string{upstream.Finalizer})
			return absent
		}, update)
		noticed(t, writes, getConfigMap(t, c), "The finalizer "+upstream.Finalizer+" reappears on TracepointProgram /rival-finalizer")
		// Its deletion isn't delayed.
		stop()
		must.Succeed(t, c.Delete(t.Context(), o))
		envtest.Eventually(t, "the object goes", gone(c, o))
	})
	t.Run("status of an object", func(t *testing.T) {
		addNode(t, c, "rival-a", map[string]string{"pool": "rival-status"})
		o := tracepoint("rival-status", "rival-status")
		create(t, c, o)
		report(t, c, o, "rival-a", v1alpha1.BpfProgCondLoaded.Condition())
		shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
		writes, stop := rival(t, c, tracepoint(o.Name, ""), func(o client.Object) bool {
			object := o.(*v1alpha1.TracepointProgram) //nolint:errcheck // it has this type
			conditions := object.Status.Conditions
			object.Status.Conditions = upstream.Conditions(false)
			return len(conditions) > 0 && conditions[0].Type != object.Status.Conditions[0].Type
		}, func(ctx context.Context, o client.Object) error {
			return c.Status().Update(ctx, o, upstream.FieldManager)
		})
		noticed(t, writes, getConfigMap(t, c), "TracepointProgram /rival-status: Another client writes the status")
		noticed(t, writes, o, "Another client writes the status")
		stop()
		shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	})
}

// An operator that isn't elected reports the leader, unless that is one of its replicas.
func TestAnotherOperatorLeads(t *testing.T) {
	c := cluster(t)
	const other = "upstream-operator"
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
	create(t, c, space)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: configMapKey.Name}}
	create(t, c, config)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "bpfman-operator-5d4f-x", Labels: map[string]string{"control-plane": "controller-manager"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "bpfman-operator", Image: standIn.Image}}},
	}
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "default"}})
	create(t, c, pod)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: upstream.LeaseName}}
	now := metav1.NowMicro()
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new(pod.Name + "_5be6"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(0)),
	}
	create(t, c, lease)

	mgr, err := ctrl.NewManager(envtest.Config(t), ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElection: true, LeaderElectionID: upstream.LeaseName, LeaderElectionNamespace: other,
	})
	if err != nil {
		t.Fatal(err)
	}
	watch := &takeover.Lease{
		Live: mgr.GetAPIReader(), Lease: client.ObjectKeyFromObject(lease), Poll: 100 * time.Millisecond,
		Announcer: &takeover.Announcer{Client: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("bpfman-operator"), ConfigMap: client.ObjectKeyFromObject(config)},
	}
	must.Succeed(t, watch.SetupWithManager(mgr))
	stopped := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	envtest.Eventually(t, "an Event says who leads", hasEvent(c, config, takeover.ReasonAnotherOperator, func(note string) bool {
		return strings.Contains(note, "pod bpfman-operator-5d4f-x of another operator holds the Lease "+upstream.LeaseName)
	}))
}
