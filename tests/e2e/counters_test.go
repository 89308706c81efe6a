// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/e2e-framework/klient/decoder"
	"sigs.k8s.io/e2e-framework/klient/k8s"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/probe"
	readers "github.com/bpfman/bpfman-operator/tests/reader"
)

// TestExamples covers the product's main purpose. It applies the program and the
// application of each example, only with other names. The application, which has no
// capabilities, sees growing counts.
func TestExamples(t *testing.T) {
	for _, c := range []struct {
		example, trial string
		// adapt adapts the objects for the test, if necessary.
		adapt func(context.Context, *testing.T, []client.Object)
		// cause causes the events to count, if they don't occur anyway.
		cause func(context.Context, *testing.T)
	}{
		{example: "go-tcx-counter", trial: "TCX"},
		{example: "go-tc-counter", trial: "TC"},
		{example: "go-xdp-counter", trial: "XDP"},
		{example: "go-tracepoint-counter", trial: "Tracepoint", cause: callKill},
		{example: "go-kprobe-counter", trial: "Kprobe"},
		{example: "go-uprobe-counter", trial: "Uprobe", adapt: withoutContainers},
		{example: "go-uprobe-counter", trial: node.ContainerUprobe},
	} {
		t.Run(strings.ReplaceAll(c.example+" "+c.trial, " ", "_"), func(t *testing.T) {
			requireType(t, c.trial)
			var objects []client.Object
			feature(t,
				step{"attached", func(ctx context.Context, s *testing.T) {
					objects = exampleObjects(ctx, s, c.example)
					if c.adapt != nil {
						// go-target must exist before the program that names its
						// process.
						for _, o := range objects {
							if _, ok := o.(v1alpha1.UserObject); !ok {
								create(ctx, t, o)
							}
						}
						c.adapt(ctx, s, objects)
					}
					for _, o := range objects {
						if o.GetUID() == "" {
							create(ctx, t, o)
						}
					}
					for _, o := range objects {
						if user, ok := o.(v1alpha1.UserObject); ok {
							awaitSuccess(ctx, s, user)
						}
					}
				}},
				step{"counted and read without privilege", func(ctx context.Context, s *testing.T) {
					for _, o := range objects {
						user, ok := o.(v1alpha1.UserObject)
						if !ok {
							continue
						}
						for _, pod := range podsOf(ctx, s, readerOf(objects)) {
							awaitGrowth(ctx, s, pod, "", c.cause)
						}
						saw(kindOf(user), func(r *result) { r.counted, r.read = true, true })
					}
				}},
			)
		})
	}
}

// exampleObjects reads an example, with what it needs, and renames its objects, so that
// they don't conflict with those of a user who tries the example on the same cluster.
func exampleObjects(ctx context.Context, t *testing.T, example string) []client.Object {
	t.Helper()
	dirs := []string{example}
	if strings.Contains(example, "uprobe") {
		dirs = []string{"go-target", example}
	}
	var objects []client.Object
	for _, dir := range dirs {
		for _, file := range []string{"deployment.yaml", "bytecode.yaml"} {
			files := os.DirFS("../../examples/config/" + dir)
			if dir == "go-target" && file == "bytecode.yaml" {
				continue
			}
			all, err := decoder.DecodeAllFiles(ctx, files, file, decoder.MutateOption(rename))
			if err != nil {
				t.Fatalf("read example %s: %v", dir, err)
			}
			for _, o := range all {
				objects = append(objects, o)
			}
		}
	}
	return objects
}

const prefix = "e2e-"

func rename(o k8s.Object) error {
	if o.GetNamespace() != "" {
		o.SetNamespace(prefix + o.GetNamespace())
	} else {
		o.SetName(prefix + o.GetName())
	}
	switch o := o.(type) {
	case v1alpha1.UserObject:
		if image := o.GetAppCommon().ByteCode.Image; image != nil {
			image.Url = strings.Replace(image.Url, "quay.io/bpfman-bytecode", settings.bytecode, 1)
		}
		if uprobe, ok := o.(*v1alpha1.UprobeProgram); ok && uprobe.Spec.Containers != nil && uprobe.Spec.Containers.Namespace != bpfmanSpace {
			uprobe.Spec.Containers.Namespace = prefix + uprobe.Spec.Containers.Namespace
		}
		if image := o.GetAppCommon().ByteCode.Image; image != nil && image.ImagePullSecret != nil {
			image.ImagePullSecret.Name = prefix + image.ImagePullSecret.Name
		}
	case *appsv1.Deployment:
		o.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64)
		if settings.sampleApp != "" {
			o.Spec.Template.Spec.Containers[0].Image = settings.sampleApp
		}
	case *appsv1.DaemonSet:
		pod := &o.Spec.Template.Spec
		pod.TerminationGracePeriodSeconds = new(int64)
		container := &pod.Containers[0]
		if strings.Contains(o.Name, "go-target") {
			container.Image = settings.uprobed
			return nil
		}
		if strings.Contains(o.Name, "map-exporter") {
			container.Image = settings.exporter
		} else {
			container.Image = settings.counters
			container.Args = append(container.Args, "--interval=250ms")
		}
		for _, v := range pod.Volumes {
			if v.CSI != nil {
				v.CSI.VolumeAttributes[v1alpha1.VolumeAttributeProgram] = prefix + v.CSI.VolumeAttributes[v1alpha1.VolumeAttributeProgram]
			}
		}
	}
	return nil
}

// withoutContainers changes a uprobe's target to the executable of a running go-target,
// with a path for the daemon, for daemons that can't enter containers.
func withoutContainers(ctx context.Context, t *testing.T, objects []client.Object) {
	t.Helper()
	first := under.nodes()[0]
	var pid int
	await(ctx, t, "go-target runs on "+first, func(ctx context.Context) (bool, string) {
		pids, err := ask[[]int](ctx, first, "processes", "go-target")
		if len(pids) == 0 {
			return false, fmt.Sprint(err)
		}
		pid = pids[0]
		return true, ""
	})
	for _, o := range objects {
		if uprobe, ok := o.(*v1alpha1.UprobeProgram); ok {
			uprobe.Spec.Containers = nil
			uprobe.Spec.Target = fmt.Sprintf("/host/proc/%d/root/go-target", pid)
			uprobe.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: first}}
		}
	}
}

// callKill calls kill(2) on all nodes.
func callKill(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, name := range under.nodes() {
		if _, err := ask[any](ctx, name, "signal", "100"); err != nil {
			t.Fatal(err)
		}
	}
}

func readerOf(objects []client.Object) *appsv1.DaemonSet {
	for _, o := range objects {
		if ds, ok := o.(*appsv1.DaemonSet); ok && !strings.Contains(ds.Name, "go-target") {
			return ds
		}
	}
	return nil
}

// podsOf waits for the pods of a DaemonSet, which can have one on each node with the
// program, and returns the running ones.
func podsOf(ctx context.Context, t *testing.T, ds *appsv1.DaemonSet) []*corev1.Pod {
	t.Helper()
	var out []*corev1.Pod
	await(ctx, t, "pods of "+ds.Name, func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		if err := under.List(ctx, &pods, client.InNamespace(ds.Namespace), client.MatchingLabels(ds.Spec.Selector.MatchLabels)); err != nil {
			return false, err.Error()
		}
		out = nil
		var states []string
		for i := range pods.Items {
			states = append(states, podState(&pods.Items[i]))
			if probe.Ready(&pods.Items[i]) {
				out = append(out, &pods.Items[i])
			}
		}
		return len(out) > 0, strings.Join(states, "; ")
	})
	return out
}

func podState(pod *corev1.Pod) string {
	state := pod.Name + " is " + string(pod.Status.Phase)
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			state += ", waiting: " + c.State.Waiting.Reason + " " + c.State.Waiting.Message
		}
	}
	return state
}

// logOf returns the log of a pod.
func logOf(ctx context.Context, pod *corev1.Pod) (string, error) {
	text, err := under.clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("log of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return string(text), nil
}

// awaitGrowth waits until a reader, which must be unprivileged, sees a growing count of
// the map, or of all its maps if name is empty. cause causes the events to count.
func awaitGrowth(ctx context.Context, t *testing.T, pod *corev1.Pod, name string, cause func(context.Context, *testing.T)) {
	t.Helper()
	var before map[string]uint64
	await(ctx, t, "counts in the log of pod "+pod.Name+" grow", func(ctx context.Context) (bool, string) {
		log, err := logOf(ctx, pod)
		if err != nil {
			return false, err.Error()
		}
		now := readers.Counts(log)
		if len(now) == 0 {
			return false, "log: " + log
		}
		if !strings.Contains(log, readers.Unprivileged) {
			t.Fatalf("pod %s has privileges: %s", pod.Name, log)
		}
		if before == nil {
			before = now
		}
		if cause != nil {
			cause(ctx, t)
		}
		for m, n := range now {
			if n <= before[m] && (name == "" || name == m) {
				return false, fmt.Sprintf("%s stays at %d", m, n)
			}
		}
		return true, ""
	})
}

// knock sends packets to a pod from all nodes. Nothing listens for them, but they
// arrive.
func knock(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, name := range under.nodes() {
		if _, err := ask[any](ctx, name, "knock", pod.Status.PodIP); err != nil {
			t.Fatal(err)
		}
	}
}
