// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/tests/probe"
	readers "github.com/bpfman/bpfman-operator/tests/reader"
)

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
