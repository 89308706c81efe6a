// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// startListing is startWith with a container runtime that lists what the pointer has.
func startListing(t *testing.T, object string) (*host, *atomic.Pointer[[]program.Container], func()) {
	t.Helper()
	listed := &atomic.Pointer[[]program.Container]{}
	listed.Store(&[]program.Container{})
	h, stop := startController(t, &apiServer{lists: map[string]string{"tcxprograms": object}}, func(o *Options) {
		o.WatchStarts = func(context.Context, program.Starts) {}
		o.Containers = func(context.Context, []corev1.Pod) ([]program.Container, error) {
			return slices.Clone(*listed.Load()), nil
		}
	})
	within(t, time.Minute, "loaded", func() bool { return len(h.daemon.Programs()) == 1 })
	<-time.After(time.Minute)
	return h, listed, stop
}

// networks returns the network namespaces of the daemon's links.
func (h *host) networks() string {
	var all []string
	for _, p := range h.daemon.Programs() {
		for _, link := range p.Links {
			all = append(all, link.GetTcxAttachInfo().GetNetns())
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// A runtime that abandons a start doesn't report an end. The pod's programs are detached once a list shows that, and not if
// the runtime lists the pod although the API server lacks it.
func TestAbandonedStarts(t *testing.T) {
	for name, there := range map[string]bool{"abandoned": false, "listed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, listed, stop := startListing(t, preceding("one", ""))
				defer stop()
				if err := h.starting(t.Context(), sandbox("web")); err != nil || h.links() != 1 {
					t.Fatalf("%d links: %v", h.links(), err)
				}
				if there {
					unknown := sandbox("web")
					unknown.Deleted = true
					listed.Store(&[]program.Container{unknown})
				}
				h.facts.containers.refresh()
				<-time.After(abandonedAfter - time.Second)
				if h.links() != 1 {
					t.Error("detached while the runtime may be starting it")
				}
				<-time.After(time.Minute)
				if is, announced := h.links() == 1, len(h.facts.announced.all()) == 1; is != there || announced != there {
					t.Errorf("attached: %v, announced: %v", is, announced)
				}
			})
		})
	}
}

// A container can start when its sandbox isn't known anymore, because its image took long to be pulled, and the API server hasn't
// sent the pod. The programs of the pod precede it.
func TestContainerOfASandboxThatWasForgotten(t *testing.T) {
	for name, fails := range map[string]bool{"attached": false, "the daemon refuses": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _, stop := startListing(t, preceding("one", "Fail"))
				defer stop()
				if err := h.starting(t.Context(), sandbox("web")); err != nil || h.links() != 1 {
					t.Fatalf("%d links: %v", h.links(), err)
				}
				<-time.After(abandonedAfter + time.Minute)
				if h.links() != 0 {
					t.Fatal("the sandbox wasn't abandoned")
				}
				if fails {
					h.daemon.SetFault(func(call string, _ proto.Message, _ bool) error {
						if call == "Attach" {
							return status.Error(codes.Aborted, "no")
						}
						return nil
					})
				}
				of := sandbox("web")
				of.Name, of.ID, of.PID = "web", "c", 9
				if err := h.starting(t.Context(), of); (err != nil) != fails || (h.links() == 1) == fails {
					t.Errorf("%d links when the container starts: %v", h.links(), err)
				}
			})
		})
	}
}

// A list that began before the one that has a new pod doesn't have it detached.
func TestAnnouncedDuringAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &facts{}
		f.announced.add(sandbox("web"))
		var listed atomic.Pointer[[]program.Container]
		listed.Store(&[]program.Container{})
		f.containers = newSnapshot("the runtime", &f.moments, func(context.Context) ([]program.Container, error) {
			return *listed.Load(), nil
		}, func(_ context.Context, _, now []program.Container, _ moment) { f.announced.listed(now) })
		f.podInterfaces = newSnapshot("the interfaces", &f.moments, func(ctx context.Context) ([]program.Container, error) {
			last, err := f.containers.get(ctx, 0)
			if err != nil {
				return nil, err
			}
			<-time.After(time.Second)
			return last.value, nil
		}, func(context.Context, []program.Container, []program.Container, moment) {})
		found := make(chan []program.Container)
		go func() {
			running, err := f.running(t.Context(), &since{}, true)
			if err != nil {
				t.Error(err)
			}
			found <- running
		}()
		<-time.After(time.Second / 2)
		listed.Store(&[]program.Container{sandbox("web")})
		if _, err := f.containers.get(t.Context(), f.event()); err != nil {
			t.Error(err)
		}
		if running := <-found; len(running) != 1 {
			t.Errorf("%+v run", running)
		}
		if all := f.announced.all(); len(all) != 0 {
			t.Errorf("%+v stay announced", all)
		}
	})
}

// A program is attached in the new sandbox of a pod, whether the last list has the earlier one, or the runtime has abandoned it.
func TestAnotherSandboxOfAPod(t *testing.T) {
	for name, abandoned := range map[string]bool{"listed": false, "abandoned": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, listed, stop := startListing(t, preceding("one", ""))
				defer stop()
				first, second := sandbox("web"), sandbox("web")
				second.Sandbox, second.NetNS = "another", "/proc/8/ns/net"
				if abandoned {
					if err := h.starting(t.Context(), first); err != nil {
						t.Fatal(err)
					}
				} else {
					of := first
					of.Name, of.ID, of.PID = "web", "c", 9
					listed.Store(&[]program.Container{first, of})
					h.facts.containers.refresh()
				}
				within(t, time.Minute, "attached", func() bool { return h.networks() == "/host/proc/7/ns/net" })
				if err := h.starting(t.Context(), second); err != nil {
					t.Error(err)
				}
				if is := h.networks(); is != "/host/proc/8/ns/net" {
					t.Errorf("attached in %q", is)
				}
			})
		})
	}
}

// The kernel gives the number of a network namespace to the next one, and daemons take both for the same: a pod's links are
// detached when its sandbox ends, although the last list has it, and before programs of any object are attached in the next pod.
func TestNextPodHasTheNumberOfAnEndedNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listed := &atomic.Pointer[[]program.Container]{}
		first := sandbox("first")
		listed.Store(&[]program.Container{first})
		objects := strings.Join([]string{preceding("one", "Fail"), preceding("two", "Fail")}, ",")
		h, stop := startController(t, &apiServer{lists: map[string]string{"tcxprograms": objects}}, func(o *Options) {
			o.WatchStarts = func(context.Context, program.Starts) {}
			o.Containers = func(context.Context, []corev1.Pod) ([]program.Container, error) {
				return slices.Clone(*listed.Load()), nil
			}
		})
		defer stop()
		within(t, time.Minute, "attached", func() bool { return h.links() == 2 })
		<-time.After(time.Minute)
		h.daemon.SetFault(func(call string, _ proto.Message, done bool) error {
			if call != "Attach" || done {
				return nil
			}
			for _, p := range h.daemon.Programs() {
				for _, link := range p.Links {
					if link.GetTcxAttachInfo().GetNetns() == "/host/proc/7/ns/net" {
						return status.Error(codes.Aborted, "`bpf_mprog_attach` failed")
					}
				}
			}
			return nil
		})
		h.ended(t.Context(), first.Sandbox)
		synctest.Wait()
		second := sandbox("second")
		second.NetNS = "/proc/8/ns/net"
		if err := h.starting(t.Context(), second); err != nil || h.networks() != "/host/proc/8/ns/net /host/proc/8/ns/net" {
			t.Errorf("attached in %q: %v", h.networks(), err)
		}
		listed.Store(&[]program.Container{second})
		h.facts.containers.refresh()
		<-time.After(time.Minute)
		if left := len(h.facts.ended.of); left != 0 || h.links() != 2 {
			t.Errorf("%d ended sandboxes are known, and there are %d links", left, h.links())
		}
	})
}

// The end of a pod is in no list from before it.
func TestEndsAskForAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, listed, stop := startListing(t, preceding("one", ""))
		defer stop()
		if err := h.starting(t.Context(), sandbox("web")); err != nil {
			t.Fatal(err)
		}
		unknown := sandbox("web") // to the API server
		unknown.Deleted = true
		listed.Store(&[]program.Container{unknown})
		h.facts.containers.refresh()
		synctest.Wait()
		listed.Store(&[]program.Container{})
		h.withdraw(t.Context(), func(program.Container) bool { return true })
		within(t, time.Second, "detached", func() bool { return h.links() == 0 })
	})
}
