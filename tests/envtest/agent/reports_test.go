// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// reportOf waits for the only report about a user object.
func (n *node) reportOf(owner string) v1alpha1.ProgramObject {
	n.t.Helper()
	var found v1alpha1.ProgramObject
	n.eventually("the report on "+owner, func() error {
		if all := n.reportsOn(owner); len(all) > 0 {
			found = all[0]
			return nil
		}
		return errors.New("there is none")
	})
	return found
}

// falsify changes a report, despite the admission policy.
func (n *node) falsify(owner string) {
	n.t.Helper()
	report := n.reportOf(owner)
	report.GetSpec().Maps = map[string]string{"counter": "/elsewhere"}
	must.Succeed(n.t, n.client.Update(context.Background(), report))
	v1alpha1.SetConditions(&report.GetStatus().Conditions, v1alpha1.BpfProgCondNotLoaded.Condition("a lie"))
	report.GetStatus().Links = nil
	must.Succeed(n.t, n.client.Status().Update(context.Background(), report))
}

// What others change or delete is repaired when the operator requests it. A wrong report
// about links doesn't affect the links.
func TestReportsThatOthersChange(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.create(n.tracepoint("deleted", "f", "a/x"))
	n.create(n.tracepoint("changed", "g", "b/y"))
	want := []string{"TracepointProgram/deleted f a/x", "TracepointProgram/changed g b/y"}
	n.holds(want...)
	held := n.daemon.Programs()
	n.delete(n.reportOf("deleted"))
	n.falsify("changed")
	n.relist(n.name)
	n.holds(want...)
	for i, p := range n.daemon.Programs() {
		if p.ID != held[i].ID || fmt.Sprint(p.Links) != fmt.Sprint(held[i].Links) {
			t.Errorf("%+v was %+v", p, held[i])
		}
	}
}

// A write that fails with a conflict shows the agent that others have written.
func TestAWriteThatOthersHaveOvertaken(t *testing.T) {
	n := start(t)
	deleted, changed := n.tracepoint("deleted", "f", "a/x"), n.tracepoint("changed", "g", "b/y")
	n.create(deleted)
	n.create(changed)
	n.holds("TracepointProgram/deleted f a/x", "TracepointProgram/changed g b/y")
	n.delete(n.reportOf("deleted"))
	n.falsify("changed")
	n.change(deleted, func() { deleted.Spec.Names = []string{"a/x", "c/z"} })
	n.change(changed, func() { changed.Spec.Names = []string{"b/y", "c/z"} })
	n.holds("TracepointProgram/deleted f a/x c/z", "TracepointProgram/changed g b/y c/z")
}

// While a node doesn't exist, the operator deletes its reports. They are created again
// when the node is back.
func TestANodeThatComesBack(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.create(n.tracepoint("back", "f", "a/x"))
	n.holds("TracepointProgram/back f a/x")
	label := map[string]string{"test": n.name}
	n.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}})
	n.delete(n.reportOf("back"))
	n.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: label}})
	n.holds("TracepointProgram/back f a/x")
}

// When the finalizer of a deleted report is removed, the agent gets no event, and
// creates the report again.
func TestAReportWhoseDeletionIsHeldUp(t *testing.T) {
	n := start(t)
	o := n.tracepoint("held-up", "f", "a/x")
	n.create(o)
	n.holds("TracepointProgram/held-up f a/x")
	report := n.reportOf("held-up")
	report.SetFinalizers([]string{"example.com/held"})
	must.Succeed(t, n.client.Update(context.Background(), report))
	n.delete(report)
	n.relist(n.name)
	n.change(o, func() { o.Spec.Names = []string{"a/x", "b/y"} })
	n.holds("TracepointProgram/held-up f a/x b/y")
	release := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	must.Succeed(t, n.client.Patch(context.Background(), n.reportOf("held-up"), release))
	n.eventually("another report", func() error {
		if now := n.reportOf("held-up"); now.GetUID() == report.GetUID() {
			return errors.New("it is the same")
		}
		return nil
	})
	n.holds("TracepointProgram/held-up f a/x b/y")
}

// Two agents on one node, as during a rollout for a moment, leave no unknown link and no
// wrong report, no matter which one acts.
func TestTwoAgentsOfOneNode(t *testing.T) {
	n := start(t)
	o := n.tracepoint("two", "f", "a/0")
	n.create(o)
	n.holds("TracepointProgram/two f a/0")
	other := &node{t: t, name: n.name, client: n.client, daemon: n.daemon, interfaces: n.interfaces, drift: time.Second}
	other.startAgent()
	t.Cleanup(func() { other.stop() })
	other.readiness(true, "")
	for i := range 5 {
		name := fmt.Sprintf("a/%d", i+1)
		n.change(o, func() { o.Spec.Names = []string{name} })
		n.holds("TracepointProgram/two f " + name)
	}
	n.crash()
	n.change(o, func() { o.Spec.Names = []string{"b/y"} })
	n.holds("TracepointProgram/two f b/y")
	n.startAgent() // the end of the test stops it
}
