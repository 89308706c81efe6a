// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// A program that would have its own maps instead of another program's is unloaded, and isn't loaded again immediately:
// a Load and an Unload leave more in the node's /run than a Load that fails.
func TestMapsThatAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newNode(t)
		err := l.Inventory.Load(t.Context(), &gobpfman.LoadRequest{
			Info: []*gobpfman.LoadInfo{{Name: "g"}}, Metadata: map[string]string{v1alpha1.MetadataUUID: "other", v1alpha1.MetadataKind: "XdpProgram"},
		})
		if err != nil {
			t.Fatal(err)
		}
		o := &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "uid", Generation: 1}}
		o.Spec.BpfFunctionName, o.Spec.ByteCode.Path = "f", new("/opt/x.o")
		o.Spec.MapOwnerSelector.MatchLabels = map[string]string{"maps": "shared"}
		owner := program.OwnerOf("XdpProgram", o)
		want := plan.Want(owner, program.Node{}, []plan.MapOwner{{Labels: o.Spec.MapOwnerSelector.MatchLabels, ID: l.daemon.Programs()[0].ID}})
		g, err := (&gate.Policies{Cluster: policies(nil)}).For(t.Context(), &owner, gate.Earlier{})
		if err != nil {
			t.Fatal(err)
		}
		execute := func(message string, calls ...string) {
			t.Helper()
			l.daemon.Calls()
			outcome, err := l.Execute(t.Context(), Pass{Key: owner.Key, Owner: &owner, Plan: want, Gate: g, Judgements: map[int]report.Judgement{}})
			if failed := outcome.Err(); err != nil || (failed == nil) != (message == "") || failed != nil && !strings.Contains(failed.Error(), message) {
				t.Errorf("%v, %v, want %q", err, failed, message)
			}
			if got := l.daemon.Calls(); !slices.Equal(got, calls) {
				t.Errorf("the daemon was called to %q, want %q", got, calls)
			}
		}
		const unshared = "the maps of program 101 are not shared"
		execute(unshared, "Load", "Unload")
		execute(unshared)
		<-time.After(firstReload)
		execute(unshared, "Load", "Unload")
		execute(unshared)
		// As left by an agent that was interrupted between the two calls.
		request, err := want.Loads[0].Request(owner)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Inventory.Load(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		execute(unshared, "Unload")
		l.daemon.PinnedByName = true
		<-time.After(2 * firstReload)
		execute("", "Load")
		execute("")
	})
}

// onInterface returns an attach point on an interface, of a pod if netns isn't empty.
func onInterface(name, netns string) program.AttachPoint {
	info := &gobpfman.XDPAttachInfo{Iface: name}
	if netns != "" {
		info.Netns = &netns
	}
	return program.AttachPoint{Name: name, Digest: "digest of " + name, Info: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: info}}}
}

// fromFile returns an owner whose bytecode is a file of the node, and the plan to attach it.
func fromFile(path string, points ...program.AttachPoint) (program.Owner, plan.Plan) {
	o := &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "uid", Generation: 1}}
	o.Spec.BpfFunctionName, o.Spec.ByteCode.Path = "f", &path
	owner := program.OwnerOf("XdpProgram", o)
	want := plan.Want(owner, program.Node{}, nil)
	for n := range want.Loads {
		want.Loads[n].Programs[0].Points, want.Loads[n].Programs[0].Problem = points, nil
	}
	return owner, want
}

// execute executes a plan without policies.
func (l *node) execute(ctx context.Context, owner program.Owner, want plan.Plan, begin func(...program.Place) error) (report.Outcome, error) {
	l.t.Helper()
	g, err := (&gate.Policies{Cluster: policies(nil)}).For(ctx, &owner, gate.Earlier{})
	if err != nil {
		l.t.Fatal(err)
	}
	return l.Execute(ctx, Pass{Key: owner.Key, Owner: &owner, Plan: want, Gate: g, Judgements: map[int]report.Judgement{}, Begin: begin})
}

// calls returns what the daemon was called to do since the last call, without its lists.
func (l *node) calls() string {
	return strings.Join(slices.DeleteFunc(l.daemon.Calls(), func(call string) bool { return call == "List" }), ", ")
}

// failing fails certain calls of the daemon.
func failing(calls ...string) func(string, proto.Message, bool) error {
	return func(call string, request proto.Message, _ bool) error {
		if attach, ok := request.(*gobpfman.AttachRequest); ok {
			call += " " + attach.GetAttach().GetXdpAttachInfo().GetIface()
		}
		if slices.Contains(calls, call) {
			return status.Error(codes.Aborted, "no "+call)
		}
		return nil
	}
}

// A step that fails is in the outcome, and only what depends on it isn't done.
func TestStepsThatFail(t *testing.T) {
	missing := onInterface("eth1", "")
	missing.Lack = &program.AbsentError{Err: errors.New("it doesn't exist")}
	for name, test := range map[string]struct {
		path   string
		second program.AttachPoint
		faults []string
		begin  error
		calls  string
		// Failures of the Load, and of the attach points by name.
		load     string
		attaches map[string]string
	}{
		"none":                     {"/x.o", onInterface("eth1", ""), nil, nil, "Load, Attach, Attach", "", nil},
		"the Load":                 {"/x.o", onInterface("eth1", ""), []string{"Load"}, nil, "Load", "no Load", nil},
		"an empty path":            {"", onInterface("eth1", ""), nil, nil, "", "bytecode.path is empty", nil},
		"an Attach":                {"/x.o", onInterface("eth1", ""), []string{"Attach eth0"}, nil, "Load, Attach, Attach", "", map[string]string{"eth0": "no Attach eth0"}},
		"a missing interface":      {"/x.o", missing, nil, nil, "Load, Attach", "", map[string]string{"eth1": "attach to eth1: it doesn't exist"}},
		"a trial that can't begin": {"/x.o", onInterface("eth1", ""), nil, errors.New("disk full"), "Load", "", map[string]string{"eth0": "attach to eth0: disk full", "eth1": "attach to eth1: disk full"}},
		"not that of a pod":        {"/x.o", onInterface("pod", "/proc/1/ns/net"), nil, errors.New("disk full"), "Load, Attach", "", map[string]string{"eth0": "disk full"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newNode(t)
			l.daemon.Fault = failing(test.faults...)
			owner, want := fromFile(test.path, onInterface("eth0", ""), test.second)
			var begin func(...program.Place) error
			if test.begin != nil {
				begin = func(...program.Place) error { return test.begin }
			}
			outcome, err := l.execute(t.Context(), owner, want, begin)
			if got := l.calls(); err != nil || got != test.calls {
				t.Errorf("%v, called to %q", err, got)
			}
			if got := outcome.Loads[0]; (got == nil) != (test.load == "") || got != nil && !strings.Contains(got.Error(), test.load) {
				t.Errorf("the Load: %v", got)
			}
			if len(outcome.Attaches) != len(test.attaches) || len(outcome.Removals) > 0 {
				t.Errorf("%v", outcome.Attaches)
			}
			for at, got := range outcome.Attaches {
				if text := test.attaches[at.Link.Point]; text == "" || !strings.Contains(got.Error(), text) || at.Function != "f" {
					t.Errorf("%+v: %v", at, got)
				}
			}
		})
	}
}

// A program is unloaded when its replacement is loaded, and not before. What can't be removed is in the outcome.
func TestReplacements(t *testing.T) {
	for name, test := range map[string]struct {
		path, fault, calls, removal string
		programs                    []string
	}{
		"replaced":          {"/new.o", "", "Load, Attach, Unload", "", []string{"/new.o"}},
		"no replacement":    {"/new.o", "Load", "Load", "", []string{"/old.o"}},
		"one that stays":    {"/new.o", "Unload", "Load, Attach, Unload", "no Unload", []string{"/old.o", "/new.o"}},
		"another interface": {"/old.o", "", "Detach, Attach", "", []string{"/old.o"}},
		"a link that stays": {"/old.o", "Detach", "Detach, Attach", "no Detach", []string{"/old.o"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newNode(t)
			owner, want := fromFile("/old.o", onInterface("eth0", ""))
			if _, err := l.execute(t.Context(), owner, want, nil); err != nil {
				t.Fatal(err)
			}
			l.calls()
			l.daemon.Fault = failing(test.fault)
			owner, want = fromFile(test.path, onInterface("eth1", ""))
			outcome, err := l.execute(t.Context(), owner, want, nil)
			if got := l.calls(); err != nil || got != test.calls || !slices.Equal(l.loaded(), test.programs) {
				t.Errorf("%v, called to %q, has %q", err, got, l.loaded())
			}
			if got := errors.Join(outcome.Removals...); (got == nil) != (test.removal == "") || got != nil && !strings.Contains(got.Error(), test.removal) {
				t.Errorf("what isn't removed: %v", got)
			}
		})
	}
}

// A program isn't detached, not even for a moment, from a pod that is deleted by force, while another pod has its name, and
// when that one is gone again.
func TestPodsOfOneName(t *testing.T) {
	l := newNode(t)
	path := "/flows.o"
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "flows", UID: "uid", Generation: 1}}
	o.Spec.BpfFunctionName, o.Spec.ByteCode.Path, o.Spec.Direction = "f", &path, "ingress"
	o.Spec.InterfaceSelector.Interfaces = &[]string{"eth0"}
	o.Spec.Containers = &v1alpha1.ContainerSelector{}
	owner := program.OwnerOf("TcxProgram", o)
	pod := func(uid string) program.Container {
		return program.Container{Namespace: "acme", Pod: "web", PodUID: uid, Sandbox: "s" + uid, NetNS: "/proc/" + uid + "/ns/net", Name: "app", ID: "c" + uid, PID: 7}
	}
	first, second := pod("1"), pod("2")
	outlived := first
	outlived.Deleted, outlived.Superseded = true, true
	alone := first
	alone.Deleted = true
	for _, step := range []struct {
		there []program.Container
		calls string
		links []string
	}{
		{[]program.Container{first}, "Load, Attach", []string{"eth0 ingress in pod acme/web"}},
		{[]program.Container{outlived, second}, "Attach", []string{"eth0 ingress in pod acme/web", "eth0 ingress in pod acme/web (UID 1)"}},
		{[]program.Container{alone}, "Detach", []string{"eth0 ingress in pod acme/web"}},
	} {
		want := plan.Want(owner, program.Node{Containers: step.there}, nil)
		if outcome, err := l.execute(t.Context(), owner, want, nil); err != nil || outcome.Err() != nil {
			t.Fatal(err, outcome.Err())
		}
		var links []string
		for _, link := range l.Inventory.Of(owner.Key)[0].Links {
			links = append(links, link.Point)
		}
		slices.Sort(links)
		if calls := l.calls(); calls != step.calls || !slices.Equal(links, step.links) {
			t.Errorf("called to %q, and has %q, want %q and %q", calls, links, step.calls, step.links)
		}
	}
}

// A shutdown ends the execution between two calls.
func TestInterruptedExecution(t *testing.T) {
	l := newNode(t)
	ctx, stop := context.WithCancelCause(t.Context())
	shutdown := errors.New("shutdown")
	l.daemon.Fault = func(_ string, _ proto.Message, done bool) error {
		if done {
			stop(shutdown)
		}
		return nil
	}
	owner, want := fromFile("/x.o", onInterface("eth0", ""), onInterface("eth1", ""))
	if _, err := l.execute(ctx, owner, want, nil); !errors.Is(err, shutdown) {
		t.Errorf("%v", err)
	}
	if got := l.calls(); got != "Load" {
		t.Errorf("called to %q", got)
	}
}

// What cut off the node is removed in few calls: links one by one, but all of a program's many links with the program. Maps go
// after their users. A call that fails doesn't stop the others.
func TestWithdraw(t *testing.T) {
	detaches := func(n int) string { return strings.TrimSuffix(strings.Repeat("Detach, ", n), ", ") }
	var many []program.AttachPoint
	for n := range manyLinks {
		many = append(many, onInterface(fmt.Sprint("eth", n), ""))
	}
	for name, test := range map[string]struct {
		links   int
		stays   bool // another link, with the program
		unloads bool // all programs
		fault   string
		calls   string
		left    int
	}{
		"a link":               {1, false, false, "", "Detach", 2},
		"one that stays":       {2, false, false, "Detach", "Detach, Detach", 2},
		"one link less":        {manyLinks - 1, false, false, "", detaches(manyLinks - 1), 2},
		"many links":           {manyLinks, false, false, "", "Unload", 1},
		"all but one":          {manyLinks, true, false, "", "Unload", 1},
		"few of several":       {manyLinks - 1, true, false, "", detaches(manyLinks - 1), 2},
		"its programs":         {1, false, true, "", "Unload, Unload", 0},
		"programs that remain": {1, false, true, "Unload", "Unload, Unload", 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := newNode(t)
			points := many[:test.links]
			if test.stays {
				points = append(slices.Clone(points), onInterface("stays", ""))
			}
			owner, want := fromFile("/x.o", points...)
			want.Loads[0].Functions = append(want.Loads[0].Functions, &gobpfman.LoadInfo{Name: "g"})
			if outcome, err := l.execute(t.Context(), owner, want, nil); err != nil || outcome.Err() != nil {
				t.Fatal(err, outcome.Err())
			}
			l.calls()
			var unloaded []uint32
			fault := failing(test.fault)
			l.daemon.Fault = func(call string, request proto.Message, done bool) error {
				if unload, ok := request.(*gobpfman.UnloadRequest); ok && !done {
					unloaded = append(unloaded, unload.GetId())
				}
				return fault(call, request, done)
			}
			want.Loads[0].Programs[0].Points = points[test.links:]
			if test.unloads {
				want.Loads = nil
			}
			if err := l.Withdraw(t.Context(), owner.Key, want); (err != nil) != (test.fault != "") {
				t.Errorf("%v", err)
			}
			if got := l.calls(); got != test.calls || len(l.daemon.Programs()) != test.left {
				t.Errorf("called to %q, has %d programs", got, len(l.daemon.Programs()))
			}
			if slices.Reverse(unloaded); !slices.IsSorted(unloaded) {
				t.Errorf("unloaded first: %d", unloaded)
			}
		})
	}
}

// The programs of a former daemon stay until everything is attached in their place. What was undone doesn't.
func TestWaits(t *testing.T) {
	_, want := fromFile("/x.o", onInterface("eth0", ""))
	function := want.Loads[0].Functions[0].GetName()
	at := func(err error) report.Outcome {
		return report.Outcome{Attaches: map[report.Attach]error{{Function: function}: fmt.Errorf("attach to eth0: %w", err)}}
	}
	for name, c := range map[string]struct {
		outcome report.Outcome
		waits   bool
	}{
		"nothing failed": {report.Outcome{}, false},
		"a Load":         {report.Outcome{Loads: map[int]error{0: errors.New("refused")}}, true},
		"an Attach":      {at(errors.New("no such device")), true},
		"it was undone":  {at(&report.UndoneError{Message: "rolled back"}), false},
	} {
		if is := waits(want, function, c.outcome); is != c.waits {
			t.Errorf("%s: waits is %t", name, is)
		}
	}
}
