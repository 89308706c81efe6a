// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
)

// stagedBy returns the label of objects that the policy with this name matches.
func stagedBy(name string) map[string]string { return map[string]string{"rollout": name} }

func rolloutPolicy(name string, steps ...v1alpha1.RolloutStep) *v1alpha1.RolloutPolicy {
	return &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RolloutPolicySpec{
		Match: v1alpha1.RolloutPolicyMatch{ObjectSelector: &metav1.LabelSelector{MatchLabels: stagedBy(name)}}, Steps: steps,
	}}
}

// awaitStages waits until the operator has accepted a policy.
func awaitStages(ctx context.Context, t *testing.T, p *v1alpha1.RolloutPolicy) {
	t.Helper()
	await(ctx, t, "policy "+p.Name+" is ready", func(ctx context.Context) (bool, string) {
		err := under.Get(ctx, client.ObjectKeyFromObject(p), p)
		return err == nil && meta.IsStatusConditionTrue(p.Status.Conditions, string(v1alpha1.Ready)), fmt.Sprintf("%v %+v", err, p.Status)
	})
}

// awaitRollout waits for a state of the rollout of an object's newest generation.
func awaitRollout(ctx context.Context, t *testing.T, o v1alpha1.UserObject, want v1alpha1.RolloutState, words string) {
	t.Helper()
	awaitFor(ctx, t, noticed, "the rollout is "+string(want), func(ctx context.Context) (bool, string) {
		err, s := under.Get(ctx, client.ObjectKeyFromObject(o), o), o.GetStatus()
		if err != nil || s.Rollout == nil || s.ObservedGeneration != o.GetGeneration() {
			return false, fmt.Sprintf("there is no rollout of this generation: %v", err)
		}
		return s.Rollout.State == want && strings.Contains(s.Rollout.Message, words), string(s.Rollout.State) + ": " + s.Rollout.Message
	})
}

// TestRolloutHaltsAtConflict rolls out a program, and other software then attaches too many programs to its tracepoint.
func TestRolloutHaltsAtConflict(t *testing.T) {
	t.Parallel()
	requireType(t, "Tracepoint")
	const name, event = "e2e-staged-conflict", "sys_enter_swapon"
	policy := rolloutPolicy(name, v1alpha1.RolloutStep{Nodes: intstr.FromString("100%"), Pause: &metav1.Duration{Duration: time.Hour}})
	create(t.Context(), t, policy)
	awaitStages(t.Context(), t, policy)
	o := tracepoint(name)
	o.Labels, o.Spec.Names = stagedBy(name), []string{"syscalls/" + event}
	create(t.Context(), t, o)
	awaitRollout(t.Context(), t, o, v1alpha1.RolloutProgressing, "the next step follows after a pause of 1h0m0s")
	end := hold(t.Context(), t, under.nodes()[0], "staged", "tracepoint", event, 60)
	defer end()
	awaitRollout(t.Context(), t, o, v1alpha1.RolloutHalted, event+" has at least 56 of the 64 programs")
}

// TestRolloutUndoesSlowProgram rolls out a revision with the same function, which runs longer. The inspector measures it.
func TestRolloutUndoesSlowProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	requireType(t, "Tracepoint")
	const name = "e2e-staged-slow"
	policy := rolloutPolicy(name, v1alpha1.RolloutStep{Nodes: intstr.FromInt32(1)})
	policy.Spec.MaxRunTimePercent, policy.Spec.OnFailure = 200, v1alpha1.RolloutUndo
	// Processes on the node open files all the time.
	o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: stagedBy(name)}, Spec: v1alpha1.TracepointProgramSpec{
		TracepointProgramInfo: v1alpha1.TracepointProgramInfo{BpfProgramCommon: functionOf("delay"), Names: []string{"syscalls/sys_enter_openat"}},
		BpfAppCommon:          of("delay"),
	}}
	reads := func(times byte) { o.Spec.GlobalData = v1alpha1.GlobalData{"readings": {times}} }
	reads(1)
	// averages waits until each node has measured the program that runs.
	averages := func(ctx context.Context, s *testing.T) {
		s.Helper()
		awaitFor(ctx, s, noticed, "each node has an average", func(ctx context.Context) (bool, string) {
			var nodes v1alpha1.BpfNodeList
			if err := under.List(ctx, &nodes); err != nil {
				return false, err.Error()
			}
			measured := 0
			for i := range nodes.Items {
				for _, p := range nodes.Items[i].Status.Programs {
					if p.Owner != nil && p.Owner.Name == name && p.RunTime != nil && p.RunTime.AverageNanoseconds > 0 {
						measured++
					}
				}
			}
			return measured == len(under.nodes()), fmt.Sprintf("%d averages", measured)
		})
	}
	feature(t,
		step{"there is nothing to compare a new object with", func(ctx context.Context, s *testing.T) {
			configure(ctx, t, s, map[string]string{deploy.KeyInspectorStatistics: "true"}, hasFlag("--statistics=true"), hasFlag("--statistics=false"))
			create(ctx, t, policy)
			awaitStages(ctx, s, policy)
			create(ctx, t, o)
			awaitRollout(ctx, s, o, v1alpha1.RolloutComplete, "")
			averages(ctx, s)
		}},
		step{"a change that makes its runs longer is undone", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(*v1alpha1.TracepointProgram) { reads(200) })
			awaitRollout(ctx, s, o, v1alpha1.RolloutUndone, "revision 1 runs again")
			message := o.Status.Rollout.Message
			s.Log(message)
			if !regexp.MustCompile(`^1 of 1 nodes with revision 2 aren't healthy \(.*: a run takes \d+ ns on average, and \d+ ns in the previous revision\)`).MatchString(message) {
				s.Error(message)
			}
			if !meta.IsStatusConditionTrue(o.Status.Conditions, string(v1alpha1.Stalled)) {
				s.Errorf("%+v", o.Status.Conditions)
			}
			averages(ctx, s)
		}},
		step{"another change goes on", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(*v1alpha1.TracepointProgram) { reads(2) })
			awaitRollout(ctx, s, o, v1alpha1.RolloutComplete, "")
		}},
	)
}

// TestStagedRollout rolls out changes of a program in steps, with `kubectl bpfman rollout`. A change that can't be loaded
// reaches no other node than the first, and the previous revision stays attached everywhere.
func TestStagedRollout(t *testing.T) {
	requireType(t, "Tracepoint")
	const name = "e2e-staged"
	policy := rolloutPolicy(name, v1alpha1.RolloutStep{Nodes: intstr.FromInt32(1), UntilResumed: true})
	o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: stagedBy(name)}, Spec: v1alpha1.TracepointProgramSpec{
		TracepointProgramInfo: v1alpha1.TracepointProgramInfo{BpfProgramCommon: functionOf("tracepoint_kill_recorder"), Names: []string{"syscalls/sys_enter_kill"}},
		BpfAppCommon:          of("go-tracepoint-counter"),
	}}
	named := "tracepointprogram/" + name
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
			awaitRollout(ctx, s, o, v1alpha1.RolloutPaused, "step 1 is complete")
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
			awaitRollout(ctx, s, o, v1alpha1.RolloutHalted, "1 of 1 nodes with revision 2 aren't healthy")
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
			out = plugin(ctx, s, "rollout", "timeline", named)
			for _, words := range []string{"2          <none>", "3          <none>", "returned, and so changed: spec.bpffunctionname", "rollout complete"} {
				if !strings.Contains(out, words) {
					s.Errorf("%q isn't in\n%s", words, out)
				}
			}
			links(ctx, s, everywhere("syscalls/sys_enter_kill")...)
		}},
		step{"with onFailure undo, it undoes itself", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, policy, func(p *v1alpha1.RolloutPolicy) { p.Spec.OnFailure = v1alpha1.RolloutUndo })
			modify(ctx, s, o, func(o *v1alpha1.TracepointProgram) { o.Spec.Names = []string{"syscalls/no_such_tracepoint"} })
			awaitRollout(ctx, s, o, v1alpha1.RolloutUndone, "runs again on all nodes")
			links(ctx, s, everywhere("syscalls/sys_enter_kill")...)
		}},
		step{"a change that works goes on", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(o *v1alpha1.TracepointProgram) { o.Spec.Names = []string{"syscalls/sys_enter_tgkill"} })
			awaitRollout(ctx, s, o, v1alpha1.RolloutPaused, "step 1 is complete")
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
