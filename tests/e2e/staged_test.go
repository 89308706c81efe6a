// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// awaitStages waits until the operator has accepted a policy.
func awaitStages(ctx context.Context, t *testing.T, p *v1alpha1.RolloutPolicy) {
	t.Helper()
	await(ctx, t, "policy "+p.Name+" is ready", func(ctx context.Context) (bool, string) {
		err := under.Get(ctx, client.ObjectKeyFromObject(p), p)
		return err == nil && meta.IsStatusConditionTrue(p.Status.Conditions, string(v1alpha1.Ready)), fmt.Sprintf("%v %+v", err, p.Status)
	})
}

// TestRolloutHaltsAtConflict rolls out a program, and other software then attaches too many programs to its tracepoint.
func TestRolloutHaltsAtConflict(t *testing.T) {
	t.Parallel()
	requireType(t, "Tracepoint")
	const name, event = "e2e-staged-conflict", "sys_enter_swapon"
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RolloutPolicySpec{
		Match: v1alpha1.RolloutPolicyMatch{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rollout": name}}},
		Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromString("100%"), Pause: &metav1.Duration{Duration: time.Hour}}},
	}}
	create(t.Context(), t, policy)
	awaitStages(t.Context(), t, policy)
	o := tracepoint(name)
	o.Labels, o.Spec.Names = map[string]string{"rollout": name}, []string{"syscalls/" + event}
	create(t.Context(), t, o)
	is := func(ctx context.Context, state v1alpha1.RolloutState, words string) {
		t.Helper()
		awaitFor(ctx, t, noticed, "the rollout is "+string(state), func(ctx context.Context) (bool, string) {
			if err := under.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.Status.Rollout == nil {
				return false, fmt.Sprintf("there is no rollout: %v", err)
			}
			r := o.Status.Rollout
			return r.State == state && strings.Contains(r.Message, words), string(r.State) + ": " + r.Message
		})
	}
	is(t.Context(), v1alpha1.RolloutProgressing, "the next step follows after a pause of 1h0m0s")
	end := hold(t.Context(), t, under.nodes()[0], "staged", "tracepoint", event, 60)
	defer end()
	is(t.Context(), v1alpha1.RolloutHalted, event+" has at least 56 of the 64 programs")
}

// TestStagedRollout rolls out changes of a program in steps, with `kubectl bpfman rollout`. A change that can't be loaded
// reaches no other node than the first, and the previous revision stays attached everywhere.
func TestStagedRollout(t *testing.T) {
	requireType(t, "Tracepoint")
	const name = "e2e-staged"
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RolloutPolicySpec{
		Match: v1alpha1.RolloutPolicyMatch{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rollout": name}}},
		Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromInt(1), UntilResumed: true}},
	}}
	o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rollout": name}}, Spec: v1alpha1.TracepointProgramSpec{
		TracepointProgramInfo: v1alpha1.TracepointProgramInfo{BpfProgramCommon: functionOf("tracepoint_kill_recorder"), Names: []string{"syscalls/sys_enter_kill"}},
		BpfAppCommon:          of("go-tracepoint-counter"),
	}}
	named := "tracepointprogram/" + name
	state := func(ctx context.Context, s *testing.T, want v1alpha1.RolloutState, words string) {
		s.Helper()
		await(ctx, s, "the rollout is "+string(want), func(ctx context.Context) (bool, string) {
			if err := under.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.Status.Rollout == nil {
				return false, "there is no rollout"
			}
			r := o.Status.Rollout
			return r.State == want && strings.Contains(r.Message, words), string(r.State) + ": " + r.Message
		})
	}
	// links waits for the tracepoints of all nodes' reports.
	links := func(ctx context.Context, s *testing.T, want ...string) {
		s.Helper()
		await(ctx, s, "the links are "+strings.Join(want, ", "), func(ctx context.Context) (bool, string) {
			var list v1alpha1.BpfProgramList
			if err := under.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelOwnedByProgram: name}); err != nil {
				return false, err.Error()
			}
			var got []string
			for i := range list.Items {
				for _, l := range list.Items[i].Status.Links {
					if l.State == v1alpha1.LinkAttached {
						got = append(got, l.AttachPoint)
					}
				}
			}
			slices.Sort(got)
			return slices.Equal(got, want), strings.Join(got, ", ")
		})
	}
	everywhere := func(tracepoint string) []string { return slices.Repeat([]string{tracepoint}, len(under.nodes())) }
	feature(t,
		step{"a new object reaches one node, and the others when it is resumed", func(ctx context.Context, s *testing.T) {
			create(ctx, t, policy)
			awaitStages(ctx, s, policy)
			create(ctx, t, o)
			state(ctx, s, v1alpha1.RolloutPaused, "step 1 is complete")
			links(ctx, s, "syscalls/sys_enter_kill")
			if out := plugin(ctx, s, "rollout", "resume", named); out != "tracepointprogram.bpfman.io/"+name+" resumed\n" {
				s.Error(out)
			}
			if out := plugin(ctx, s, "rollout", "status", named); !strings.HasSuffix(out, "successfully rolled out\n") {
				s.Error(out)
			}
			links(ctx, s, everywhere("syscalls/sys_enter_kill")...)
		}},
		step{"a change that can't be loaded halts", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(o *v1alpha1.TracepointProgram) { o.Spec.BpfFunctionName = "missing" })
			state(ctx, s, v1alpha1.RolloutHalted, "1 of 1 nodes with revision 2 aren't healthy")
			if _, err := tryPlugin(ctx, s, "rollout", "status", named); err == nil {
				s.Error("`rollout status` succeeds")
			}
			// The report of the first node is about the function that it can't load.
			links(ctx, s, everywhere("syscalls/sys_enter_kill")[1:]...)
		}},
		step{"it is undone", func(ctx context.Context, s *testing.T) {
			if out := plugin(ctx, s, "rollout", "undo", named); out != "tracepointprogram.bpfman.io/"+name+" rolled back to revision 1\n" {
				s.Error(out)
			}
			if out := plugin(ctx, s, "rollout", "status", named); !strings.HasSuffix(out, "successfully rolled out\n") {
				s.Error(out)
			}
			out := plugin(ctx, s, "rollout", "history", named)
			if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], "2 ") || !strings.HasPrefix(lines[2], "3 ") ||
				!strings.Contains(lines[2], "yes") || !strings.Contains(lines[2], "spec.bpffunctionname") {
				s.Error(out)
			}
			links(ctx, s, everywhere("syscalls/sys_enter_kill")...)
		}},
		step{"with onFailure undo, it undoes itself", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, policy, func(p *v1alpha1.RolloutPolicy) { p.Spec.OnFailure = v1alpha1.RolloutUndo })
			modify(ctx, s, o, func(o *v1alpha1.TracepointProgram) { o.Spec.Names = []string{"syscalls/no_such_tracepoint"} })
			state(ctx, s, v1alpha1.RolloutUndone, "runs again on all nodes")
			links(ctx, s, everywhere("syscalls/sys_enter_kill")...)
		}},
		step{"a change that works goes on", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(o *v1alpha1.TracepointProgram) { o.Spec.Names = []string{"syscalls/sys_enter_tgkill"} })
			state(ctx, s, v1alpha1.RolloutPaused, "step 1 is complete")
			plugin(ctx, s, "rollout", "resume", named)
			plugin(ctx, s, "rollout", "status", named)
			links(ctx, s, everywhere("syscalls/sys_enter_tgkill")...)
		}},
		step{"ten revisions are kept", func(ctx context.Context, s *testing.T) {
			for i := range 12 {
				before := o.Status.Rollout.Revision
				modify(ctx, s, o, func(o *v1alpha1.TracepointProgram) {
					o.Annotations = map[string]string{v1alpha1.AnnotationRestartedAt: fmt.Sprint(i)}
				})
				await(ctx, s, "another revision", func(ctx context.Context) (bool, string) {
					err := under.Get(ctx, client.ObjectKeyFromObject(o), o)
					return err == nil && o.Status.Rollout.Revision > before, fmt.Sprintf("%v %+v", err, o.Status.Rollout)
				})
			}
			if lines := strings.Split(strings.TrimSpace(plugin(ctx, s, "rollout", "history", named)), "\n"); len(lines) != 11 {
				s.Errorf("%q", lines)
			}
		}},
	)
}
