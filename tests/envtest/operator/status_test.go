// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// tracepoint returns a user object that selects the nodes with that value of the label pool.
func tracepoint(name, pool string) *v1alpha1.TracepointProgram {
	o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
	o.Spec.ByteCode = v1alpha1.BytecodeSelector{Path: new("/bytecode.o")}
	o.Spec.BpfFunctionName = "enter"
	o.Spec.Names = []string{"syscalls/sys_enter_kill"}
	return o
}

// asAgent is the field manager of agents. Reports of other writers are listed again.
const asAgent = client.FieldOwner(v1alpha1.AgentFieldManager)

// report simulates the agent of a node, which reports about the owner.
func report(t *testing.T, c client.Client, owner *v1alpha1.TracepointProgram, node string, conditions ...metav1.Condition) *v1alpha1.BpfProgram {
	t.Helper()
	p := programOf(owner, node)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		must.Succeed(t, c.Create(t.Context(), p, asAgent))
	}
	p.Status.Node, p.Status.OwnerGeneration, p.Status.ProgramID = node, owner.Generation, programID
	v1alpha1.SetConditions(&p.Status.Conditions, conditions...)
	must.Succeed(t, c.Status().Update(t.Context(), p, asAgent))
	return p
}

// programID is the kernel's id of all programs.
const programID = 61

// programOf returns the report that an agent creates for an owner, without its status.
func programOf(owner *v1alpha1.TracepointProgram, node string) *v1alpha1.BpfProgram {
	return &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{
		Name:   owner.Name + "-" + node,
		Labels: map[string]string{v1alpha1.LabelOwnedByProgram: owner.Name, v1alpha1.LabelHostname: node, v1alpha1.LabelAppProgramID: ""},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "TracepointProgram", Name: owner.Name, UID: owner.UID, Controller: new(true),
		}},
	}}
}

// shows waits for "selected/attached/failed type: message" in the object's status.
func shows(t *testing.T, c client.Client, object v1alpha1.UserObject, want string) {
	t.Helper()
	envtest.Eventually(t, "status of "+object.GetName(), func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		s := object.GetStatus()
		if len(s.Conditions) == 0 || s.Nodes == nil {
			return fmt.Errorf("status %+v", s)
		}
		got := fmt.Sprintf("%d/%d/%d %s: %s", s.Nodes.Selected, s.Nodes.Attached, s.Nodes.Failed, s.Conditions[0].Type, s.Conditions[0].Message)
		if got != want {
			return fmt.Errorf("\ngot  %s\nwant %s", got, want)
		}
		if s.ObservedGeneration != object.GetGeneration() || s.Conditions[0].ObservedGeneration != object.GetGeneration() {
			return fmt.Errorf("observed generation %d, condition's %d, of %d", s.ObservedGeneration, s.Conditions[0].ObservedGeneration, object.GetGeneration())
		}
		return nil
	})
}

func TestStatusFollowsTheNodes(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "follow-a", map[string]string{"pool": "follow"})
	addNode(t, c, "follow-b", map[string]string{"pool": "follow"})
	o := tracepoint("follow", "follow")
	create(t, c, o)
	shows(t, c, o, "2/0/0 NotYetLoaded: Attached on 0 of 2 selected nodes, waiting for follow-a, follow-b")

	report(t, c, o, "follow-a", v1alpha1.BpfProgCondLoaded.Condition())
	shows(t, c, o, "2/1/0 NotYetLoaded: Attached on 1 of 2 selected nodes, waiting for follow-b")
	report(t, c, o, "follow-b", v1alpha1.BpfProgCondNotLoaded.Condition("attach syscalls/sys_enter_kill: no such file"))
	shows(t, c, o, "2/1/1 ReconcileError: Failed on 1 node, attached on 1 of 2 selected nodes: follow-b: attach syscalls/sys_enter_kill: no such file")
	envtest.Eventually(t, "an Event tells of the failure", hasEvent(c, o, "ReconcileError", func(note string) bool {
		return strings.Contains(note, "follow-b: attach syscalls/sys_enter_kill: no such file")
	}))
	failedSince := o.Status.Conditions[0].LastTransitionTime
	report(t, c, o, "follow-b", v1alpha1.BpfProgCondNotLoaded.Condition("another reason"))
	shows(t, c, o, "2/1/1 ReconcileError: Failed on 1 node, attached on 1 of 2 selected nodes: follow-b: another reason")
	if got := o.Status.Conditions[0].LastTransitionTime; !got.Equal(&failedSince) {
		t.Errorf("transition time %v, then %v, without a transition", failedSince, got)
	}
	report(t, c, o, "follow-b", v1alpha1.BpfProgCondLoaded.Condition())
	shows(t, c, o, "2/2/0 ReconcileSuccess: Attached on 2 of 2 selected nodes")
	envtest.Eventually(t, "an Event tells of the success", hasEvent(c, o, "ReconcileSuccess", func(note string) bool {
		return note == "Attached on 2 of 2 selected nodes"
	}))

	// After an edit, the status waits for all nodes.
	o.Spec.Names = append(o.Spec.Names, "syscalls/sys_enter_openat")
	must.Succeed(t, c.Update(t.Context(), o))
	shows(t, c, o, "2/0/0 NotYetLoaded: Attached on 0 of 2 selected nodes, waiting for follow-a, follow-b")
	report(t, c, o, "follow-a", v1alpha1.BpfProgCondLoaded.Condition())
	report(t, c, o, "follow-b", v1alpha1.BpfProgCondLoaded.Condition())
	shows(t, c, o, "2/2/0 ReconcileSuccess: Attached on 2 of 2 selected nodes")
}

// A deleted node blocks nothing, and leaves nothing.
func TestNodeGone(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "gone-a", map[string]string{"pool": "gone"})
	addNode(t, c, "gone-b", map[string]string{"pool": "gone"})
	o := tracepoint("gone", "gone")
	create(t, c, o)
	report(t, c, o, "gone-a", v1alpha1.BpfProgCondLoaded.Condition())
	left := report(t, c, o, "gone-b", v1alpha1.BpfProgCondNotLoaded.Condition("no"))
	shows(t, c, o, "2/1/1 ReconcileError: Failed on 1 node, attached on 1 of 2 selected nodes: gone-b: no")

	must.Succeed(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone-b"}}))
	shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	envtest.Eventually(t, "the program of the node that is gone is deleted", gone(c, left))
}

// A report from a node that was deleted while no operator was running.
func TestProgramWithoutNode(t *testing.T) {
	c := cluster(t)
	o := tracepoint("orphan", "nowhere")
	create(t, c, o)
	// Its status isn't written, because the operator can be faster.
	left := programOf(o, "never-was")
	create(t, c, left)
	envtest.Eventually(t, "it is deleted", gone(c, left))
}

func TestNodeLabelsSelect(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "label-a", nil)
	o := tracepoint("label", "label")
	create(t, c, o)
	shows(t, c, o, "0/0/0 ReconcileSuccess: No node matches the node selector")
	node := &corev1.Node{}
	must.Succeed(t, c.Get(t.Context(), types.NamespacedName{Name: "label-a"}, node))
	node.Labels = map[string]string{"pool": "label"}
	must.Succeed(t, c.Update(t.Context(), node))
	shows(t, c, o, "1/0/0 NotYetLoaded: Attached on 0 of 1 selected node, waiting for label-a")
}

// Only the operator writes the status. It replaces what others wrote with one condition at index 0.
func TestForeignStatusIsReplaced(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "foreign-a", map[string]string{"pool": "foreign"})
	o := tracepoint("foreign", "foreign")
	create(t, c, o)
	report(t, c, o, "foreign-a", v1alpha1.BpfProgCondLoaded.Condition())
	shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	bogus := v1alpha1.ProgramDeleteError.Condition("")
	bogus.LastTransitionTime = metav1.Now()
	o.Status.Conditions = append([]metav1.Condition{bogus}, o.Status.Conditions...)
	must.Succeed(t, c.Status().Update(t.Context(), o, client.FieldOwner(admin)))
	shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
}

// Nothing is written if nothing changes.
func TestStatusIsWrittenOnce(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "once-a", map[string]string{"pool": "once"})
	o, later := tracepoint("once", "once"), tracepoint("once-later", "once")
	create(t, c, o)
	report(t, c, o, "once-a", v1alpha1.BpfProgCondLoaded.Condition())
	shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	version := o.ResourceVersion

	p := report(t, c, o, "once-a", v1alpha1.BpfProgCondLoaded.Condition())
	p.Status.MapUsedBy = []string{"someone"}
	must.Succeed(t, c.Status().Update(t.Context(), p))
	// A later change shows that the earlier events were processed.
	create(t, c, later)
	report(t, c, later, "once-a", v1alpha1.BpfProgCondLoaded.Condition())
	shows(t, c, later, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	if o.ResourceVersion != version {
		t.Errorf("written again: %+v", o.Status)
	}
}

// One controller handles all kinds.
func TestEveryKindHasAStatus(t *testing.T) {
	c := cluster(t)
	for _, kind := range v1alpha1.UserKinds {
		t.Run(kind.Name, func(t *testing.T) {
			o := envtest.Object(t, kind, strings.ToLower(kind.Name)+"-status", envtest.Spec(kind.Name))
			common := o.GetAppCommon()
			common.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "no-such"}}
			o.SetAppCommon(common)
			create(t, c, o)
			envtest.Eventually(t, "status", func(ctx context.Context) error {
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
					return err
				}
				if len(o.GetStatus().Conditions) == 0 {
					return fmt.Errorf("status %+v", o.GetStatus())
				}
				return nil
			})
		})
	}
}
