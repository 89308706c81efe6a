// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// TestApplication follows an application through its edits.
func TestApplication(t *testing.T) {
	requireType(t, "TCX")
	requireType(t, "Tracepoint")
	app := application("e2e-app")
	kills, tcxMember := app.Spec.Programs[0], app.Spec.Programs[1]
	sameFunction := v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: new(tracepointInfo("syscalls/sys_exit_kill"))}
	var before []node.Program
	feature(t,
		step{"the members are one load", func(ctx context.Context, s *testing.T) {
			create(ctx, t, app)
			awaitSuccess(ctx, s, app)
			before = exactly(ctx, s, app, 2)
			if before[0].Metadata[v1alpha1.MetadataLoad] != before[1].Metadata[v1alpha1.MetadataLoad] {
				s.Errorf("the members were loaded one by one: %v", before)
			}
		}},
		step{"an attach point changes without a reload", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, app, func(a *v1alpha1.BpfApplication) {
				a.Spec.Programs[0].Tracepoint.Names = []string{"syscalls/sys_enter_kill", "syscalls/sys_exit_kill"}
			})
			awaitSuccess(ctx, s, app)
			now := exactly(ctx, s, app, 2)
			if !slices.Equal(ids(now), ids(before)) {
				s.Errorf("programs %v took the place of %v", ids(now), ids(before))
			}
			links := 0
			for _, p := range now {
				links += len(p.Links)
			}
			if links != 3*len(under.nodes()) {
				s.Errorf("%d links, want 3 on each node: %v", links, now)
			}
		}},
		step{"a further member of the same function is no reload either", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, app, func(a *v1alpha1.BpfApplication) {
				a.Spec.Programs = []v1alpha1.BpfApplicationProgram{tcxMember, kills, sameFunction}
			})
			awaitSuccess(ctx, s, app)
			if now := exactly(ctx, s, app, 2); !slices.Equal(ids(now), ids(before)) {
				s.Errorf("programs %v took the place of %v", ids(now), ids(before))
			}
		}},
		step{"a member less", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, app, func(a *v1alpha1.BpfApplication) {
				a.Spec.Programs = []v1alpha1.BpfApplicationProgram{kills}
			})
			awaitSuccess(ctx, s, app)
			exactly(ctx, s, app, 1)
		}},
	)
}

// TestNamespacedIsReloaded reloads a namespaced program. The pod to which it is attached reads its counts.
func TestNamespacedIsReloaded(t *testing.T) {
	requireType(t, "TCX")
	const space = "e2e-tenant"
	program := tcxNs(space, "e2e-tcx")
	target := reader(space, "target", program.Name, "tcx_stats_map")
	target.Labels = map[string]string{"app": "target"}
	ping := func(ctx context.Context, t *testing.T) { knock(ctx, t, target) }
	feature(t,
		step{"counted and read", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, program)
			create(ctx, t, target)
			awaitReady(ctx, s, target)
			awaitAttached(ctx, s, program)
			awaitGrowth(ctx, s, target, "tcx_stats_map", ping)
		}},
		step{"loaded anew", func(ctx context.Context, s *testing.T) {
			before, err := loadedFor(ctx, program.UID)
			if err != nil {
				s.Fatal(err)
			}
			modify(ctx, s, program, func(p *v1alpha1.TcxNsProgram) { p.Spec.ByteCode = image("go-app-counter") })
			awaitAttached(ctx, s, program)
			awaitGrowth(ctx, s, target, "tcx_stats_map", ping)
			await(ctx, s, "none of the programs is as before", func(ctx context.Context) (bool, string) {
				now, err := loadedFor(ctx, program.UID)
				old := slices.ContainsFunc(ids(now), func(id uint32) bool { return slices.Contains(ids(before), id) })
				return err == nil && len(now) > 0 && !old, fmt.Sprintf("%v, before %v, %v", now, before, err)
			})
		}},
	)
}

// TestGlobalsAreReloaded changes what requires a reload.
func TestGlobalsAreReloaded(t *testing.T) {
	requireType(t, "TCX")
	o := tcx("e2e-globals", "lo")
	o.Spec.GlobalData = v1alpha1.GlobalData{"GLOBAL_u8": []byte{1}}
	var before node.Program
	feature(t,
		step{"attached", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			awaitSuccess(ctx, s, o)
			before = exactly(ctx, s, o, 1)[0]
		}},
		step{"reloaded, and an Event says so", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(o *v1alpha1.TcxProgram) { o.Spec.GlobalData = v1alpha1.GlobalData{"GLOBAL_u8": []byte{2}} })
			awaitSuccess(ctx, s, o)
			now := exactly(ctx, s, o, 1)[0]
			if now.ID == before.ID {
				s.Errorf("program %d has its globals changed without a reload", now.ID)
			}
			awaitEvent(ctx, s, o, corev1.EventTypeNormal, "Reloaded", fmt.Sprint(now.ID), fmt.Sprint(before.ID))
		}},
	)
}

// exactly waits until the daemons have n programs for the owner on each node, and the
// reports contain the same programs.
func exactly(ctx context.Context, t *testing.T, o v1alpha1.UserObject, n int) []node.Program {
	t.Helper()
	var loaded []node.Program
	await(ctx, t, fmt.Sprintf("%d programs of %s on each node, and no other", n, o.GetName()), func(ctx context.Context) (bool, string) {
		var err error
		if loaded, err = loadedFor(ctx, o.GetUID()); err != nil {
			return false, err.Error()
		}
		programs, err := programsOf(ctx, o)
		var reported []uint32
		for _, p := range programs {
			reported = append(reported, p.GetStatus().ProgramID)
		}
		slices.Sort(reported)
		reported = slices.Compact(reported) // members can use the same function
		ok := err == nil && len(loaded) == n*len(under.nodes()) && slices.Equal(ids(loaded), reported)
		return ok, fmt.Sprintf("loaded %v, reported %v, %v", loaded, reported, err)
	})
	return loaded
}

func ids(programs []node.Program) []uint32 {
	out := make([]uint32, 0, len(programs))
	for _, p := range programs {
		out = append(out, p.ID)
	}
	return sorted(out)
}

func sorted(numbers []uint32) []uint32 {
	out := slices.Clone(numbers)
	slices.Sort(out)
	return out
}
