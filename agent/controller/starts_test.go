// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
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

// Of a pod whose namespaces the container runtime doesn't report, it isn't known whether it has a network of its own: the
// program is late.
func TestStartOfAPodWithoutNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, stop := startWith(t, preceding("one", "Fail"))
		defer stop()
		unknown := sandbox("web")
		unknown.NetNS, unknown.Err = "", errors.New("the container runtime doesn't report the pod's namespaces")
		if err := h.starting(t.Context(), unknown); err == nil || !strings.Contains(err.Error(), unknown.Err.Error()) {
			t.Errorf("the start: %v", err)
		}
		unknown.Name, unknown.ID, unknown.PID = "app", "c", 9
		if err := h.starting(t.Context(), unknown); err == nil {
			t.Error("its container starts")
		}
	})
}

// Starts wait for the slow objects of a namespace for a limited time in total, so that a tenant hardly delays the starts of
// others. They always wait for cluster-scoped objects.
func TestStartsWaitForATenantForALimitedTime(t *testing.T) {
	const pods, slow, between = 20, 2 * time.Second, time.Second
	for resource, test := range map[string]struct {
		object string
		limit  time.Duration
	}{
		"tcxprograms":   {preceding("one", ""), pods * startLimit},
		"tcxnsprograms": {strings.Replace(preceding("one", ""), `"name":"one"`, `"name":"one","namespace":"default"`, 1), patienceAtOnce + 2*time.Second},
	} {
		t.Run(resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, stop := startController(t, &apiServer{lists: map[string]string{resource: test.object}}, func(o *Options) { o.WatchStarts = func(context.Context, program.Starts) {} })
				defer stop()
				within(t, time.Minute, "loaded", func() bool { return len(h.daemon.Programs()) == 1 })
				<-time.After(time.Minute)
				h.daemon.SetFault(func(call string, _ proto.Message, done bool) error {
					if call == "Attach" && !done {
						<-time.After(slow)
					}
					return nil
				})
				var waited time.Duration
				for n := range pods {
					began := time.Now()
					if err := h.starting(t.Context(), sandbox(fmt.Sprint("web-", n))); err != nil {
						t.Fatal(err)
					}
					waited += time.Since(began)
					within(t, time.Minute, "attached", func() bool { return h.links() == n+1 })
					<-time.After(between)
				}
				if waited > test.limit || waited < test.limit-2*time.Second {
					t.Errorf("%d starts have waited %s, instead of about %s", pods, waited, test.limit)
				}
				<-time.After(time.Minute)
				said, tenant := h.Reports()[0].GetStatus().Conditions[0].Message, resource == "tcxnsprograms"
				if strings.Contains(said, errStartImpatient.Error()) != tenant {
					t.Errorf("the report says %q", said)
				}
			})
		})
	}
}

// The agent connects to the container runtime when each pod that ran before has its programs: a pass that can't decide which
// these are doesn't count. A node whose daemon doesn't respond connects, too.
func TestConnectsWhenTheAgentHasCaughtUp(t *testing.T) {
	for name, away := range map[string]time.Duration{"the daemon responds": 0, "it responds late": 5 * time.Second, "it doesn't respond": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, connected := time.Now(), make(chan time.Duration, 1)
				d := daemontest.New(t.TempDir())
				d.SetFault(func(string, proto.Message, bool) error {
					if time.Since(began) < away {
						return status.Error(codes.Unavailable, "connection refused")
					}
					return nil
				})
				h, stop := startController(t, &apiServer{lists: map[string]string{"tcxprograms": preceding("one", "")}}, func(o *Options) {
					o.Inventory = daemon.NewInventory(d, d.Root)
					o.WatchStarts = func(context.Context, program.Starts) { connected <- time.Since(began) }
				})
				defer stop()
				h.watchStarts(t.Context())
				after := <-connected
				if after < min(away, startsBehind) || after > startsBehind+10*time.Second || away == 0 && after > startsBehind/2 {
					t.Errorf("connected after %s", after)
				}
			})
		})
	}
}

// Starts don't wait for objects of which this node runs nothing.
func TestStartsWaitForObjectsOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deleted := strings.Replace(preceding("deleted", ""), `"metadata":{`, `"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z",`, 1)
		elsewhere := strings.Replace(preceding("elsewhere", ""), `"nodeselector":{}`, `"nodeselector":{"matchLabels":{"zone":"b"}}`, 1)
		h, stop := startController(t, &apiServer{lists: map[string]string{"tcxprograms": strings.Join([]string{preceding("one", ""), deleted, elsewhere}, ",")}}, nil)
		defer stop()
		<-time.After(time.Minute)
		if owners := h.preceding(t.Context(), sandbox("web")); len(owners) != 1 || owners[0].Name != "one" {
			t.Errorf("%+v precede the start", owners)
		}
	})
}

// A start that the runtime has abandoned isn't announced: nothing reports its end.
func TestStartThatIsAbandonedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, stop := startWith(t, preceding("one", ""))
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.starting(ctx, sandbox("web")); err != nil {
			t.Error(err)
		}
		<-time.After(time.Minute)
		if h.links() != 0 {
			t.Errorf("%d links", h.links())
		}
	})
}

// While a change waits to be confirmed, starts are answered although the reports wait.
func TestStartsDuringATrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		o := tcx("bad", named("eth1"))
		owner := program.OwnerOf(kind, o)
		version, err := confirm.VersionOf(kind, o)
		if err != nil {
			t.Fatal(err)
		}
		all := newStarts(true)
		waits := all.wait(owner.Key, sandbox("web"))
		passing := all.take(owner.Key)
		_, _, _, err = v.reconciler.runVersion(t.Context(), owner.Key, assignment{owner: &owner, version: version, governed: true, starting: passing})
		if waiting := (*waitingError)(nil); !errors.As(err, &waiting) {
			t.Fatalf("the change isn't tried: %v", err)
		}
		passing.undecided(err)
		if got := <-waits.answer; got.err != nil {
			t.Errorf("%v", got.err)
		}
		if !all.hasPassed(owner.Key) {
			t.Error("the pass doesn't count")
		}
	})
}

// A pass that ends at the moment at which a start has waited too long counts: the next starts wait for the next pass.
func TestPassThatEndsAsAStartGivesUp(t *testing.T) {
	none := func(program.Key) []daemon.Program { return nil }
	for name, end := range map[string]func(*pass){
		"decided":   func(p *pass) { p.decided(plan.Plan{}, none, report.Outcome{}); p.undecided(nil) },
		"undecided": func(p *pass) { p.undecided(errStartTooLong) },
	} {
		t.Run(name, func(t *testing.T) {
			s, key := newStarts(true), program.Key{Name: "one"}
			waiting := s.wait(key, sandbox("web"))
			end(s.take(key))
			if got := s.tooLong(key, waiting, errStartTooLong); (got.err == nil) != (name == "decided") {
				t.Errorf("the start gets %v", got.err)
			}
			if s.wait(key, sandbox("next")) == nil {
				t.Error("the next start doesn't wait, although no pass is overdue")
			}
		})
	}
}

// What is known of the starts of an object's pods ends with the object, and who has had a pass with the connection.
func TestStartsAreForgotten(t *testing.T) {
	s, key := newStarts(true), program.Key{Name: "one"}
	s.remember(key, sandbox("web"), []report.Late{{Function: "f", Err: errStartTooLong}})
	s.take(key).undecided(nil)
	if !s.hasPassed(key) {
		t.Error("the pass doesn't count")
	}
	s.connecting()
	s.take(key).undecided(nil)
	s.forget(key)
	if len(s.late) != 0 || len(s.passed) != 0 {
		t.Errorf("%v and %v are known", s.late, s.passed)
	}
}

// What is known of the start of a pod isn't forgotten while the program can't be loaded, or the pod's interfaces aren't known:
// it is said when the program is attached there.
func TestStartsBeforeAttachPointsAreKnown(t *testing.T) {
	o := tcx("one", everywhere)
	o.Spec.Containers = &v1alpha1.ContainerSelector{Attachment: v1alpha1.AttachBeforeStart}
	owner := program.OwnerOf(kind, o)
	seen, unseen := sandbox("web"), sandbox("web")
	seen.Interfaces, unseen.InterfacesErr = []string{"eth0"}, program.ErrUnseen
	planned := func(there ...program.Container) plan.Plan {
		return plan.Want(owner, program.Node{Interfaces: map[string]program.Interface{}, Containers: there}, nil)
	}
	for name, test := range map[string]struct {
		meanwhile plan.Plan
		said      int
	}{
		"blocked":  {plan.Plan{Blocked: []plan.Blocked{{Member: owner.Members[0]}}}, 1},
		"unseen":   {planned(unseen), 1},
		"it ended": {planned(), 0},
	} {
		s := newStarts(true)
		s.lacking = nil
		s.remember(owner.Key, sandbox("web"), []report.Late{{Function: owner.Members[0].LoadInfo().GetName(), Err: errStartTooLong}})
		s.noted(owner.Key, test.meanwhile)
		attached := s.noted(owner.Key, planned(seen))
		if said := attached.Loads[0].Programs[0].Starts; len(said) != test.said {
			t.Errorf("%s: %q is said", name, said)
		}
	}
}

// What is known of the start of a pod ends with the pod, even while a program's attach points are unknown.
func TestStartsOfEndedPodsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unknown := strings.Replace(preceding("one", ""), `"interfaces":["eth0"]`, `"primarynodeinterface":true`, 1)
		h, _, stop := startWith(t, unknown) // the node has no primary interface
		defer stop()
		for _, pod := range []string{"web-1", "web-2", "web-3"} {
			if err := h.starting(t.Context(), sandbox(pod)); err != nil {
				t.Fatal(err)
			}
		}
		known := func() int {
			<-time.After(time.Minute)
			h.starts.mu.Lock()
			defer h.starts.mu.Unlock()
			n := 0
			for _, late := range h.starts.late {
				n += len(late)
			}
			return n
		}
		if n := known(); n != 3 {
			t.Fatalf("%d starts are known of 3 pods", n)
		}
		h.withdraw(t.Context(), func(of program.Container) bool { return of.Sandbox == "sandbox-web-2" })
		if n := known(); n != 2 {
			t.Errorf("%d starts are known after a pod has ended", n)
		}
		h.withdraw(t.Context(), func(program.Container) bool { return true })
		if n := known(); n != 0 || len(h.starts.late) != 0 {
			t.Errorf("%d starts are known after all pods have ended", n)
		}
	})
}
