// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

func TestLifeOfAProgram(t *testing.T) {
	n := start(t)
	o := n.tracepoint("life", "f", "a/x")
	n.create(o)
	n.holds("TracepointProgram/life f a/x")
	if w := n.writesOf(); len(w) != 2 || !strings.HasPrefix(w[0], "POST ") || !strings.HasSuffix(w[1], "/status") {
		t.Errorf("a load cost %q", w)
	}
	id := n.daemon.Programs()[0].ID

	n.change(o, func() { o.Spec.Names = []string{"a/x", "b/y"} })
	n.holds("TracepointProgram/life f a/x b/y")
	n.change(o, func() { o.Spec.Names = []string{"b/y"} })
	n.holds("TracepointProgram/life f b/y")
	if got := n.daemon.Programs()[0].ID; got != id {
		t.Errorf("program %d became %d: attach points need no reload", id, got)
	}

	n.change(o, func() { o.Spec.GlobalData = map[string][]byte{"sampling": {1}} })
	n.eventually("a reload", func() error {
		if p := n.daemon.Programs(); len(p) != 1 || p[0].ID == id {
			return fmt.Errorf("%v", p)
		}
		return nil
	})
	n.holds("TracepointProgram/life f b/y")
	n.event("life", "Reloaded", "Reloaded program ")

	n.delete(o)
	n.holds()
}

// event waits for an Event on a user object.
func (n *node) event(owner, reason, text string) {
	n.t.Helper()
	n.eventually("an Event "+reason+" on "+owner, func() error {
		var events eventsv1.EventList
		if err := n.client.List(context.Background(), &events); err != nil {
			return err
		}
		var got []string
		for _, e := range events.Items {
			if e.Regarding.Name == owner {
				got = append(got, e.Reason+": "+e.Note)
				if e.Reason == reason && strings.Contains(e.Note, text) {
					return nil
				}
			}
		}
		return fmt.Errorf("there are %q", got)
	})
}

func TestNodeSelector(t *testing.T) {
	n := start(t)
	o := n.tracepoint("selected", "f", "a/x")
	o.Spec.NodeSelector.MatchLabels["role"] = "gateway"
	n.create(o)
	beside := n.tracepoint("beside", "g", "b/y")
	n.create(beside)
	n.holds("TracepointProgram/beside g b/y")

	label := func(value map[string]string) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
		n.change(node, func() { node.Labels = value })
	}
	label(map[string]string{"test": n.name, "role": "gateway"})
	n.holds("TracepointProgram/beside g b/y", "TracepointProgram/selected f a/x")
	label(map[string]string{"test": n.name})
	n.holds("TracepointProgram/beside g b/y")
}

func TestApplicationIsOneLoad(t *testing.T) {
	n := start(t)
	app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app"}}
	n.fill(&app.Spec.BpfAppCommon)
	for n, f := range []string{"f", "g", "f"} {
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{
			Type:       v1alpha1.ProgTypeTracepoint,
			Tracepoint: &v1alpha1.TracepointProgramInfo{BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: f}, Names: []string{fmt.Sprint("a/", n)}},
		})
	}
	n.create(app)
	n.eventually("the application", func() error {
		if got := len(n.daemon.Programs()); got != 2 {
			return fmt.Errorf("%d programs", got)
		}
		links := 0
		for _, p := range n.daemon.Programs() {
			links += len(p.Links)
		}
		if links != 3 {
			return fmt.Errorf("%d links", links)
		}
		return nil
	})
	loads := 0
	for _, call := range n.daemon.Calls() {
		if call == "Load" {
			loads++
		}
	}
	if loads != 1 {
		t.Errorf("%d Loads", loads)
	}
	n.delete(app)
	n.holds()
}

// fails makes loads of the function bad fail until the returned function is called.
func (n *node) fails(text string) func() {
	var mu sync.Mutex
	failing := true
	n.daemon.SetFault(func(_ string, request proto.Message, done bool) error {
		mu.Lock()
		defer mu.Unlock()
		load, ok := request.(*gobpfman.LoadRequest)
		if ok && load.GetInfo()[0].GetName() == "bad" && failing && !done {
			return status.Error(codes.Aborted, text)
		}
		return nil
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		failing = false
	}
}

// Upstream's fault 8: a failed load wasn't retried. Upstream's fault 26: objects after a
// failed one had to wait.
func TestUpstreamFault08And26AFailureIsToldAndRetriedAndHoldsUpNobody(t *testing.T) {
	n := start(t)
	n.daemon.SetFault(nil)
	mend := n.fails("the daemon's own words")
	n.create(n.tracepoint("broken", "bad", "a/x"))
	n.create(n.tracepoint("fine", "f", "b/y"))
	n.eventually("the other object", func() error {
		if p := n.daemon.Programs(); len(p) != 1 || p[0].Function != "f" {
			return fmt.Errorf("%v", p)
		}
		return nil
	})
	n.says("broken", v1alpha1.BpfProgCondNotLoaded, "the daemon's own words, when loading bad from file /object.o")
	n.event("broken", "NotLoaded", "Program bad failed on node "+n.name+": the daemon's own words, when loading bad from file /object.o")
	mend()
	n.holds("TracepointProgram/broken bad a/x", "TracepointProgram/fine f b/y")
	n.event("broken", "Loaded", " recovered on node ")
}

// Upstream's faults 1 and 2: objects with the same name, in two namespaces or of two
// kinds, used each other's programs.
func TestUpstreamFault01And02EqualNamesStayApart(t *testing.T) {
	n := start(t)
	tcxNs := func(namespace string) *v1alpha1.TcxNsProgram {
		n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		o := &v1alpha1.TcxNsProgram{ObjectMeta: metav1.ObjectMeta{Name: "same", Namespace: namespace}}
		o.Spec.BpfFunctionName, o.Spec.Direction = "t", "ingress"
		o.Spec.InterfaceSelector.Interfaces = &[]string{"eth0"}
		o.Spec.Containers = &v1alpha1.ContainerNsSelector{}
		n.fill(&o.Spec.BpfAppCommon)
		return o
	}
	one, two := tcxNs("equal-one"), tcxNs("equal-two")
	n.create(one)
	n.create(two)
	n.create(n.tracepoint("same", "f", "a/x"))
	kprobe := &v1alpha1.KprobeProgram{ObjectMeta: metav1.ObjectMeta{Name: "same"}}
	kprobe.Spec.BpfFunctionName, kprobe.Spec.FunctionName = "k", "try_to_wake_up"
	n.fill(&kprobe.Spec.BpfAppCommon)
	n.create(kprobe)
	n.eventually("all four", func() error {
		if objects := n.programs(); len(objects) != 4 || len(n.daemon.Programs()) != 4 {
			return fmt.Errorf("%d objects, %d programs", len(objects), len(n.daemon.Programs()))
		}
		return nil
	})
	n.delete(one)
	n.delete(kprobe)
	n.eventually("the other two", func() error {
		var left []string
		for _, p := range n.daemon.Programs() {
			left = append(left, p.Metadata[v1alpha1.MetadataKind]+" "+p.Metadata[v1alpha1.MetadataNamespace])
		}
		slices.Sort(left)
		if objects := n.programs(); !slices.Equal(left, []string{"TcxNsProgram equal-two", "TracepointProgram "}) || len(objects) != 2 {
			return fmt.Errorf("left are %q, %d objects", left, len(objects))
		}
		return nil
	})
}

// Upstream's fault 12: names were used as label values without validation.
func TestUpstreamFault12LongNamesAndOddSymbols(t *testing.T) {
	n := start(t)
	name := strings.Repeat("long.", 50) + "cat"
	n.create(n.tracepoint(name, "_ZN4core3fmt9Formatter9write_fmt17h0123456789abcdefE", "a/x"))
	n.holds("TracepointProgram/" + name + " _ZN4core3fmt9Formatter9write_fmt17h0123456789abcdefE a/x")

	// An application's member has the symbol in its id, which is in a label.
	app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "symbols"}}
	n.fill(&app.Spec.BpfAppCommon)
	for i, symbol := range []string{
		"example.com/a/b.(*Server[...]).Serve·dwrap·1", "std::map<int, char const*>::operator[](int&&)", strings.Repeat("_ZN3foo3barE", 40),
	} {
		uprobe := &v1alpha1.UprobeProgramInfo{FunctionName: symbol, Target: "/bin/x"}
		uprobe.BpfFunctionName = fmt.Sprint("f", i)
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeUprobe, Uprobe: uprobe})
	}
	n.create(app)
	n.eventually("all members", func() error {
		if held := len(n.daemon.Programs()); held != 4 {
			return fmt.Errorf("%d programs", held)
		}
		return n.reported(n.daemon.Programs())
	})
	for i, p := range n.daemon.Programs()[1:] {
		if got := p.Links[0].GetUprobeAttachInfo().GetFnName(); got != app.Spec.Programs[i].Uprobe.FunctionName {
			t.Errorf("attached to %q", got)
		}
	}
}

// Upstream's fault 13: a manually loaded program made listing fail.
func TestUpstreamFault13ForeignProgramsAreLeftAlone(t *testing.T) {
	n := start(t)
	_, err := n.daemon.Load(context.Background(), &gobpfman.LoadRequest{Info: []*gobpfman.LoadInfo{{Name: "foreign"}}})
	if err != nil {
		t.Fatal(err)
	}
	o := n.tracepoint("ours", "f", "a/x")
	n.create(o)
	n.holds("TracepointProgram/ours f a/x")
	n.crash()
	n.startAgent()
	n.delete(o)
	n.holds()
	if p := n.daemon.Programs(); len(p) != 1 || p[0].Function != "foreign" {
		t.Errorf("left are %v", p)
	}
}

// If an owner and its reports were deleted while no agent was running, only the daemon
// knows the owner. Its program is unloaded before the next periodic comparison.
func TestOwnersGoneWhileTheAgentWasDown(t *testing.T) {
	n := start(t)
	o := n.tracepoint("orphan", "f", "a/x")
	n.create(o)
	n.holds("TracepointProgram/orphan f a/x")
	n.crash()
	n.delete(o)
	objects := n.programs()
	if len(objects) != 1 {
		t.Fatalf("%d program objects", len(objects))
	}
	n.delete(objects[0]) // like the garbage collector
	n.startAgent()
	n.holds()
}

func TestAMissingInterfaceThatComes(t *testing.T) {
	n := start(t)
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "interface"}}
	o.Spec.BpfFunctionName, o.Spec.Direction = "t", "ingress"
	o.Spec.InterfaceSelector.Interfaces = &[]string{"eth7"}
	n.fill(&o.Spec.BpfAppCommon)
	n.create(o)
	n.says("interface", v1alpha1.BpfProgCondNotLoaded, "attach to eth7 ingress: the node has no interface eth7")
	if calls := n.daemon.Calls(); slices.Contains(calls, "Attach") {
		t.Errorf("the daemon was asked to attach to what isn't there: %q", calls)
	}
	n.mu.Lock()
	n.interfaces = map[string]program.Interface{"eth0": {Index: 2}, "eth7": {Index: 7}}
	n.mu.Unlock()
	n.holds("TcxProgram/interface t eth7")
}

// Malformed globaldata, which the API server admits, is reported, and doesn't affect
// other objects.
func TestMalformedGlobalDataHoldsUpNobody(t *testing.T) {
	n := start(t)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n.tracepoint("malformed", "f", "a/x"))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("TracepointProgram"))
	must.Succeed(t, unstructured.SetNestedSlice(content, []any{int64(300), "x"}, "spec", "globaldata", "LIMIT"))
	n.create(o)
	n.create(n.tracepoint("well", "g", "b/y"))
	n.says("malformed", v1alpha1.BpfProgCondBytecodeSelectorError, "globaldata LIMIT is neither base64 nor a list of bytes")
	n.eventually("the other object", func() error {
		if p := n.daemon.Programs(); len(p) != 1 || p[0].Function != "g" {
			return fmt.Errorf("%v", p)
		}
		return nil
	})
}

// The agent reverts changes of others to programs and objects.
func TestDriftIsRepaired(t *testing.T) {
	n := start(t)
	n.crash()
	n.relistReports, n.drift = time.Second, 100*time.Millisecond
	n.startAgent()
	n.create(n.tracepoint("drift", "f", "a/x"))
	n.holds("TracepointProgram/drift f a/x")
	objects := n.programs()
	n.delete(objects[0])
	n.eventually("the object to come back", func() error {
		if now := n.programs(); len(now) != 1 || now[0].GetUID() == objects[0].GetUID() {
			return fmt.Errorf("%d objects", len(now))
		}
		return nil
	})
	n.holds("TracepointProgram/drift f a/x")

	unload := func() {
		t.Helper()
		id := n.daemon.Programs()[0].ID
		if _, err := n.daemon.Unload(context.Background(), &gobpfman.UnloadRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
	}
	unload()
	n.eventually("the repair to be counted", func() error {
		if programs, links := n.repaired("program"), n.repaired("link"); programs != 1 || links != 0 {
			return fmt.Errorf("%v programs and %v links", programs, links)
		}
		return nil
	})

	// After a reboot, the daemon has no programs, and the agent starts. Nobody removed them.
	n.crash()
	unload()
	n.startAgent()
	n.holds("TracepointProgram/drift f a/x")
	if programs, links := n.repaired("program"), n.repaired("link"); programs != 0 || links != 0 {
		t.Errorf("a reboot counts as the repair of %v programs and %v links", programs, links)
	}
}

// After a crash before or after any call of the daemon or any write, the next run of the
// agent repairs everything: no program is loaded twice, no link is unknown, and no
// report is superfluous.
func TestUpstreamFault11CrashAnywhere(t *testing.T) {
	t.Parallel()
	n := start(t)
	crash := &crashing{node: n}
	n.daemon.SetFault(func(name string, _ proto.Message, done bool) error {
		if crash.now("daemon "+name, done) {
			return status.Error(codes.Unavailable, "crashed")
		}
		return nil
	})
	n.writes = func(_ string, done bool) error {
		if crash.now("write", done) {
			return errors.New("crashed")
		}
		return nil
	}
	// Each round is the life of one object. In round k, the agent crashes at its k-th
	// opportunity, until there is no k-th opportunity.
	for k := 1; ; k++ {
		crash.arm(k)
		name := fmt.Sprintf("crash-%d", k)
		o := n.tracepoint(name, "f", "a/x", "b/y")
		n.create(o)
		n.revive(crash)
		n.holds("TracepointProgram/" + name + " f a/x b/y")
		n.change(o, func() { o.Spec.Names, o.Spec.GlobalData = []string{"a/x", "c/z"}, map[string][]byte{"v": {1}} })
		n.revive(crash)
		n.holds("TracepointProgram/" + name + " f a/x c/z")
		n.delete(o)
		n.revive(crash)
		n.holds()
		at := crash.disarm()
		if at == "" {
			t.Logf("%d rounds, each with a crash at another point", k-1)
			if k < 10 {
				t.Errorf("only %d points to crash at", k-1)
			}
			return
		}
		t.Logf("crashed at %s", at)
	}
}

// crashing crashes the agent at its k-th opportunity.
type crashing struct {
	node *node

	mu    sync.Mutex
	left  int // opportunities until the crash; 0 if disabled
	at    string
	dead  bool
	alarm chan struct{}
}

func (c *crashing) arm(k int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.at, c.dead, c.alarm = k, "", false, make(chan struct{})
}

func (c *crashing) disarm() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = 0
	return c.at
}

// now reports whether the agent crashes here. It then gets no response, and nothing that
// it does afterwards has an effect.
func (c *crashing) now(what string, done bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return !done
	}
	if c.left == 0 {
		return false
	}
	if c.left--; c.left > 0 {
		return false
	}
	c.at, c.dead = fmt.Sprintf("%s, done: %v", what, done), true
	close(c.alarm)
	return true
}

// revive restarts the agent if it crashes before the node has settled.
func (n *node) revive(c *crashing) {
	n.eventually("the agent to crash or to settle", func() error {
		select {
		case <-c.alarm:
			n.crash()
			c.mu.Lock()
			c.dead, c.alarm = false, make(chan struct{})
			c.mu.Unlock()
			n.startAgent()
			return nil
		default:
		}
		return n.settled()
	})
}

// settled checks that the reports show what the user objects request.
func (n *node) settled() error {
	var owners v1alpha1.TracepointProgramList
	if err := n.client.List(context.Background(), &owners, client.InNamespace("")); err != nil {
		return err
	}
	owners.Items = slices.DeleteFunc(owners.Items, func(o v1alpha1.TracepointProgram) bool {
		return o.Spec.NodeSelector.MatchLabels["test"] != n.name // of another test
	})
	objects := n.programs()
	if len(owners.Items) != len(objects) || len(objects) != len(n.daemon.Programs()) {
		return fmt.Errorf("%d owners, %d objects, %d programs", len(owners.Items), len(objects), len(n.daemon.Programs()))
	}
	for _, o := range objects {
		for _, owner := range owners.Items {
			if ref := metav1.GetControllerOf(o); ref != nil && ref.UID == owner.UID && o.GetStatus().OwnerGeneration != owner.Generation {
				return fmt.Errorf("%s is about generation %d", o.GetName(), o.GetStatus().OwnerGeneration)
			}
		}
	}
	return n.reported(n.daemon.Programs())
}
