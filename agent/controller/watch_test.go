// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// A deletion that the watch missed is handled after the next list.
func TestDeletionsAreHandled(t *testing.T) {
	var deleted []string
	h := handler[*corev1.Pod]{deleted: func(last *corev1.Pod) { deleted = append(deleted, last.Name) }}
	h.OnDelete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "seen"}})
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "unseen"}}})
	h.OnAdd(&corev1.Pod{}, true)                      // handler has no function for it
	h.OnUpdate(&corev1.Pod{}, &corev1.Pod{})          // see above
	h.OnDelete(toolscache.DeletedFinalStateUnknown{}) // without the object
	if len(deleted) != 2 || deleted[0] != "seen" || deleted[1] != "unseen" {
		t.Errorf("deleted are %q", deleted)
	}
}

// If the Node was deleted and created again while the watch was interrupted, the watch delivers an update. The operator has
// deleted the node's reports, so the agent lists them.
func TestANodeThatWasReplacedUnseen(t *testing.T) {
	for name, c := range map[string]struct {
		uid    types.UID
		listed bool
	}{"the same": {"first", false}, "another": {"second", true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &apiServer{lists: map[string]string{}}
				h, stop := startController(t, server, nil)
				defer stop()
				<-time.After(time.Minute)
				before := server.listed("bpfprograms")
				h.onNode(t.Context()).OnUpdate(&corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "first"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: c.uid}})
				<-time.After(time.Minute)
				if got := server.listed("bpfprograms") > before; got != c.listed {
					t.Errorf("reports are listed: %v", got)
				}
			})
		})
	}
}

// An interface concerns the owners that can be attached to it, and no others.
func TestInterfacesConcernTheirOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{lists: map[string]string{
			"tcxprograms": discovering("net"), "tracepointprograms": `{"metadata":{"name":"trace","uid":"uid-trace"},
			"spec":{"bpffunctionname":"f","names":["a/x"],"bytecode":{"path":"/object.o"},"nodeselector":{}}}`,
			"xdpprograms": `{"metadata":{"name":"named","uid":"uid-named"},"spec":{"bpffunctionname":"f","priority":50,
				"interfaceselector":{"interfaces":["eth0"]},"bytecode":{"path":"/object.o"},"nodeselector":{}}}`,
		}}
		h, stop := startController(t, server, nil)
		within(t, time.Minute, "attached", func() bool { return h.links() == 3 })
		stop() // nobody takes what is queued
		h.queue = newQueue("programs", nil, &h.facts.moments)
		defer h.queue.ShutDown()
		h.appears(t.Context(), "eth1")
		synctest.Wait()
		if h.queue.Len() != 1 {
			t.Fatalf("%d are queued", h.queue.Len())
		}
		if key, _ := h.queue.Get(); key.Name != "net" {
			t.Errorf("%s is queued", key)
		}
	})
}
