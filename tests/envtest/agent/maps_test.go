// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// sharer is a program that uses the maps of another.
func (n *node) sharer(name, function, owner string, names ...string) *v1alpha1.TracepointProgram {
	o := n.tracepoint(name, function, names...)
	o.Spec.MapOwnerSelector = metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelOwnedByProgram: owner}}
	return o
}

// shares waits until a user object's program uses the maps of another's, and
// returns the latter's id.
func (n *node) shares(user, owner string) (id uint32) {
	n.t.Helper()
	n.eventually(user+" to use the maps of "+owner, func() error {
		objects, err := n.programs()
		if err != nil {
			return err
		}
		status := map[string]*v1alpha1.BpfProgramStatus{}
		for _, o := range objects {
			status[o.GetLabels()[v1alpha1.LabelOwnedByProgram]] = o.GetStatus()
		}
		of, by := status[owner], status[user]
		if of == nil || by == nil || of.ProgramID == 0 || by.MapOwnerID == nil || *by.MapOwnerID != of.ProgramID {
			return fmt.Errorf("owner %+v, user %+v", of, by)
		}
		id = of.ProgramID
		return nil
	})
	return id
}

// The life of shared maps: whoever is to use them waits for their owner and
// follows it to its successor, and keeps running when it goes.
func TestSharedMaps(t *testing.T) {
	n := start(t)
	n.daemon.PinnedByName = true
	user := n.sharer("user", "g", "owner", "b/y")
	n.create(user)
	n.says("user", v1alpha1.BpfProgCondMapOwnerNotFound, "no program on this node matches mapownerselector bpfman.io/ownedByProgram=owner")

	owner := n.tracepoint("owner", "f", "a/x")
	n.create(owner)
	n.holds("TracepointProgram/owner f a/x", "TracepointProgram/user g b/y")
	before := n.shares("user", "owner")

	n.change(owner, func() { owner.Spec.GlobalData = map[string][]byte{"sampling": {1}} })
	n.eventually("the owner's reload", func() error {
		for _, p := range n.daemon.Programs() {
			if p.ID == before {
				return fmt.Errorf("program %d is still there", before)
			}
		}
		return nil
	})
	n.holds("TracepointProgram/owner f a/x", "TracepointProgram/user g b/y")
	if after := n.shares("user", "owner"); after == before {
		t.Errorf("still the maps of program %d", before)
	}

	n.delete(owner)
	n.says("user", v1alpha1.BpfProgCondMapOwnerNotFound, "keeps running")
	n.delete(user)
	n.holds()
}

// What would count into maps that nobody sees isn't left running.
func TestMapsThatTheDaemonDoesNotShare(t *testing.T) {
	n := start(t)
	owner := n.tracepoint("owner", "f", "a/x")
	n.create(owner)
	n.holds("TracepointProgram/owner f a/x")
	id := n.daemon.Programs()[0].ID
	n.create(n.sharer("user", "g", "owner", "b/y"))
	n.says("user", v1alpha1.BpfProgCondNotLoaded, fmt.Sprintf("the maps of program %d are not shared", id))
	n.eventually("the owner alone", func() error {
		if held := n.daemon.Programs(); len(held) != 1 || held[0].ID != id {
			return fmt.Errorf("%v", held)
		}
		return nil
	})
}
