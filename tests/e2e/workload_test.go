// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
)

const workloadMap = "tracepoint_stats_map"

// workload is what users have on a cluster when bpfman is uninstalled: cluster-scoped
// programs, an application, and a namespace with a program and a pod with a volume of
// maps. The test removes it explicitly.
type workload struct {
	tcx         *v1alpha1.TcxProgram
	tracepoint  *v1alpha1.TracepointProgram
	application *v1alpha1.BpfApplication
	// xdp fails on kernels that can't attach it, and must be removed all the same.
	xdp        *v1alpha1.XdpProgram
	namespaced *v1alpha1.TcxNsProgram
	pod        *corev1.Pod
	space      *corev1.Namespace
	// loaded is what the daemons had loaded for all of these.
	loaded []node.Program
}

func newWorkload() *workload {
	const space = "e2e-lifecycle"
	w := &workload{
		tcx:         tcx("e2e-lifecycle-tcx", "lo"),
		tracepoint:  tracepoint("e2e-lifecycle-tracepoint"),
		application: application("e2e-lifecycle-app"),
		xdp:         xdp(metav1.ObjectMeta{Name: "e2e-lifecycle-xdp"}, on("lo")),
		namespaced:  tcxNs(space, "e2e-lifecycle-tcx"),
		space:       &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}},
	}
	w.pod = reader(space, "reader", w.tracepoint.Name, workloadMap)
	w.pod.Labels = maps.Clone(targetPods.MatchLabels)
	// The namespace controller waits longer for pods with a longer grace period.
	w.pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	return w
}

func (w *workload) attached() []v1alpha1.UserObject {
	return []v1alpha1.UserObject{w.tcx, w.tracepoint, w.application, w.namespaced}
}

// programs returns everything that users load.
func (w *workload) programs() []v1alpha1.UserObject { return append(w.attached(), w.xdp) }

// start creates everything, and waits until everything that the kernels support is
// attached, and the pod reads.
func (w *workload) start(ctx context.Context, t *testing.T) {
	t.Helper()
	w.create(ctx, t)
	w.awaitAttached(ctx, t)
}

// create creates everything but the pod.
func (w *workload) create(ctx context.Context, t *testing.T) {
	t.Helper()
	createAll(ctx, t, w.space, w.tcx, w.tracepoint, w.application, w.xdp, w.namespaced)
}

func createAll(ctx context.Context, t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		mark(o)
		if err := under.Create(ctx, o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// awaitAttached creates the pod, and waits until everything is attached and the pod reads.
func (w *workload) awaitAttached(ctx context.Context, t *testing.T) {
	t.Helper()
	createAll(ctx, t, w.pod)
	objects := w.attached()
	for _, o := range objects {
		awaitAttached(ctx, t, o)
	}
	if under.trials["XDP"].Attached {
		objects = append(objects, w.xdp)
		awaitAttached(ctx, t, w.xdp)
	} else {
		awaitFailure(ctx, t, w.xdp)
	}
	awaitReady(ctx, t, w.pod)
	awaitGrowth(ctx, t, w.pod, workloadMap, callKill)
	for _, o := range objects {
		loaded, err := loadedFor(ctx, o.GetUID())
		if err != nil {
			t.Fatal(err)
		}
		w.loaded = append(w.loaded, loaded...)
	}
}

// leave deletes the namespace, with its objects.
func (w *workload) leave(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := under.Delete(ctx, w.space); err != nil {
		t.Fatalf("delete namespace %s: %v", w.space.Name, err)
	}
}

// remove deletes what is left, and waits until the daemons have nothing of it.
func (w *workload) remove(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := under.Delete(ctx, w.space); client.IgnoreNotFound(err) != nil {
		t.Fatalf("delete namespace %s: %v", w.space.Name, err)
	}
	awaitGone(ctx, t, w.space)
	for _, o := range w.programs() {
		removeProgram(ctx, t, o)
	}
}

// checkStays checks that programs are attached and count without bpfman, and that the pod
// can still read.
func (w *workload) checkStays(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, name := range under.nodes() {
		left, err := ask[[]string](ctx, name, "leftovers", idsOf(w.loaded), "")
		if err != nil || len(left)*len(under.nodes()) != len(w.loaded) {
			t.Errorf("of programs %s node %s has %q, %v", idsOf(w.loaded), name, left, err)
		}
	}
	awaitGrowth(ctx, t, w.pod, workloadMap, callKill)
	checkUndisturbed(ctx, t, w.pod)
}

// checkAdopted checks that the remaining objects have the same programs as before.
func (w *workload) checkAdopted(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, o := range []v1alpha1.UserObject{w.tcx, w.tracepoint} {
		awaitSuccess(ctx, t, o)
		for _, now := range exactly(ctx, t, o, 1) {
			if !slices.Contains(ids(w.loaded), now.ID) {
				t.Errorf("program %d of %s was loaded anew", now.ID, o.GetName())
			}
		}
	}
}

// awaitGone waits until an object is deleted, which can require that the kubelet retries
// to unmount a volume.
func awaitGone(ctx context.Context, t *testing.T, o client.Object) {
	t.Helper()
	awaitFor(ctx, t, unmountRetry, fmt.Sprintf("%T %s is gone", o, o.GetName()), func(ctx context.Context) (bool, string) {
		err := under.Get(ctx, client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err), fmt.Sprint(o, err)
	})
}

// withoutMaps leaves out the maps, because pods' volumes keep them.
func withoutMaps(programs []node.Program) []node.Program {
	programs = slices.Clone(programs)
	for i := range programs {
		programs[i].MapIDs = nil
	}
	return programs
}

func idsOf(programs []node.Program) string {
	set := map[string]bool{}
	for _, id := range ids(programs) {
		set[fmt.Sprint(id)] = true
	}
	return join(set)
}
