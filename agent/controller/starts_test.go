// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// preceding returns a TcxProgram that is attached in pods with the label app: web before they start.
func preceding(name, policy string) string {
	if policy != "" {
		policy = `,"failurePolicy":"` + policy + `"`
	}
	return fmt.Sprintf(`{"metadata":{"name":"%s","uid":"uid-%s"},"spec":{"bpffunctionname":"f","direction":"ingress","priority":50,"bytecode":{"path":"/object.o"},"nodeselector":{},
		"interfaceselector":{"interfaces":["eth0"]},"containers":{"pods":{"matchLabels":{"app":"web"}},"attachment":"BeforeStart"%s}}}`, name, name, policy)
}

// sandbox returns a pod's sandbox before its first container.
func sandbox(pod string) program.Container {
	return program.Container{Namespace: "default", Pod: pod, PodUID: "uid-" + pod, PodLabels: map[string]string{"app": "web"}, Sandbox: "sandbox-" + pod, NetNS: "/proc/7/ns/net"}
}

// startWith starts a controller with programs that precede the starts of pods, and waits until they are loaded.
func startWith(t *testing.T, objects ...string) (*host, *apiServer, func()) {
	t.Helper()
	server := &apiServer{lists: map[string]string{"tcxprograms": strings.Join(objects, ",")}}
	h, stop := startController(t, server, func(o *Options) { o.WatchStarts = func(context.Context, program.Starts) {} })
	within(t, time.Minute, "loaded, and reported", func() bool { return len(h.daemon.Programs()) == len(objects) && h.reportsAgree(server) })
	<-time.After(time.Minute)
	return h, server, stop
}

// A pod's programs are attached when the call of the container runtime returns, even while the API server doesn't respond.
// What the API server doesn't have stays attached until the runtime says that it has ended.
func TestProgramsPrecedeTheStartOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, server, stop := startWith(t, preceding("one", ""), preceding("two", "Fail"))
		defer stop()
		server.drop(true)
		for n := 1; n <= 3; n++ {
			began := time.Now()
			if err := h.starting(t.Context(), sandbox(fmt.Sprint("web-", n))); err != nil {
				t.Fatal(err)
			}
			if links := h.links(); links != 2*n || time.Since(began) > 0 {
				t.Errorf("%d links after the start of pod %d, which waited %s", links, n, time.Since(began))
			}
		}
		other := sandbox("other")
		other.PodLabels = nil
		if err := h.starting(t.Context(), other); err != nil || h.links() != 6 {
			t.Errorf("%d links after the start of a pod that isn't selected: %v", h.links(), err)
		}
		h.facts.containers.refresh()
		<-time.After(time.Minute)
		if links := h.links(); links != 6 {
			t.Errorf("%d links after the container runtime was asked", links)
		}
		h.withdraw(t.Context(), func(of program.Container) bool { return of.Sandbox == "sandbox-web-2" })
		within(t, time.Second, "detached", func() bool { return h.links() == 4 })
	})
}

// A pod doesn't wait longer than startLimit for a daemon that hangs, and the next ones don't wait at all. Whether it starts is
// in the object.
func TestStartsDoNotWaitForAHangingDaemon(t *testing.T) {
	for _, policy := range []string{"", "Ignore", "Fail"} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, server, stop := startWith(t, preceding("one", policy))
				defer stop()
				hang := make(chan struct{})
				h.daemon.SetFault(func(call string, _ proto.Message, done bool) error {
					if call == "Attach" && !done {
						<-hang
					}
					return nil
				})
				for n, limit := range []time.Duration{startLimit, 0, 0} {
					began := time.Now()
					err := h.starting(t.Context(), sandbox(fmt.Sprint("web-", n)))
					if waited := time.Since(began); waited != limit {
						t.Errorf("pod %d waited %s", n, waited)
					}
					if (err != nil) != (policy == "Fail") {
						t.Errorf("the start of pod %d: %v", n, err)
					}
				}
				h.daemon.SetFault(nil)
				close(hang)
				<-time.After(time.Minute)
				const told = "pod default/web-0 started before the program was attached: this took longer than 1.5s"
				links := 3
				if policy == "Fail" {
					links = 0
				}
				within(t, time.Minute, "only the pods that run have it", func() bool { return h.links() == links && h.reportsAgree(server) })
				if said := h.Reports()[0].GetStatus().Conditions[0].Message; strings.Contains(said, told) == (policy == "Fail") {
					t.Errorf("the report says %q", said)
				}
				if err := h.starting(t.Context(), sandbox("web-4")); err != nil || h.links() != links+1 {
					t.Errorf("%d links after the daemon responds again: %v", h.links(), err)
				}
			})
		})
	}
}
