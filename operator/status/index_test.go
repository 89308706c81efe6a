// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

var (
	ref = Ref{Kind: "TcxProgram", NamespacedName: types.NamespacedName{Name: "prog"}}
	uid = types.UID("uid")
)

// cluster returns an index with nodes a, b, … that run an agent.
func cluster(tb testing.TB, nodes ...string) *Index {
	tb.Helper()
	x := NewIndex()
	for _, name := range nodes {
		x.SetNode(name, map[string]string{"name": name}, true)
		x.AddAgent(name, types.UID("agent-"+name))
	}
	return x
}

func everywhere(generation int64) Owner {
	return Owner{Generation: generation, Selector: &selector{}, Programs: 1}
}

func only(t *testing.T, generation int64, nodes string) Owner {
	t.Helper()
	parsed, err := metav1.ParseToLabelSelector(nodes)
	if err != nil {
		t.Fatal(err)
	}
	of, err := newSelector(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return Owner{Generation: generation, Selector: of, Programs: 1}
}

// program returns a report about the object of ref.
func program(node, name string, generation int64, condition v1alpha1.BpfProgramConditionType, message string) *reports.Report {
	return reportOf(node, name, reports.State{Generation: generation, Condition: condition, Message: message})
}

func reportOf(node, name string, state reports.State) *reports.Report {
	return &reports.Report{
		Name: name, UID: types.UID("of-" + name),
		Owner: unique.Make(reports.Owner{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, UID: uid}),
		Node:  unique.Make(reports.Node{Label: node}),
		State: unique.Make(state),
	}
}

// check compares the index's summary with "selected/attached/failed type: message".
func check(t *testing.T, x *Index, want string) {
	t.Helper()
	s, ok := x.Summary(uid)
	if !ok {
		t.Fatal("the object isn't known")
	}
	condition, said := s.Condition()
	if got := fmt.Sprintf("%d/%d/%d %s: %s", s.Selected, s.Attached, s.Failed, condition, said.Text); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Upstream's fault 24: a normal rollout must never look like an error.
func TestUpstreamFault24RollOutIsNoError(t *testing.T) {
	x := cluster(t, "a", "b")
	x.SetOwner(ref, uid, everywhere(1))
	check(t, x, "2/0/0 NotYetLoaded: Attached on 0 of 2 selected nodes, waiting for a, b")

	x.SetReport(program("a", "p-a", 0, "", ""))
	check(t, x, "2/0/0 NotYetLoaded: Attached on 0 of 2 selected nodes, waiting for a, b")

	if got := x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondLoaded, "")); !slices.Equal(got, []Ref{ref}) {
		t.Errorf("changed: %v", got)
	}
	check(t, x, "2/1/0 NotYetLoaded: Attached on 1 of 2 selected nodes, waiting for b")

	x.SetReport(program("b", "p-b", 1, v1alpha1.BpfProgCondNoContainersOnNode, ""))
	check(t, x, "2/1/0 ReconcileSuccess: Attached on 1 of 2 selected nodes; nothing to attach to on b (no container matches)")
	if got := x.SetReport(program("b", "p-b", 1, v1alpha1.BpfProgCondNoContainersOnNode, "")); len(got) > 0 {
		t.Errorf("the same again changed %v", got)
	}
}

// Each node that unloads the programs of an object that another client's finalizer keeps changes its message.
func TestUnloadingIsCounted(t *testing.T) {
	x := cluster(t, "a", "b")
	owner := everywhere(1)
	owner.Deleting = true
	x.SetOwner(ref, uid, owner)
	of := map[string]*reports.Report{}
	for _, node := range []string{"a", "b"} {
		of[node] = program(node, "p-"+node, 1, v1alpha1.BpfProgCondLoaded, "")
		if got := x.SetReport(of[node]); !slices.Equal(got, []Ref{ref}) {
			t.Errorf("the report of %s changed %v", node, got)
		}
	}
	check(t, x, "2/0/0 NotYetLoaded: Being deleted, waiting for 2 nodes to unload its programs")
	for _, node := range []string{"a", "b"} {
		if got := x.DeleteReport(of[node]); !slices.Equal(got, []Ref{ref}) {
			t.Errorf("the end of the report of %s changed %v", node, got)
		}
	}
	check(t, x, "2/0/0 NotYetLoaded: Being deleted, its programs are unloaded")
}

func TestProgramsBeforeTheirOwner(t *testing.T) {
	x := cluster(t, "a")
	if got := x.SetReport(program("a", "p", 1, v1alpha1.BpfProgCondLoaded, "")); len(got) > 0 {
		t.Errorf("changed %v, which isn't known", got)
	}
	x.SetOwner(ref, uid, everywhere(1))
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
}

// While a node hasn't reported all programs of an object, its reports aren't complete.
func TestMissingReports(t *testing.T) {
	x := cluster(t, "a")
	first := program("a", "p-1", 1, v1alpha1.BpfProgCondLoaded, "")
	misses := func(want bool, when string) {
		t.Helper()
		if got := x.Misses(first); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	x.SetReport(first)
	misses(false, "the object isn't known")
	two := everywhere(1)
	two.Programs = 2
	x.SetOwner(ref, uid, two)
	misses(true, "one of two programs")
	x.SetReport(program("a", "p-2", 1, v1alpha1.BpfProgCondLoaded, ""))
	misses(false, "both programs")
	x.SetOwner(ref, uid, only(t, 1, "name=b"))
	misses(false, "a node that isn't selected anymore")
}

// After an edit of the spec, all nodes are waiting until they have applied it, even if they failed
// before.
func TestNewGeneration(t *testing.T) {
	x := cluster(t, "a", "b")
	x.SetOwner(ref, uid, everywhere(1))
	x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondNotLoaded, "no"))
	x.SetReport(program("b", "p-b", 1, v1alpha1.BpfProgCondLoaded, ""))
	check(t, x, "2/1/1 ReconcileError: Failed on 1 node, attached on 1 of 2 selected nodes: a: no")
	x.SetOwner(ref, uid, everywhere(2))
	check(t, x, "2/0/0 NotYetLoaded: Attached on 0 of 2 selected nodes, waiting for a, b")
	x.SetReport(program("a", "p-a", 2, v1alpha1.BpfProgCondLoaded, ""))
	x.SetReport(program("b", "p-b", 2, v1alpha1.BpfProgCondLoaded, ""))
	check(t, x, "2/2/0 ReconcileSuccess: Attached on 2 of 2 selected nodes")
}

// Upstream's fault 23: the message must be updated when the type stays the same.
func TestUpstreamFault23MessageFollows(t *testing.T) {
	x := cluster(t, "a", "b")
	x.SetOwner(ref, uid, everywhere(1))
	x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondNotLoaded, "one"))
	x.SetReport(program("b", "p-b", 1, v1alpha1.BpfProgCondNotLoaded, "two"))
	check(t, x, "2/0/2 ReconcileError: Failed on 2 nodes, attached on 0 of 2 selected nodes: a: one; b: two")
	if got := x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondNotLoaded, "three")); len(got) == 0 {
		t.Error("another message is no change")
	}
	check(t, x, "2/0/2 ReconcileError: Failed on 2 nodes, attached on 0 of 2 selected nodes: a: three; b: two")
	x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondLoaded, ""))
	check(t, x, "2/1/1 ReconcileError: Failed on 1 node, attached on 1 of 2 selected nodes: b: two")
}

// Where the newest revision can't be loaded, the previous one can keep running.
func TestPreviousRevisionKeepsRunning(t *testing.T) {
	x := cluster(t, "a", "b")
	x.SetOwner(ref, uid, everywhere(2))
	failed := func(node string, previous bool) *reports.Report {
		return reportOf(node, "p-"+node, reports.State{Generation: 2, Condition: v1alpha1.BpfProgCondNotLoaded, Message: "no", Previous: previous})
	}
	x.SetReport(failed("a", true))
	x.SetReport(failed("b", false))
	check(t, x, "2/0/2 ReconcileError: Failed on 2 nodes, on 1 of which the previous revision keeps running, attached on 0 of 2 selected nodes: a, b: no")
	if got := x.SetReport(failed("b", true)); len(got) == 0 {
		t.Error("that it keeps running is no change")
	}
	check(t, x, "2/0/2 ReconcileError: Failed on 2 nodes, where the previous revision keeps running, attached on 0 of 2 selected nodes: a, b: no")
	x.SetReport(reportOf("a", "p-a", reports.State{Generation: 2, Condition: v1alpha1.BpfProgCondNotUnloaded, Message: "busy", Previous: true}))
	check(t, x, "2/0/2 ReconcileError: Failed on 2 nodes, on 1 of which the previous revision keeps running, attached on 0 of 2 selected nodes: a: busy; b: no")
	x.SetReport(program("a", "p-a", 2, v1alpha1.BpfProgCondLoaded, ""))
	x.SetReport(program("b", "p-b", 2, v1alpha1.BpfProgCondLoaded, ""))
	check(t, x, "2/2/0 ReconcileSuccess: Attached on 2 of 2 selected nodes")
}

func TestApplication(t *testing.T) {
	x := cluster(t, "a")
	app := everywhere(1)
	app.Programs = 3
	x.SetOwner(ref, uid, app)
	member := func(node, name string, condition v1alpha1.BpfProgramConditionType, message string) *reports.Report {
		linked := condition == v1alpha1.BpfProgCondLoaded && !strings.HasPrefix(name, "detached")
		return reportOf(node, "app-"+name, reports.State{Member: name, Generation: 1, Condition: condition, Message: message, Linked: linked})
	}
	x.SetReport(member("a", "xdp-pass", v1alpha1.BpfProgCondLoaded, ""))
	x.SetReport(member("a", "uprobe-malloc", v1alpha1.BpfProgCondNoContainersOnNode, ""))
	check(t, x, "1/0/0 NotYetLoaded: Attached on 0 of 1 selected node, waiting for a")
	x.SetReport(member("a", "tcx-ingress-pass", v1alpha1.BpfProgCondNotLoaded, "no interface eth7"))
	check(t, x, "1/0/1 ReconcileError: Failed on 1 node, attached on 0 of 1 selected node: a: tcx-ingress-pass: no interface eth7")
	x.SetReport(member("a", "tcx-ingress-pass", v1alpha1.BpfProgCondLoaded, ""))
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	x.DeleteReport(member("a", "xdp-pass", "", ""))
	check(t, x, "1/0/0 NotYetLoaded: Attached on 0 of 1 selected node, waiting for a")
	// Members that are only loaded don't count, neither as attached nor as idle.
	x.DeleteReport(member("a", "tcx-ingress-pass", "", ""))
	x.SetReport(member("a", "detached", v1alpha1.BpfProgCondLoaded, ""))
	x.SetReport(member("a", "detached-2", v1alpha1.BpfProgCondLoaded, ""))
	check(t, x, "1/0/0 ReconcileSuccess: Attached on 0 of 1 selected node; nothing to attach to on a (no container matches)")
	x.DeleteReport(member("a", "uprobe-malloc", "", ""))
	x.SetReport(member("a", "detached-3", v1alpha1.BpfProgCondLoaded, ""))
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	app.Generation, app.Programs = 2, 0
	x.SetOwner(ref, uid, app)
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
}

// Upstream's faults 20 and 21: nodes that are deleted, unreachable, or without an agent must not block
// anything.
func TestNodesComeAndGo(t *testing.T) {
	x := cluster(t, "a", "b", "c")
	x.SetOwner(ref, uid, everywhere(1))
	x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondLoaded, ""))
	x.SetReport(program("b", "p-b", 1, v1alpha1.BpfProgCondNotLoaded, "no"))

	x.DeleteNode("b")
	check(t, x, "2/1/0 NotYetLoaded: Attached on 1 of 2 selected nodes, waiting for c")
	x.SetNode("c", map[string]string{"name": "c"}, false)
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node; 1 node that the node selector also matches can't be reached: c")
	x.SetNode("d", nil, true)
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node; no agent runs on 1 node that the node selector also matches: d; "+
		"1 node that the node selector also matches can't be reached: c")
	if refs := x.SetNode("d", nil, false); len(refs) == 0 {
		t.Error("that a node without agent can't be reached is no news")
	}
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node; 2 nodes that the node selector also matches can't be reached: c, d")
	x.SetNode("c", map[string]string{"name": "c"}, true)
	check(t, x, "2/1/0 NotYetLoaded: Attached on 1 of 2 selected nodes, waiting for c")
	x.SetNode("d", nil, true)
	check(t, x, "2/1/0 NotYetLoaded: Attached on 1 of 2 selected nodes, waiting for c")
	x.AddAgent("d", "agent-d")
	check(t, x, "3/1/0 NotYetLoaded: Attached on 1 of 3 selected nodes, waiting for c, d")
}

func TestSelector(t *testing.T) {
	x := cluster(t, "a", "b")
	x.SetOwner(ref, uid, only(t, 1, "name=a"))
	x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondLoaded, ""))
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")

	if got := x.SetNode("b", map[string]string{"name": "a"}, true); !slices.Equal(got, []Ref{ref}) {
		t.Errorf("changed: %v", got)
	}
	check(t, x, "2/1/0 NotYetLoaded: Attached on 1 of 2 selected nodes, waiting for b")
	x.SetNode("b", map[string]string{"name": "b"}, true)
	x.SetNode("a", map[string]string{"name": "z"}, true)
	check(t, x, "0/0/0 ReconcileSuccess: No node matches the node selector")
	x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondNotUnloaded, "unload 7: busy"))
	check(t, x, "0/0/1 ReconcileError: Failed on 1 node, attached on 0 of 0 selected nodes: a: unload 7: busy")
	x.DeleteReport(program("a", "p-a", 0, "", ""))
	check(t, x, "0/0/0 ReconcileSuccess: No node matches the node selector")
}

// A DaemonSet deletes a pod before it creates the next. In the meantime, the node counts for some time.
func TestAgentRestart(t *testing.T) {
	x := cluster(t, "a")
	x.SetOwner(ref, uid, everywhere(1))
	x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondLoaded, ""))

	if !x.RemoveAgent("a", "agent-a") || x.RemoveAgent("a", "agent-a") {
		t.Error("a pod went once")
	}
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	x.AddAgent("a", "agent-a2")
	if got := x.SettleAgent("a", "agent-a"); len(got) > 0 {
		t.Errorf("the replaced pod's grace changed %v", got)
	}
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")

	// Two rollouts within the grace period.
	x.RemoveAgent("a", "agent-a2")
	if got := x.SettleAgent("a", "agent-a"); len(got) > 0 {
		t.Errorf("the grace of a pod before ended this one's: %v", got)
	}
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	if got := x.SettleAgent("a", "agent-a2"); !slices.Equal(got, []Ref{ref}) {
		t.Errorf("changed: %v", got)
	}
	check(t, x, "0/0/0 NotYetLoaded: Waiting for the node components: no node runs the agent yet")
}

func TestDeletion(t *testing.T) {
	x := cluster(t, "a", "b")
	x.SetOwner(ref, uid, everywhere(1))
	x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondNotLoaded, "no"))
	deleting := everywhere(2)
	deleting.Deleting = true
	x.SetOwner(ref, uid, deleting)
	check(t, x, "2/0/0 NotYetLoaded: Being deleted, waiting for 1 node to unload its programs")
	x.SetReport(program("b", "p-b", 2, v1alpha1.BpfProgCondNotUnloaded, "unload 7: busy"))
	check(t, x, "2/0/1 DeleteError: Failed to unload on 1 node: b: unload 7: busy")
	x.DeleteNode("b")
	check(t, x, "1/0/0 NotYetLoaded: Being deleted, waiting for 2 nodes to unload its programs")
	x.DeleteReport(program("a", "p-a", 1, "", ""))
	x.DeleteReport(program("b", "p-b", 2, "", ""))
	check(t, x, "1/0/0 NotYetLoaded: Being deleted, its programs are unloaded")
}

func TestLongNodeNames(t *testing.T) {
	name := strings.Repeat("n", 100)
	x := cluster(t, name)
	x.SetOwner(ref, uid, everywhere(1))
	check(t, x, "1/0/0 NotYetLoaded: Attached on 0 of 1 selected node, waiting for "+name)
	x.SetReport(program(v1alpha1.LabelValue(name), "p", 1, v1alpha1.BpfProgCondLoaded, ""))
	check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
}

// A report that claims to be about an object, but names another one, doesn't affect the object, no matter which is first.
func TestReportInTheNameOfAnotherObject(t *testing.T) {
	owner := reports.Owner{Kind: ref.Kind, Name: ref.Name, UID: uid}
	for name, claim := range map[string]reports.Owner{
		"another kind":      {Kind: "NoSuchKind", Name: ref.Name, UID: uid},
		"another name":      {Kind: ref.Kind, Name: "other", UID: uid},
		"another namespace": {Kind: ref.Kind, Name: ref.Name, Namespace: "tenant", UID: uid},
	} {
		t.Run(name, func(t *testing.T) {
			x := cluster(t, "a")
			forged := program("a", "p-a", 1, v1alpha1.BpfProgCondNotLoaded, "forged")
			forged.Owner = unique.Make(claim)
			for range 2 { // before and after the object
				if refs := x.SetReport(forged); len(refs) > 0 {
					t.Errorf("it changed %v", refs)
				}
				if refs := x.SetOwner(ref, uid, everywhere(1)); len(refs) > 0 && refs[0] != ref {
					t.Errorf("the object is %v", refs)
				}
				check(t, x, "1/0/0 NotYetLoaded: Attached on 0 of 1 selected node, waiting for a")
			}
			genuine := program("a", "p-a", 1, v1alpha1.BpfProgCondLoaded, "")
			genuine.Owner = unique.Make(owner)
			if refs := x.SetReport(genuine); !slices.Equal(refs, []Ref{ref}) {
				t.Errorf("the object is %v", refs)
			}
			check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
			x.DeleteReport(forged)
			check(t, x, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
			if known := x.Known(); !slices.Equal(known, []Ref{ref}) {
				t.Errorf("the objects are %v", known)
			}
		})
	}
}

// A report without a controller concerns no object.
func TestReportWithoutAnOwner(t *testing.T) {
	x := NewIndex()
	orphan := program("a", "orphan", 1, v1alpha1.BpfProgCondLoaded, "")
	orphan.Owner = unique.Make(reports.Owner{})
	if refs := x.SetReport(orphan); len(refs)+len(x.owners)+len(x.nodes) > 0 {
		t.Errorf("it changed %v, and the index has %d owners and %d nodes", refs, len(x.owners), len(x.nodes))
	}
}

// Objects that are removed leave nothing behind, in any order of removal.
func TestForgets(t *testing.T) {
	steps := []func(*Index){
		func(x *Index) { x.DeleteOwner(uid) },
		func(x *Index) { x.DeleteReport(program("a", "p-a", 0, "", "")) },
		func(x *Index) { x.DeleteNode("a") },
		func(x *Index) { x.RemoveAgent("a", "agent-a"); x.SettleAgent("a", "agent-a") },
	}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 3, 0, 1}, {2, 0, 3, 1}} {
		x := cluster(t, "a")
		x.SetOwner(ref, uid, everywhere(1))
		x.SetReport(program("a", "p-a", 1, v1alpha1.BpfProgCondNotLoaded, "no"))
		for _, i := range order {
			steps[i](x)
		}
		if len(x.nodes) > 0 || len(x.owners)+len(x.objects) > 0 || x.agents != 0 {
			t.Errorf("order %v leaves %d nodes, %d owners, %d agents", order, len(x.nodes), len(x.owners), x.agents)
		}
	}
}

// BenchmarkProgramEvent measures one event of a BpfProgram, and the summary after it.
func BenchmarkProgramEvent(b *testing.B) {
	for _, nodes := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			names := make([]string, nodes)
			for i := range names {
				names[i] = fmt.Sprintf("node-%05d", i)
			}
			x := cluster(b, names...)
			x.SetOwner(ref, uid, everywhere(1))
			states := []reports.State{
				{Generation: 1, Condition: v1alpha1.BpfProgCondNotLoaded, Message: "no"},
				{Generation: 1, Condition: v1alpha1.BpfProgCondLoaded},
				{},
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				x.SetReport(reportOf(names[i%nodes], "p", states[(i/nodes+i)%len(states)]))
				s, _ := x.Summary(uid)
				s.Condition()
			}
		})
	}
}
