// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
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

// The containers are read when something says that those of a pod have changed, if an object selects the pod.
func TestPodsConcernTheirOwners(t *testing.T) {
	const selects = `{"metadata":{"name":"web","uid":"uid-web"},"spec":{"bpffunctionname":"f","direction":"ingress","priority":50,
		"interfaceselector":{"interfaces":["eth0"]},"containers":{"namespace":"","pods":{"matchLabels":{"app":"web"}}},"bytecode":{"path":"/object.o"},"nodeselector":{}}}`
	pod := func(app string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"app": app}}}
		change(p)
		return p
	}
	as := func(*corev1.Pod) {}
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}
	}
	runs := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{ContainerID: "1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	for name, c := range map[string]struct {
		event func(toolscache.ResourceEventHandler, func(string, map[string]string))
		reads int32
	}{
		"a pod": {func(h toolscache.ResourceEventHandler, _ func(string, map[string]string)) {
			h.OnAdd(pod("web", as), false)
		}, 1},
		"another pod": {func(h toolscache.ResourceEventHandler, _ func(string, map[string]string)) {
			h.OnAdd(pod("db", as), false)
		}, 0},
		"its sandbox": {func(h toolscache.ResourceEventHandler, _ func(string, map[string]string)) {
			h.OnUpdate(pod("web", as), pod("web", ready))
		}, 1},
		"its container": {func(h toolscache.ResourceEventHandler, _ func(string, map[string]string)) {
			h.OnUpdate(pod("web", ready), pod("web", runs))
		}, 1},
		"its label is removed": {func(h toolscache.ResourceEventHandler, _ func(string, map[string]string)) {
			h.OnUpdate(pod("web", as), pod("db", as))
		}, 1},
		"nothing that matters": {func(h toolscache.ResourceEventHandler, _ func(string, map[string]string)) {
			h.OnUpdate(pod("web", runs), pod("web", runs))
		}, 0},
		"a deleted pod": {func(h toolscache.ResourceEventHandler, _ func(string, map[string]string)) { h.OnDelete(pod("db", as)) }, 1},
		"the runtime's event": {func(_ toolscache.ResourceEventHandler, event func(string, map[string]string)) {
			event("default", map[string]string{"app": "web"})
		}, 1},
		"its event of another pod": {func(_ toolscache.ResourceEventHandler, event func(string, map[string]string)) { event("default", nil) }, 0},
		"its event about any pod":  {func(_ toolscache.ResourceEventHandler, event func(string, map[string]string)) { event("", nil) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reads atomic.Int32
				event := make(chan func(string, map[string]string), 1)
				server := &apiServer{lists: map[string]string{"tcxprograms": selects}}
				h, stop := startController(t, server, func(o *Options) {
					o.Containers = func(context.Context, []corev1.Pod) ([]program.Container, error) {
						reads.Add(1)
						return nil, nil
					}
					o.WatchContainers = func(_ context.Context, changed func(string, map[string]string), _ func(error)) { event <- changed }
				})
				defer stop()
				h.watchContainers(t.Context())
				<-time.After(time.Minute)
				before := reads.Load()
				c.event(h.onPod(t.Context()), <-event)
				<-time.After(time.Second)
				if got := reads.Load() - before; got != c.reads {
					t.Errorf("%d reads, want %d", got, c.reads)
				}
			})
		})
	}
}

// While a rollout, or a rollback on this node, has an older version of an object run here, its pods matter too.
func TestPodsConcernTheVersionThatRuns(t *testing.T) {
	const selects = `{"metadata":{"name":"web","uid":"uid-web","generation":%d},"spec":{"bpffunctionname":"f","direction":"ingress","priority":50,
		"interfaceselector":{"interfaces":["eth0"]},"containers":{"namespace":"","pods":{"matchLabels":{"app":%q}}},"bytecode":{"path":"/object.o"},"nodeselector":{}}}`
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		h, stop := startController(t, &apiServer{lists: map[string]string{"tcxprograms": fmt.Sprintf(selects, 2, "new")}}, func(o *Options) {
			o.Containers = func(context.Context, []corev1.Pod) ([]program.Container, error) {
				reads.Add(1)
				return nil, nil
			}
		})
		defer stop()
		<-time.After(time.Minute)
		readsFor := func(app string) int32 {
			before := reads.Load()
			h.onPod(t.Context()).OnAdd(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"app": app}}}, false)
			<-time.After(time.Second)
			return reads.Load() - before
		}
		version := func(generation int, app string) program.Owner {
			o := &v1alpha1.TcxProgram{}
			if err := json.Unmarshal(fmt.Appendf(nil, selects, generation, app), o); err != nil {
				t.Fatal(err)
			}
			return program.OwnerOf("TcxProgram", o)
		}
		runs := &h.reconciler.planner
		if readsFor("new") != 1 || readsFor("old") != 0 {
			t.Error("the newest version isn't the one that counts")
		}
		if !runs.follow(version(1, "old")) || runs.follow(version(1, "old")) {
			t.Error("what is known of the node is read again unless events were compared with this version")
		}
		if readsFor("new") != 1 || readsFor("old") != 1 {
			t.Error("the version that runs doesn't count")
		}
		if runs.follow(version(2, "new")) || readsFor("old") != 0 {
			t.Error("the older version still counts")
		}
	})
}
