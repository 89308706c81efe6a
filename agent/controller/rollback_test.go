// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/load"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/record"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/figures"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// callTime is how long the daemon takes for a call.
	callTime = 80 * time.Millisecond
	// manyInterfaces is the number of interfaces of the node.
	manyInterfaces = 300
	// confirmLimit is the default of the time limit.
	confirmLimit = 30 * time.Second
	// kind is that of the object that is rolled back.
	kind = "TcxProgram"
)

// slowDaemon takes time for each call.
type slowDaemon struct{ *daemontest.Daemon }

func (d slowDaemon) Load(ctx context.Context, in *gobpfman.LoadRequest, o ...grpc.CallOption) (*gobpfman.LoadResponse, error) {
	<-time.After(callTime)
	return d.Daemon.Load(ctx, in, o...)
}

func (d slowDaemon) Unload(ctx context.Context, in *gobpfman.UnloadRequest, o ...grpc.CallOption) (*gobpfman.UnloadResponse, error) {
	<-time.After(callTime)
	return d.Daemon.Unload(ctx, in, o...)
}

func (d slowDaemon) Attach(ctx context.Context, in *gobpfman.AttachRequest, o ...grpc.CallOption) (*gobpfman.AttachResponse, error) {
	<-time.After(callTime)
	return d.Daemon.Attach(ctx, in, o...)
}

func (d slowDaemon) Detach(ctx context.Context, in *gobpfman.DetachRequest, o ...grpc.CallOption) (*gobpfman.DetachResponse, error) {
	<-time.After(callTime)
	return d.Daemon.Detach(ctx, in, o...)
}

// noPolicies is a cluster without policies.
type noPolicies struct{}

func (noPolicies) Policies() ([]*v1alpha1.BytecodePolicy, error) { return nil, nil }

func (noPolicies) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return nil, errors.New("no Secret")
}

func (noPolicies) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) {
	return nil, errors.New("no ConfigMap")
}

// nodes is an API server that only lists one node, no pods, and the report of one program on the node if that has an ID.
type nodes struct{ program *atomic.Uint32 }

func (n nodes) RoundTrip(request *http.Request) (*http.Response, error) {
	const reports = "/apis/bpfman.io/v1alpha1/bpfprograms"
	query := request.URL.Query()
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: request, Body: http.NoBody}
	switch {
	case request.URL.Path == reports:
		list := &v1alpha1.BpfProgramList{}
		list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("BpfProgramList"))
		if id := n.program.Load(); id != 0 {
			list.Items = []v1alpha1.BpfProgram{{ObjectMeta: metav1.ObjectMeta{
				Name: "owner", Labels: shared, OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "owner", UID: "owner", Controller: new(true)}},
			}, Status: v1alpha1.BpfProgramStatus{ProgramID: id}}}
		}
		text, err := json.Marshal(list)
		if err != nil {
			return nil, fmt.Errorf("encode the report: %w", err)
		}
		response.Body = io.NopCloser(bytes.NewReader(text))
	case request.URL.Path != "/api/v1/nodes" && request.URL.Path != "/api/v1/pods":
		return nil, errors.New("no response")
	case query.Get("sendInitialEvents") != "":
		response.StatusCode = http.StatusInternalServerError // so that the reflector falls back to a list
	case query.Get("watch") != "":
		body, events := io.Pipe()
		context.AfterFunc(request.Context(), func() { _ = events.CloseWithError(request.Context().Err()) })
		response.Body = body
	case request.URL.Path == "/api/v1/pods":
		response.Body = io.NopCloser(strings.NewReader(`{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}`))
	default:
		list, err := json.Marshal(&corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node"}}},
		})
		if err != nil {
			return nil, fmt.Errorf("encode the node: %w", err)
		}
		response.Body = io.NopCloser(bytes.NewReader(list))
	}
	return response, nil
}

// shared are the labels of a program whose maps others share.
var shared = map[string]string{"maps": "shared"}

// victim is a node that a version with the function bad cuts off.
type victim struct {
	t          testing.TB
	daemon     slowDaemon
	reconciler *reconciler
	// shared is the ID of a program whose maps others share.
	shared *atomic.Uint32

	mu sync.Mutex
	// silent is when the first request had no response.
	silent time.Time
	// ends is when an outage ends, in which no request has a response. Programs don't cut off the node then or later.
	ends time.Time
	// interfaces are those of the node.
	interfaces map[string]program.Interface
	// reads counts the reads of the interfaces.
	reads int
}

// openChanges returns Changes without records.
func openChanges(tb testing.TB, limit time.Duration) *confirm.Changes {
	tb.Helper()
	changes, proc := &confirm.Changes{Limit: limit}, tb.TempDir()
	random := filepath.Join(proc, "sys/kernel/random")
	if err := errors.Join(os.MkdirAll(random, 0o700), os.WriteFile(filepath.Join(random, "boot_id"), []byte("boot"), 0o600), changes.Open(tb.TempDir(), proc)); err != nil {
		tb.Fatal(err)
	}
	return changes
}

func newVictim(tb testing.TB, limit time.Duration) *victim {
	tb.Helper()
	var shared atomic.Uint32
	server, err := cluster.New(&rest.Config{Host: "http://server", Transport: nodes{&shared}}, "agent", "node", "", logr.Discard())
	if err == nil {
		err = server.Serve(nil)
	}
	if err != nil {
		tb.Fatal(err)
	}
	listed := make(chan struct{})
	server.Watch(tb.Context(), cluster.NodeKind, toolscache.ResourceEventHandlerFuncs{}, func() { close(listed) })
	<-listed
	v := &victim{t: tb, daemon: slowDaemon{daemontest.New(tb.TempDir())}, shared: &shared}
	inventory := daemon.NewInventory(v.daemon, v.daemon.Root)
	v.interfaces = map[string]program.Interface{}
	for n := range manyInterfaces {
		v.interfaces[fmt.Sprintf("eth%d", n)] = program.Interface{Index: n + 1}
	}
	reports := &record.Reports{Cluster: server, NodeName: "node", Changed: func() {}}
	changes := openChanges(tb, limit)
	changes.Ask = v.ask
	v.reconciler = &reconciler{
		queue: newQueue("programs", nil, nil), reports: reports, inventory: inventory, changes: changes,
		planner: planner{cluster: server, reports: reports, nodeName: "node", starts: newStarts(false), facts: newFacts(Options{
			Cluster: server, PodInterfaces: func([]program.Container) {}, Interfaces: func() (map[string]program.Interface, error) {
				v.mu.Lock()
				defer v.mu.Unlock()
				v.reads++
				return maps.Clone(v.interfaces), nil
			},
		}, func(context.Context, program.Change, since) {})},
		policies: &gate.Policies{Cluster: noPolicies{}},
		loader:   load.New(load.Options{Inventory: inventory}),
	}
	tb.Cleanup(v.reconciler.queue.ShutDown)
	changes.Undo, changes.Changed = v.reconciler.undo, func(program.Key) {}
	go func() { _ = changes.Run(tb.Context()) }()
	return v
}

// attached returns the interfaces of the node with a function.
func (v *victim) attached(function string) []string {
	var all []string
	for _, p := range v.daemon.Programs() {
		for _, link := range p.Links {
			if to := link.GetTcxAttachInfo(); p.Function == function && to.GetNetns() == "" {
				all = append(all, to.GetIface())
			}
		}
	}
	return all
}

// isCut reports whether the node is cut off: the object has an attached program at another interface than eth0.
func (v *victim) isCut() bool {
	return slices.ContainsFunc(slices.Concat(v.attached("good"), v.attached("bad")), func(name string) bool { return name != "eth0" })
}

func (v *victim) ask(context.Context) confirm.Response {
	cut := v.isCut()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ends.IsZero() && !cut || !v.ends.IsZero() && time.Now().After(v.ends) {
		return confirm.Responded
	}
	if v.silent.IsZero() {
		v.silent = time.Now()
	}
	return confirm.Silent
}

// run makes a pass over an object, as a worker does.
func (v *victim) run(ctx context.Context, kind string, o v1alpha1.UserObject) {
	v.t.Helper()
	owner := program.OwnerOf(kind, o)
	version, err := confirm.VersionOf(kind, o)
	if err != nil {
		v.t.Error(err)
		return
	}
	_, outcome, _, err := v.reconciler.runVersion(ctx, owner.Key, assignment{owner: &owner, version: version})
	if err := errors.Join(err, outcome.Err()); err != nil && ctx.Err() == nil {
		v.t.Errorf("%s: %v", o.GetName(), err)
	}
}

// busy makes passes that load, attach, and unload a program, until ctx ends.
func (v *victim) busy(ctx context.Context, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}}
		o.Spec.BpfFunctionName, o.Spec.Names, o.Spec.ByteCode.Path = fmt.Sprint("f", n%2), []string{"sched/sched_switch"}, new("/opt/f.o")
		v.run(ctx, "TracepointProgram", o)
	}
}

// await lets time pass until a condition is met.
func (v *victim) await(what string, most time.Duration, met func() bool) {
	v.t.Helper()
	start := time.Now()
	for !met() {
		if time.Since(start) > most {
			v.t.Fatalf("after %s: not %s", most, what)
		}
		<-time.After(callTime / 2)
	}
}

// tcx returns the object.
func tcx(function string, interfaces v1alpha1.InterfaceSelector) *v1alpha1.TcxProgram {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "firewall", UID: "uid", Generation: 1}}
	o.Spec.BpfFunctionName, o.Spec.Direction, o.Spec.InterfaceSelector = function, "ingress", interfaces
	o.Spec.ByteCode.Path = new("/opt/" + function + ".o")
	return o
}

func named(names ...string) v1alpha1.InterfaceSelector {
	return v1alpha1.InterfaceSelector{Interfaces: &names}
}

// everywhere selects all interfaces.
var everywhere = v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: new(true)}}

// rollBack changes an object to a version that cuts off the node, while some workers are busy with other objects. It returns
// the time from the first request without a response until the node is reachable, and until the version is undone. Before is
// nil if there was no object.
func (v *victim) rollBack(before, bad *v1alpha1.TcxProgram, busy int, most time.Duration) (reachable, undone time.Duration) {
	v.t.Helper()
	if before != nil {
		v.run(v.t.Context(), kind, before)
		v.await("confirmed", most, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
	}
	ctx, stop := context.WithCancel(v.t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for n := range busy {
		all.Go(func() { v.busy(ctx, fmt.Sprint("other", n)) })
	}
	bad.Generation = 2
	all.Go(func() {
		for ctx.Err() == nil {
			v.run(ctx, kind, bad)
			<-time.After(callTime)
		}
	})
	v.await("cut off", most, v.isCut)
	var silent time.Time
	v.await("asked", most, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		silent = v.silent
		return !silent.IsZero()
	})
	v.await("reachable", most, func() bool { return !v.isCut() })
	reachable = time.Since(silent)
	var want []string
	if before != nil {
		want = []string{"eth0"}
	}
	v.await("restored", most, func() bool {
		return slices.Equal(v.attached("good"), want) && len(v.attached("bad")) == 0
	})
	return reachable, time.Since(silent)
}

// A rollback waits for no pass: neither for the one that still attaches the version to hundreds of interfaces, nor for those
// of other objects that keep all workers busy.
func TestRollbackOnABusyNode(t *testing.T) {
	for name, c := range map[string]struct {
		before *v1alpha1.TcxProgram // nil: there was no object
		bad    *v1alpha1.TcxProgram
		busy   int // workers with other objects
	}{
		"another program":                  {tcx("good", named("eth0")), tcx("bad", everywhere), workers - 1},
		"the same program at more places":  {tcx("good", named("eth0")), tcx("good", everywhere), workers - 1},
		"the same program, all attached":   {tcx("good", named("eth0")), tcx("good", everywhere), 0},
		"the first version of the program": {nil, tcx("bad", everywhere), workers - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reachable, undone := newVictim(t, confirmLimit).rollBack(c.before, c.bad, c.busy, 2*confirmLimit)
				if reachable > confirmLimit+5*time.Second || undone > 2*confirmLimit {
					t.Errorf("reachable after %s, undone after %s", reachable, undone)
				}
			})
		})
	}
}

// BenchmarkRollback measures a rollback in real time, with a daemon that takes some time for each call, 300 interfaces, and 16
// busy workers. One run is one measurement (-benchtime 1x).
func BenchmarkRollback(b *testing.B) {
	const most = 10 * time.Minute
	var reachable, undone time.Duration
	for b.Loop() {
		reachable, undone = newVictim(b, confirmLimit).rollBack(tcx("good", named("eth0")), tcx("bad", everywhere), workers, most)
	}
	b.ReportMetric(reachable.Seconds(), "reachable-s")
	b.ReportMetric(undone.Seconds(), "undone-s")
	figures.Keep(b, map[string]any{"rollback_reachable_s": figures.Round(reachable.Seconds()), "rollback_undone_s": figures.Round(undone.Seconds())})
}

// Without a time limit, the node still records what it runs: if the operator hasn't decided about a newer version, that runs
// again after a reboot.
func TestRecordedWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, 0)
		o := tcx("good", named("eth0"))
		v.run(t.Context(), kind, o)
		if is := v.reconciler.changes.Confirmed(program.OwnerOf(kind, o).Key, o.UID); is == nil || is.Generation() != o.Generation {
			t.Errorf("%+v is recorded", is)
		}
	})
}

// If a part of the previous version can't be attached, the rest of it runs again.
func TestPartOfThePreviousVersionRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		v.daemon.SetFault(func(_ string, request proto.Message, done bool) error {
			if in, ok := request.(*gobpfman.AttachRequest); ok && !done && in.GetAttach().GetTcxAttachInfo().GetIface() == "eth1" {
				return status.Error(codes.Aborted, "no such device")
			}
			return nil
		})
		var key program.Key
		var version confirm.Version
		run := func(o *v1alpha1.TcxProgram) report.Outcome {
			owner := program.OwnerOf(kind, o)
			var err error
			key = owner.Key
			version, err = confirm.VersionOf(kind, o)
			_, outcome, _, failed := v.reconciler.runVersion(t.Context(), key, assignment{owner: &owner, version: version})
			if err := errors.Join(err, failed); err != nil {
				t.Fatal(err)
			}
			return outcome
		}
		if outcome := run(tcx("good", named("eth0", "eth1"))); len(outcome.Attaches) != 1 {
			t.Fatalf("attached with %v", outcome.Err())
		}
		v.await("confirmed", confirmLimit, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
		bad := tcx("bad", named("eth0", "eth2"))
		bad.Generation = 2
		run(bad)
		v.await("rolled back", 2*confirmLimit, func() bool {
			rollback := v.reconciler.changes.Rollback(key, version)
			return rollback != nil && strings.Contains(rollback.Message, "got one after the rollback")
		})
		if is := v.attached("good"); !slices.Equal(is, []string{"eth0"}) {
			t.Errorf("the previous version is attached to %q", is)
		}
	})
}

// late is an interface that appears.
const late = "late"

// appears adds the late interface to the node. An outage of the API server begins if it lasts.
func (v *victim) appears(outage time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.interfaces[late] = program.Interface{Index: len(v.interfaces) + 1}
	if outage > 0 {
		v.ends = time.Now().Add(outage)
	}
}

// links returns the IDs of programs and links, by the network namespace and interface.
func (v *victim) links() map[string]string {
	all := map[string]string{}
	for _, p := range v.daemon.Programs() {
		for i, link := range p.Links {
			to := link.GetTcxAttachInfo()
			all[to.GetNetns()+to.GetIface()] = fmt.Sprint(p.ID, "/", p.LinkIDs[i])
		}
	}
	return all
}

// attempt makes a pass over an object, and returns what the reports say.
func (v *victim) attempt(o v1alpha1.UserObject) string {
	v.t.Helper()
	kind := kind
	if _, is := o.(*v1alpha1.BpfApplication); is {
		kind = "BpfApplication"
	}
	owner := program.OwnerOf(kind, o)
	version, err := confirm.VersionOf(kind, o)
	if err != nil {
		v.t.Fatal(err)
	}
	want, outcome, _, err := v.reconciler.runVersion(v.t.Context(), owner.Key, assignment{owner: &owner, version: version})
	if err != nil {
		v.t.Fatal(err)
	}
	var said []string
	for _, object := range report.Programs(owner, "node", want, v.reconciler.inventory.Of(owner.Key), outcome) {
		status := object.GetStatus()
		said = append(said, status.Conditions[0].Type+": "+status.Conditions[0].Message)
		for _, link := range status.Links {
			said = append(said, fmt.Sprintf("%s %s: %s", link.State, link.AttachPoint, link.Error))
		}
	}
	return strings.Join(said, "\n")
}

// What was confirmed of a version stays attached when the rest of it is undone, without being detached. The rest is tried again
// as any version that is undone.
func TestConfirmedPartStays(t *testing.T) {
	for name, c := range map[string]struct {
		outage time.Duration // or else, the rest cuts off the node
		next   string
		again  bool // it is attached when the API server responds
	}{
		"an outage":                  {10 * confirmLimit, "this node tries the rest of generation 1 again when the API server responds", true},
		"the rest cuts off the node": {0, "this node doesn't try the rest of generation 1 again until the object or its annotation", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVictim(t, confirmLimit)
				o := tcx("good", named("eth0", late))
				v.attempt(o)
				confirmed := func() bool { return v.reconciler.changes.Unconfirmed() == 0 }
				v.await("confirmed", confirmLimit, confirmed)
				part := v.links()
				v.appears(c.outage)
				v.attempt(o)
				if is := v.links(); len(is) != 2 || is["eth0"] != part["eth0"] {
					t.Fatalf("attached are %v, and before %v", is, part)
				}
				v.await("undone", 2*confirmLimit, func() bool { return len(v.links()) < 2 })
				<-time.After(2 * confirmLimit)
				for range 3 {
					said := v.attempt(o)
					for _, want := range []string{
						"RolledBack: attach to late ingress: this node got no response from the API server for 30s after the rest of generation 1 was attached",
						"what was confirmed before stays attached; " + c.next, "\nAttached eth0 ingress: \nNotAttached late ingress: attach to late ingress: this node got",
					} {
						if !strings.Contains(said, want) {
							t.Errorf("the report lacks %q:\n%s", want, said)
						}
					}
					if is := v.links(); !maps.Equal(is, part) {
						t.Fatalf("attached are %v, and before %v", is, part)
					}
					<-time.After(confirmLimit)
				}
				<-time.After(c.outage)
				v.attempt(o)
				if is := v.links(); is["eth0"] != part["eth0"] || (is[late] != "") != c.again {
					t.Errorf("attached are %v, and before %v", is, part)
				}
				v.await("confirmed", confirmLimit, confirmed)
				<-time.After(2 * confirmLimit)
				said := v.attempt(o)
				if loaded := strings.HasPrefix(said, "Loaded: "); loaded != c.again {
					t.Errorf("in the end, the report says\n%s", said)
				}
			})
		})
	}
}

// A failed call of the rollback doesn't end what stayed attached until then.
func TestConfirmedPartStaysAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		o := tcx("good", named("eth0", "late"))
		v.attempt(o)
		v.await("confirmed", confirmLimit, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
		part, failures := v.links(), 0
		v.daemon.SetFault(func(call string, _ proto.Message, done bool) error {
			if call == "Detach" && done && failures == 0 {
				failures++
				return status.Error(codes.Unavailable, "the connection broke")
			}
			return nil
		})
		v.appears(10 * confirmLimit)
		v.attempt(o)
		v.await("undone", 2*confirmLimit, func() bool { return v.links()["late"] == "" })
		<-time.After(confirmLimit)
		v.attempt(o)
		if is := v.links(); failures != 1 || !maps.Equal(is, part) {
			t.Errorf("after %d failures, attached are %v, and before %v", failures, is, part)
		}
	})
}

// The program of an application that was confirmed stays attached when another one is undone, which stays loaded.
func TestConfirmedProgramStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app", UID: "uid", Generation: 1}}
		app.Spec.ByteCode.Path = new("/opt/app.o")
		for function, name := range map[string]string{"good": "eth0", "other": "late"} {
			member := tcx(function, named(name)).Spec.TcxProgramInfo
			app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTCX, TCX: &member})
		}
		v.attempt(app)
		v.await("confirmed", confirmLimit, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
		part := v.links()
		v.appears(10 * confirmLimit)
		v.attempt(app)
		v.await("undone", 2*confirmLimit, func() bool { return len(v.links()) < 2 })
		<-time.After(confirmLimit)
		said := v.attempt(app)
		if is := v.links(); !maps.Equal(is, part) || len(v.daemon.Programs()) != 2 {
			t.Errorf("attached are %v, and before %v", is, part)
		}
		for _, want := range []string{"Loaded: ", "\nRolledBack: attach to late ingress: ", "Attached eth0 ingress: ", "NotAttached late ingress: attach to late"} {
			if !strings.Contains("\n"+said, want) {
				t.Errorf("the reports lack %q:\n%s", want, said)
			}
		}
	})
}

// What was confirmed of a version stays attached although another part of it can't be loaded. A rollback doesn't try that.
func TestConfirmedPartStaysBesideAFailingLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		loads := v.refuse()
		app := twoLoads(1, "/opt/app.o", "refused", "eth0", late)
		v.attempt(app)
		v.settle()
		part := v.links()
		v.appears(10 * confirmLimit)
		v.attempt(app)
		before := loads.Load()
		v.await("undone", 2*confirmLimit, func() bool { return v.links()[late] == "" })
		<-time.After(confirmLimit)
		if is := v.links(); !maps.Equal(is, part) || loads.Load() != before {
			t.Errorf("after %d Loads, attached are %v, and before %v", loads.Load()-before, is, part)
		}
	})
}

// discoveredTwice returns an application with two programs of one function, which discover the same interfaces of the node: the first
// one through pods. A third one is never attached.
func discoveredTwice() *v1alpha1.BpfApplication {
	app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app", UID: "uid", Generation: 1}}
	app.Spec.ByteCode.Path = new("/opt/app.o")
	for _, containers := range []*v1alpha1.ContainerSelector{{}, nil} {
		member := tcx("good", v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{
			InterfaceAutoDiscovery: new(true), AllowedInterfaces: []string{"eth0", late},
		}}).Spec.TcxProgramInfo
		member.Containers = containers
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTCX, TCX: &member})
	}
	never := tcx("other", named("never")).Spec.TcxProgramInfo
	app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTCX, TCX: &never})
	return app
}

// Two programs of an application can have one link. Where it was confirmed, it stays for the second one, whether the first one is
// unknown, because that selects pods, or doesn't want it anymore.
func TestConfirmedPartOfTwoPrograms(t *testing.T) {
	for name, outage := range map[string]time.Duration{"in a rollback": 10 * confirmLimit, "without the pod": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVictim(t, confirmLimit)
				v.hosts()
				app := discoveredTwice()
				v.attempt(app)
				v.settle()
				part := v.links()
				v.appears(outage)
				v.attempt(app)
				v.await("undone", 2*confirmLimit, func() bool { return v.links()[late] == "" })
				<-time.After(confirmLimit)
				if outage == 0 {
					v.hasPods(program.Container{Namespace: "a", Pod: "web", PodUID: "2", Sandbox: "s2", NetNS: "/proc/1/ns/net"})
					v.attempt(app)
				}
				if is := v.links(); !maps.Equal(is, part) || len(part) != 1 {
					t.Errorf("attached are %v, and before %v", is, part)
				}
			})
		})
	}
}

// A program that shares maps is rolled back although it isn't known anymore with which program. What was confirmed of the same version
// stays attached.
func TestRollbackWithSharedMaps(t *testing.T) {
	for name, c := range map[string]struct {
		first, second *v1alpha1.TcxProgram
		stays         bool
	}{
		"the rest of the version": {versionAt(1, "good", "eth0", late), versionAt(1, "good", "eth0", late), true},
		"a later version":         {versionAt(1, "good", "eth0"), versionAt(2, "good", "eth0", late), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVictim(t, confirmLimit)
				v.daemon.PinnedByName = true
				v.attempt(&v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: "owner"}, Spec: tcx("owner", named("eth1")).Spec})
				read := func(id uint32) {
					v.shared.Store(id)
					if err := v.reconciler.reports.Read(t.Context(), program.Key{Kind: kind, Name: "owner"}, "owner"); err != nil {
						t.Fatal(err)
					}
				}
				read(v.daemon.Programs()[0].ID)
				for _, o := range []*v1alpha1.TcxProgram{c.first, c.second} {
					o.Spec.MapOwnerSelector.MatchLabels = shared
				}
				v.attempt(c.first)
				v.settle()
				want := v.links()
				v.appears(10 * confirmLimit)
				v.attempt(c.second)
				if _, there := v.links()[late]; !there || len(want) != 2 {
					t.Fatalf("attached are %v, and before %v", v.links(), want)
				}
				read(0)
				<-time.After(3 * confirmLimit)
				if !c.stays {
					delete(want, "eth0")
				}
				if is := v.links(); !maps.Equal(is, want) {
					t.Errorf("attached are %v, want %v", is, want)
				}
			})
		})
	}
}

// A part of a version that was undone isn't tried again and again, and nothing waits for it.
func TestRefusedRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{lists: map[string]string{"tcxprograms": `{"metadata":{"name":"firewall","uid":"uid"},"spec":{"bpffunctionname":"f","direction":"ingress",
			"priority":50,"interfaceselector":{"interfaces":["eth0","late"]},"bytecode":{"path":"/object.o"},"nodeselector":{}}}`}}
		changes := openChanges(t, confirmLimit)
		var reads atomic.Int32
		h, stop := startController(t, server, func(o *Options) {
			o.Changes = changes
			interfaces := o.Interfaces
			o.Interfaces = func() (map[string]program.Interface, error) {
				reads.Add(1)
				return interfaces()
			}
		})
		defer stop()
		changes.Ask = func(context.Context) confirm.Response {
			if h.links() > 1 {
				return confirm.Silent
			}
			return confirm.Responded
		}
		go func() { _ = changes.Run(t.Context()) }()
		within(t, time.Minute, "attached to eth0", func() bool { return h.links() == 1 })
		<-time.After(2 * confirmLimit)
		key := program.Key{Kind: kind, Name: "firewall"}
		if h.reconciler.isAttached(t.Context(), key) {
			t.Error("it counts as attached while an interface is missing")
		}
		h.appears(t.Context(), late)
		within(t, time.Minute, "attached to both", func() bool { return h.links() == 2 })
		within(t, 2*confirmLimit, "undone", func() bool { return h.links() == 1 })
		<-time.After(2 * confirmLimit)
		before := reads.Load()
		<-time.After(time.Hour)
		if n := reads.Load() - before; n > 1 || !h.reconciler.isAttached(t.Context(), key) {
			t.Errorf("%d passes; it counts as attached: %t", n, h.reconciler.isAttached(t.Context(), key))
		}
	})
}

// A pass that attaches the rest of a version can be interrupted by the rollback of another object. The rest is tried nevertheless.
func TestRestOfAnInterruptedPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		o := tcx("good", named("eth0", "late", "never"))
		v.attempt(o)
		v.await("confirmed", confirmLimit, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
		v.appears(0)
		v.daemon.SetFault(func(_ string, request proto.Message, done bool) error {
			if in, ok := request.(*gobpfman.AttachRequest); ok && done && in.GetAttach().GetTcxAttachInfo().GetIface() == "late" {
				go v.reconciler.undo(t.Context(), map[program.Key]*confirm.Version{{Kind: kind, Name: "other"}: nil})
				<-time.After(time.Second)
			}
			return nil
		})
		v.attempt(o)
		<-time.After(4 * confirmLimit)
		if v.isCut() {
			t.Errorf("the node is still cut off: %v", v.links())
		}
	})
}

// A version that selects an interface before it appears isn't confirmed by that.
func TestInterfaceOfANewVersionAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		v.attempt(tcx("good", named("eth0")))
		v.await("confirmed", confirmLimit, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
		o := tcx("bad", v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: new(true), AllowedInterfaces: []string{"late"}}})
		o.Generation = 2
		v.attempt(o)
		v.appears(0)
		v.attempt(o)
		<-time.After(4 * confirmLimit)
		if v.isCut() {
			t.Errorf("the node is still cut off: %v", v.links())
		}
	})
}

// A version that has the links of the one before, and selects an interface before it appears, isn't confirmed there by that.
func TestInterfaceOfAVersionWithTheSameLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		v.attempt(versionAt(1, "good", "eth0"))
		v.settle()
		o := tcx("good", v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: new(true), AllowedInterfaces: []string{"eth0", late}}})
		o.Generation = 2
		part := v.links()
		v.attempt(o)
		v.settle()
		v.appears(0)
		v.attempt(o)
		if !v.isCut() {
			t.Fatalf("attached are %v", v.links())
		}
		<-time.After(4 * confirmLimit)
		if is := v.links(); !maps.Equal(is, part) {
			t.Errorf("attached are %v, and before %v", is, part)
		}
	})
}

// A rollback to what was confirmed of a program isn't slower if the program is attached at many other places.
func TestRollbackOfManyToAConfirmedPart(t *testing.T) {
	for name, c := range map[string]struct {
		first      v1alpha1.InterfaceSelector
		generation int64 // of the version at all interfaces
	}{
		"the rest":        {everywhere, 1},
		"a later version": {named("eth0", "eth1"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVictim(t, confirmLimit)
				var there atomic.Bool
				v.daemon.SetFault(func(_ string, request proto.Message, done bool) error {
					in, ok := request.(*gobpfman.AttachRequest)
					if ok && !done && in.GetAttach().GetTcxAttachInfo().GetIface() != "eth0" && !there.Load() {
						return status.Error(codes.Aborted, "no such device")
					}
					return nil
				})
				v.attempt(tcx("good", c.first))
				v.await("confirmed", confirmLimit, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
				there.Store(true)
				next := tcx("good", everywhere)
				next.Generation = c.generation
				v.attempt(next)
				if is := v.attached("good"); len(is) != manyInterfaces {
					t.Fatalf("attached to %d interfaces", len(is))
				}
				v.await("reachable", 4*confirmLimit, func() bool { return !v.isCut() })
				v.mu.Lock()
				took := time.Since(v.silent)
				v.mu.Unlock()
				if took > confirmLimit+5*time.Second {
					t.Errorf("reachable after %s", took)
				}
				v.await("restored", confirmLimit, func() bool { return slices.Equal(v.attached("good"), []string{"eth0"}) })
				before := v.reads
				if v.attempt(next); v.reads != before+1 {
					t.Errorf("a pass after the rollback reads the interfaces %d times", v.reads-before)
				}
			})
		})
	}
}

// hosts has a pod with the network of the node, and one with its own.
func (v *victim) hosts() {
	v.t.Helper()
	planner, listed := &v.reconciler.planner, make(chan struct{})
	planner.cluster.Watch(v.t.Context(), cluster.PodKind, toolscache.ResourceEventHandlerFuncs{}, func() { close(listed) })
	planner.cluster.Kinds.Open(cluster.PodKind)
	<-listed
	v.hasPods(
		program.Container{Namespace: "a", Pod: "proxy", PodUID: "1", Sandbox: "s1", HostNetwork: true},
		program.Container{Namespace: "a", Pod: "web", PodUID: "2", Sandbox: "s2", NetNS: "/proc/1/ns/net"},
	)
}

// hasPods has pods on the node.
func (v *victim) hasPods(pods ...program.Container) {
	facts := v.reconciler.planner.facts
	facts.containers = newSnapshot("containers", &facts.moments,
		func(context.Context) ([]program.Container, error) { return pods, nil },
		func(context.Context, []program.Container, []program.Container, moment) {})
}

// A rollback doesn't ask the container runtime which pods have the network of the node. It detaches programs from all
// interfaces of the node, except where the same version was confirmed. Links in pods stay.
func TestRollbackAtPodsWithTheNodesNetwork(t *testing.T) {
	version := func(generation int64, priority int32, names ...string) *v1alpha1.TcxProgram {
		o := tcx("good", named(names...))
		o.Generation, o.Spec.Priority, o.Spec.Containers = generation, priority, &v1alpha1.ContainerSelector{}
		return o
	}
	for name, c := range map[string]struct {
		first, second *v1alpha1.TcxProgram
		stays         bool
	}{
		"the rest of the version":         {version(1, 1, "eth0", "late"), version(1, 1, "eth0", "late"), true},
		"after a version in part":         {version(1, 1, "eth0", "late"), version(2, 2, "eth0", "late"), false},
		"after a version, at more places": {version(1, 1, "eth0"), version(2, 1, "eth0", "late"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVictim(t, confirmLimit)
				v.hosts()
				var there atomic.Bool
				v.daemon.SetFault(func(_ string, request proto.Message, done bool) error {
					in, ok := request.(*gobpfman.AttachRequest)
					if to := in.GetAttach().GetTcxAttachInfo(); ok && !done && to.GetIface() == "late" && to.GetNetns() == "" && !there.Load() {
						return status.Error(codes.Aborted, "no such device")
					}
					return nil
				})
				v.attempt(c.first)
				v.await("confirmed", confirmLimit, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
				confirmed := v.links()
				there.Store(true)
				v.attempt(c.second)
				if !v.isCut() {
					t.Fatalf("attached are %v", v.links())
				}
				inPods := v.links()
				maps.DeleteFunc(inPods, func(name, _ string) bool { return !strings.Contains(name, "/") })
				v.await("undone", 2*confirmLimit, func() bool { return !v.isCut() })
				<-time.After(confirmLimit)
				want := maps.Clone(inPods)
				if c.stays {
					want["eth0"] = confirmed["eth0"]
				}
				if is := v.links(); !maps.Equal(is, want) || len(inPods) == 0 {
					t.Errorf("after the rollback, attached are %v, want %v", is, want)
				}
				v.attempt(c.second)
				if is := slices.Sorted(maps.Keys(v.links())); !slices.Equal(is, slices.Sorted(maps.Keys(confirmed))) {
					t.Errorf("then attached are %q, and before %v", is, confirmed)
				}
			})
		})
	}
}

// settle waits until nothing waits for a response of the API server.
func (v *victim) settle() {
	v.t.Helper()
	v.await("confirmed", 2*confirmLimit, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
}

// versionAt returns a version of an object with a function.
func versionAt(generation int64, function string, names ...string) *v1alpha1.TcxProgram {
	o := tcx(function, named(names...))
	o.Generation = generation
	return o
}

// A change that cuts off the node is undone, no matter which others follow it before that.
func TestChangesInARow(t *testing.T) {
	restarted := versionAt(3, "good", "eth0", "eth1", "eth2")
	restarted.Annotations = map[string]string{v1alpha1.AnnotationRestartedAt: "now"}
	for name, changes := range map[string][]*v1alpha1.TcxProgram{
		"with the same links":  {versionAt(2, "good", "eth0", "eth1", "eth2"), restarted},
		"with fewer":           {versionAt(2, "good", "eth0", "eth1", "eth2"), versionAt(3, "good", "eth0", "eth1")},
		"with none, and again": {versionAt(2, "bad", "eth1"), versionAt(3, "good", "missing"), nil, versionAt(4, "bad", "eth1")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVictim(t, confirmLimit)
				v.attempt(versionAt(1, "good", "eth0"))
				v.settle()
				for _, o := range changes {
					if o == nil {
						<-time.After(2 * confirmLimit)
						continue
					}
					v.attempt(o)
					<-time.After(time.Second)
				}
				<-time.After(4 * confirmLimit)
				if v.isCut() {
					t.Errorf("the node is still cut off: %v", v.links())
				}
			})
		})
	}
}

// While the container runtime doesn't respond, it isn't known whether the link of a change is still wanted when the object goes
// back to the version before. So the change is undone.
func TestGoingBackWhileContainersAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		v.hosts()
		version := func(generation int64, names ...string) *v1alpha1.BpfApplication {
			app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app", UID: "uid", Generation: generation}}
			app.Spec.ByteCode.Path = new("/opt/app.o")
			first, second := tcx("good", named("eth0")).Spec.TcxProgramInfo, tcx("bad", named(names...)).Spec.TcxProgramInfo
			second.Containers = &v1alpha1.ContainerSelector{}
			app.Spec.Programs = []v1alpha1.BpfApplicationProgram{{Type: v1alpha1.ProgTypeTCX, TCX: &first}, {Type: v1alpha1.ProgTypeTCX, TCX: &second}}
			return app
		}
		v.attempt(version(1, "eth0"))
		v.settle()
		v.attempt(version(2, "eth0", "eth1"))
		facts := v.reconciler.planner.facts
		facts.containers = newSnapshot("containers", &facts.moments,
			func(context.Context) ([]program.Container, error) { return nil, errors.New("no response") },
			func(context.Context, []program.Container, []program.Container, moment) {})
		for range 10 {
			v.attempt(version(3, "eth0"))
			<-time.After(confirmLimit / 3)
		}
		if v.isCut() {
			t.Errorf("the node is still cut off: %q", v.attached("bad"))
		}
	})
}

// While a pod has no process, it isn't known whether the link of a change is still wanted when the object goes back to the version
// before. So the change is undone.
func TestGoingBackWhileAPodIsUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		v.hosts()
		facts := v.reconciler.planner.facts
		facts.podInterfaces = newSnapshot("interfaces", &facts.moments, func(context.Context) ([]program.Container, error) {
			return []program.Container{
				{Namespace: "a", Pod: "proxy", PodUID: "1", Sandbox: "s1", HostNetwork: true},
				{Namespace: "a", Pod: "web", PodUID: "2", Sandbox: "s2", NetNS: "/run/netns/web", InterfacesErr: program.ErrUnseen},
			}, nil
		}, func(context.Context, []program.Container, []program.Container, moment) {})
		version := func(generation int64, names ...string) *v1alpha1.TcxProgram {
			o := tcx("good", v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: new(true), AllowedInterfaces: names}})
			o.Generation, o.Spec.Containers = generation, &v1alpha1.ContainerSelector{}
			return o
		}
		v.attempt(version(1, "eth0"))
		v.settle()
		v.attempt(version(2, "eth0", "eth1"))
		if !v.isCut() {
			t.Fatalf("attached are %v", v.links())
		}
		for range 10 {
			v.attempt(version(3, "eth0"))
			<-time.After(confirmLimit / 3)
		}
		if v.isCut() {
			t.Errorf("the node is still cut off: %v", v.links())
		}
	})
}

// twoLoads returns a version of an application with two Loads. The second one is for a target.
func twoLoads(generation int64, file, target string, names ...string) *v1alpha1.BpfApplication {
	app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app", UID: "uid", Generation: generation}}
	app.Spec.ByteCode.Path = &file
	network := tcx("good", named(names...)).Spec.TcxProgramInfo
	app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTCX, TCX: &network})
	for _, function := range []string{"f1", target} {
		f := v1alpha1.FentryProgramInfo{}
		f.BpfFunctionName, f.FunctionName = "trace", function
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeFentry, Fentry: &f})
	}
	return app
}

// refuse has the daemon refuse the Load for the target refused. It returns the number of such Loads.
func (v *victim) refuse() *atomic.Int32 {
	var loads atomic.Int32
	v.daemon.SetFault(func(_ string, request proto.Message, done bool) error {
		in, ok := request.(*gobpfman.LoadRequest)
		if ok && !done && slices.ContainsFunc(in.GetInfo(), func(i *gobpfman.LoadInfo) bool { return i.GetInfo().GetFentryLoadInfo().GetFnName() == "refused" }) {
			loads.Add(1)
			return status.Error(codes.Aborted, "no such function")
		}
		return nil
	})
	return &loads
}

// A version of which programs of the one before run beside isn't confirmed completely by the next one.
func TestPartBesideTheVersionBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		v.refuse()
		v.attempt(twoLoads(1, "/opt/before.o", "f3", "eth0"))
		v.settle()
		part := twoLoads(2, "/opt/app.o", "refused", "eth0", late)
		v.attempt(part)
		v.settle()
		v.attempt(twoLoads(3, "/opt/other.o", "f4", "eth0", late))
		v.daemon.SetFault(nil)
		v.attempt(part)
		v.appears(0)
		v.attempt(part)
		<-time.After(4 * confirmLimit)
		if v.isCut() {
			t.Errorf("the node is still cut off: %v", v.links())
		}
	})
}

// files allows bytecode of files in /opt, and unloads everything else.
type files struct{ noPolicies }

func (files) Policies() ([]*v1alpha1.BytecodePolicy, error) {
	return []*v1alpha1.BytecodePolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "files", UID: "p", Generation: 1},
		Spec: v1alpha1.BytecodePolicySpec{
			Mode: v1alpha1.PolicyEnforce, OnViolation: v1alpha1.OnViolationUnload, UnmatchedImages: v1alpha1.UnmatchedDeny,
			Rules: []v1alpha1.BytecodeRule{{Name: "opt", Images: []string{"file:/opt/**"}}},
		},
	}}, nil
}

// Policies see the version that runs after a rollback.
func TestPoliciesAfterARollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		v.reconciler.policies.Cluster = files{}
		attempt := func(o *v1alpha1.TcxProgram) {
			a, err := assign(program.OwnerOf(kind, o).Key, o, &corev1.Node{}, assignment{})
			if err == nil {
				_, _, _, err = v.reconciler.runVersion(t.Context(), a.owner.Key, a)
			}
			if err != nil {
				t.Error(err)
			}
		}
		attempt(versionAt(1, "good", "eth0"))
		v.settle()
		bad := versionAt(2, "bad", "eth1")
		attempt(bad)
		v.await("undone", 3*confirmLimit, func() bool { return !v.isCut() })
		attempt(bad)
		if is := v.attached("good"); !slices.Equal(is, []string{"eth0"}) {
			t.Errorf("the previous version is attached to %q", is)
		}
	})
}
