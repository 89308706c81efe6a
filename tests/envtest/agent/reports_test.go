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
)

// reportOf waits for the only report on a user object.
func (n *node) reportOf(owner string) v1alpha1.ProgramObject {
	n.t.Helper()
	var found v1alpha1.ProgramObject
	n.eventually("the report on "+owner, func() error {
		objects, err := n.programs()
		for _, o := range objects {
			if ref := metav1.GetControllerOf(o); ref != nil && ref.Name == owner {
				found = o
				return err
			}
		}
		return errors.Join(errors.New("there is none"), err)
	})
	return found
}

// falsify plays somebody who writes reports in spite of the admission policy.
func (n *node) falsify(owner string) {
	n.t.Helper()
	report := n.reportOf(owner)
	report.GetSpec().Maps = map[string]string{"counter": "/elsewhere"}
	if err := n.client.Update(context.Background(), report); err != nil {
		n.t.Fatal(err)
	}
	v1alpha1.SetCondition(&report.GetStatus().Conditions, v1alpha1.BpfProgCondNotLoaded.Condition("a lie"))
	report.GetStatus().Links = nil
	if err := n.client.Status().Update(context.Background(), report); err != nil {
		n.t.Fatal(err)
	}
}

// What others change and delete is mended when the operator says so; a lie about links
// doesn't touch them.
func TestReportsThatOthersChange(t *testing.T) {
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

// A write that fails because others have written shows the agent that they did.
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

// While a node is gone, the operator deletes its reports. They are there again when the
// node is.
func TestANodeThatComesBack(t *testing.T) {
	n := start(t)
	n.create(n.tracepoint("back", "f", "a/x"))
	n.holds("TracepointProgram/back f a/x")
	label := map[string]string{"test": n.name}
	n.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}})
	n.delete(n.reportOf("back"))
	n.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: label}})
	n.holds("TracepointProgram/back f a/x")
}

// A report whose deletion somebody holds up goes without a word to the agent, when
// nobody does any more.
func TestAReportWhoseDeletionIsHeldUp(t *testing.T) {
	n := start(t)
	o := n.tracepoint("held-up", "f", "a/x")
	n.create(o)
	n.holds("TracepointProgram/held-up f a/x")
	report := n.reportOf("held-up")
	report.SetFinalizers([]string{"example.com/held"})
	if err := n.client.Update(context.Background(), report); err != nil {
		t.Fatal(err)
	}
	n.delete(report)
	n.relist(n.name)
	n.change(o, func() { o.Spec.Names = []string{"a/x", "b/y"} })
	n.holds("TracepointProgram/held-up f a/x b/y")
	release := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := n.client.Patch(context.Background(), n.reportOf("held-up"), release); err != nil {
		t.Fatal(err)
	}
	n.eventually("another report", func() error {
		if now := n.reportOf("held-up"); now.GetUID() == report.GetUID() {
			return errors.New("it is the same")
		}
		return nil
	})
	n.holds("TracepointProgram/held-up f a/x b/y")
}

// Two agents of a node, as for a moment while one replaces the other, leave no link
// unknown and no report wrong, whichever acts.
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
	n.startAgent() // which the test's end stops
}
