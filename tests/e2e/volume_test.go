// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// TestPodBeforeItsProgram starts a pod before the program whose map it mounts.
func TestPodBeforeItsProgram(t *testing.T) {
	requireType(t, "Tracepoint")
	const space = "e2e-early-pod"
	pod, program := reader(space, "reader", "e2e-early", "tracepoint_stats_map"), tracepoint("e2e-early")
	feature(t,
		step{"waits and says for what", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, pod)
			awaitEvent(ctx, s, pod, corev1.EventTypeWarning, "FailedMount", "e2e-early")
		}},
		step{"starts once the program is there", func(ctx context.Context, s *testing.T) {
			create(ctx, t, program)
			awaitReady(ctx, s, pod)
			awaitGrowth(ctx, s, pod, "tracepoint_stats_map", callKill)
		}},
	)
}

// TestPodBeforeItsMap starts a pod with a map that its program doesn't have yet.
func TestPodBeforeItsMap(t *testing.T) {
	requireType(t, "Tracepoint")
	const space = "e2e-early-map"
	pod, program := reader(space, "reader", "e2e-early-map", "tcx_stats_map"), tracepoint("e2e-early-map")
	feature(t,
		step{"waits, and is told which maps there are", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, program)
			awaitSuccess(ctx, s, program)
			create(ctx, t, pod)
			awaitEvent(ctx, s, pod, corev1.EventTypeWarning, "FailedMount", "tcx_stats_map", "tracepoint_stats_map")
		}},
		step{"starts once the program has it", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, program, func(p *v1alpha1.TracepointProgram) { p.Spec.ByteCode = image("go-app-counter") })
			awaitSuccess(ctx, s, program)
			awaitReady(ctx, s, pod)
		}},
	)
}

// TestModesOfMaps checks what a pod can do with a map, depending on its request.
func TestModesOfMaps(t *testing.T) {
	requireType(t, "Tracepoint")
	const space, group = "e2e-modes", 65534
	program := tracepoint("e2e-modes")
	feature(t,
		step{"the program is there", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, program)
			awaitSuccess(ctx, s, program)
		}},
		step{"read-only", func(ctx context.Context, s *testing.T) {
			checkMode(ctx, t, s, reader(space, "reader", program.Name, "*"), node.File{Name: "tracepoint_stats_map", Mode: "440", GID: group})
		}},
		step{"to read and write", func(ctx context.Context, s *testing.T) {
			pod := reader(space, "writer", program.Name, "*")
			pod.Spec.Volumes[0].CSI.ReadOnly = new(bool)
			pod.Spec.Containers[0].VolumeMounts[0].ReadOnly = false
			checkMode(ctx, t, s, pod, node.File{Name: "tracepoint_stats_map", Mode: "660", GID: group})
		}},
	)
}

func checkMode(ctx context.Context, test, t *testing.T, pod *corev1.Pod, want node.File) {
	t.Helper()
	create(ctx, test, pod)
	awaitReady(ctx, t, pod)
	files, err := ask[[]node.File](ctx, pod.Spec.NodeName, "files", string(pod.UID), "/run/maps")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name == want.Name && f != want {
			t.Errorf("the pod sees %v, want %v", f, want)
		}
		if f.Name == want.Name {
			return
		}
	}
	t.Errorf("no map %s among %v", want.Name, files)
}
