// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// policy returns a policy that matches the objects with the label rollout and the node's name.
func (n *node) policy() *v1alpha1.RolloutPolicy {
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	p.Spec.Match.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"rollout": n.name}}
	p.Spec.Steps = []v1alpha1.RolloutStep{{Nodes: intstr.FromInt(1)}}
	return p
}

// staged creates the policy. Agents don't watch policies yet.
func (n *node) staged() *v1alpha1.RolloutPolicy {
	n.t.Helper()
	p := n.policy()
	n.create(p)
	return p
}

// decides writes the status of a rollout, as the operator does. The node has the newest revision if turn is true.
func (n *node) decides(o v1alpha1.UserObject, turn bool, previous v1alpha1.UserObject) {
	n.t.Helper()
	n.eventually("the rollout's status", func() error {
		ctx := context.Background()
		if err := n.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		now, err := rollout.RevisionOf(o)
		if err != nil {
			return err
		}
		s := &v1alpha1.RolloutStatus{State: v1alpha1.RolloutProgressing, Hash: now.Hash(), Revision: 2}
		if !turn {
			s.Until = new(int64)
		}
		if previous != nil {
			before, err := rollout.RevisionOf(previous)
			if err != nil {
				return err
			}
			stored, err := json.Marshal(before)
			if err != nil {
				return err
			}
			s.Previous = &v1alpha1.RolloutRevision{Revision: 1, Object: runtime.RawExtension{Raw: stored}}
		}
		o.GetStatus().Rollout = s
		return n.client.Status().Update(ctx, o)
	})
}

// passes waits until the agent has handled a new object, and so all events before it.
func (n *node) passes() {
	n.t.Helper()
	o := n.tcx("passes-"+n.name, nil, "eth9")
	n.create(o)
	n.says(o.Name, v1alpha1.BpfProgCondNotLoaded, "eth9")
	n.delete(o)
	n.eventually("no report", func() error {
		if len(n.reportsOn(o.Name)) > 0 {
			return errors.New("there is one")
		}
		return nil
	})
}

// The node runs what the status of the rollout says, and keeps what it runs until that says something about the newest
// revision.
func TestRollout(t *testing.T) {
	n := start(t)
	policy := n.staged()
	o := n.tracepoint("staged", "v1", "syscalls/sys_enter_kill")
	o.Labels = map[string]string{"rollout": n.name}
	name := "TracepointProgram/staged"
	n.create(o)
	n.passes()
	n.holds() // the operator hasn't decided

	n.decides(o, false, nil)
	n.passes()
	n.holds() // there is no previous revision
	n.decides(o, true, nil)
	n.holds(name + " v1 syscalls/sys_enter_kill")
	first := o.DeepCopy()

	n.change(o, func() { o.Spec.BpfFunctionName, o.Spec.Names = "v2", []string{"syscalls/sys_enter_openat"} })
	n.passes()
	n.holds(name + " v1 syscalls/sys_enter_kill") // the operator hasn't decided
	before := n.reportOf(o.Name)
	n.decides(o, false, first)
	n.passes()
	n.holds(name + " v1 syscalls/sys_enter_kill")
	if after := n.reportOf(o.Name); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("the report of a node that isn't to change was written: %+v, %+v", before, after)
	}

	n.reboot()
	n.holds(name + " v1 syscalls/sys_enter_kill")

	n.decides(o, true, first)
	n.holds(name + " v2 syscalls/sys_enter_openat")
	if got := n.reportOf(o.Name).GetStatus().OwnerGeneration; got != 2 {
		t.Errorf("the report is about generation %d", got)
	}

	n.decides(o, false, first) // undone
	n.holds(name + " v1 syscalls/sys_enter_kill")
	if got := n.reportOf(o.Name).GetStatus().OwnerGeneration; got != 1 {
		t.Errorf("the report is about generation %d", got)
	}

	// An object of another label changes immediately.
	free := n.tracepoint("free", "f", "syscalls/sys_enter_kill")
	n.create(free)
	n.holds(name+" v1 syscalls/sys_enter_kill", "TracepointProgram/free f syscalls/sys_enter_kill")
	n.delete(free)

	// Without the policy, nothing is held.
	n.delete(policy)
	n.eventually("no rollout", func() error {
		if err := n.client.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		o.Status.Rollout = nil
		return n.client.Status().Update(context.Background(), o)
	})
	n.holds(name + " v2 syscalls/sys_enter_openat")
}

// An object that is applied together with the first RolloutPolicy of the cluster is held, no matter which is first, and whether
// or not an operator tells the agents that there is a policy. A change that is applied with it is held too.
func TestRolloutWithTheFirstPolicy(t *testing.T) {
	for name, order := range map[string]func(n *node, policy, object func()){
		"policy-first": func(_ *node, policy, object func()) { policy(); object() },
		"object-first": func(_ *node, policy, object func()) { object(); policy() },
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			changed := n.tracepoint("changed", "v1", "syscalls/sys_enter_kill")
			changed.Labels = map[string]string{"rollout": n.name}
			n.create(changed)
			n.holds("TracepointProgram/changed v1 syscalls/sys_enter_kill")
			created := n.tracepoint("created", "v1", "syscalls/sys_enter_openat")
			created.Labels = changed.Labels
			var loads atomic.Int32
			n.daemon.SetFault(func(_ string, request proto.Message, _ bool) error {
				if in, is := request.(*gobpfman.LoadRequest); is && strings.HasPrefix(in.GetInfo()[0].GetName(), "v") {
					loads.Add(1)
				}
				return nil
			})
			// A file is applied within the agent's wait for it, which it isn't always on a busy machine.
			applied := n.pause(v1alpha1.RolloutPolicyKind.Resource())
			order(n, func() { n.create(n.policy()) }, func() {
				n.create(created)
				n.change(changed, func() { changed.Spec.BpfFunctionName = "v2" })
			})
			applied()
			n.passes()
			if loads.Load() > 0 {
				t.Error("something was loaded before the operator decided")
			}
			n.holds("TracepointProgram/changed v1 syscalls/sys_enter_kill")
			n.decides(created, true, nil)
			n.holds("TracepointProgram/changed v1 syscalls/sys_enter_kill", "TracepointProgram/created v1 syscalls/sys_enter_openat")
		})
	}
}

// Whoever can write a status can't choose what a node runs: without a policy, the previous revision in it isn't loaded.
func TestRolloutThatOnlyTheStatusNames(t *testing.T) {
	n := start(t)
	o := n.tracepoint("named", "v1", "syscalls/sys_enter_kill")
	n.create(o)
	n.holds("TracepointProgram/named v1 syscalls/sys_enter_kill")
	forged := o.DeepCopy()
	forged.Spec.BpfFunctionName = "forged"
	n.decides(o, false, forged)
	n.passes()
	n.holds("TracepointProgram/named v1 syscalls/sys_enter_kill")
}

// A node that failed to load the newest revision loads no earlier one while the operator hasn't decided.
func TestRolloutAfterAFailedRevision(t *testing.T) {
	n := start(t)
	n.confirming()
	n.staged()
	o := n.tracepoint("failed", "good", "syscalls/sys_enter_kill")
	o.Labels = map[string]string{"rollout": n.name}
	n.create(o)
	n.decides(o, true, nil)
	n.holds("TracepointProgram/failed good syscalls/sys_enter_kill")
	n.fails("rejected")
	n.change(o, func() { o.Spec.BpfFunctionName = "bad" })
	n.decides(o, true, nil)
	n.says(o.Name, v1alpha1.BpfProgCondNotLoaded, "rejected")

	n.crash()
	n.daemon = daemontest.New(t.TempDir()) // a reboot
	n.fails("rejected")
	n.startAgent()
	n.change(o, func() { o.Spec.Names = []string{"syscalls/sys_enter_openat"} }) // held
	n.passes()
	if held := n.daemon.Programs(); len(held) > 0 {
		t.Errorf("after a reboot, the daemon holds %v", held)
	}
}

// A node reports a revision when it is confirmed. After a reboot without an operator, it runs the revision that it ran
// before an edit.
func TestRolloutOfConfirmedRevisions(t *testing.T) {
	n := start(t)
	n.confirming()
	n.staged()
	o := n.tcx("staged-"+n.name, nil, "eth0")
	o.Labels = map[string]string{"rollout": n.name}
	o.Spec.BpfFunctionName = "good"
	n.create(o)
	off := n.cut
	limit := n.confirm
	n.crash()
	n.confirm = time.Hour
	n.startAgent()
	n.decides(o, true, nil)
	n.runs("good eth0")
	n.passes()
	if objects := n.programs(); len(objects) > 0 {
		t.Errorf("%d reports about a revision that isn't confirmed", len(objects))
	}
	n.crash()
	n.confirm = limit
	n.startAgent()
	n.says(o.Name, v1alpha1.BpfProgCondLoaded, "")
	n.confirmed(1)

	n.change(o, func() { o.Spec.BpfFunctionName = "v2" })
	n.passes()
	n.runs("good eth0")
	n.reboot()
	n.runs("good eth0")

	// A revision that is rolled back on the node is a failure of the rollout.
	n.change(o, func() { o.Spec.BpfFunctionName = "bad" })
	n.decides(o, true, nil)
	n.says(o.Name, v1alpha1.BpfProgCondRolledBack, "generation 1 runs again")
	n.runs("good eth0")
	n.setCut(off)
}
