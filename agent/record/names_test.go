// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// colliding returns the first two texts, of prefix and a number, of which name returns the same.
func colliding(prefix string, name func(text string) string) [2]string {
	seen := map[string]string{}
	for n := 0; ; n++ {
		text := prefix + fmt.Sprint(n)
		of := name(text)
		if other, is := seen[of]; is {
			return [2]string{other, text}
		}
		seen[of] = text
	}
}

// write writes an owner's reports until they are written, as the reporter does.
func write(t *testing.T, r *Reports, owner program.Owner, want plan.Plan) {
	t.Helper()
	var err error
	for range 3 {
		if _, err = r.Settle(t.Context(), owner.Key); err == nil {
			err = r.Write(t.Context(), owner.Key, &owner, want, nil, report.Outcome{})
		}
		if err == nil && len(r.InDoubt(owner.Key)) == 0 {
			return
		}
	}
	t.Fatalf("the reports aren't written: %v", err)
}

// Among an application's reports on thousands of nodes, two have the same short name. Each node has its own, and keeps its name.
func TestReportsOfTwoNodesWithOneName(t *testing.T) {
	server := &stored{reports: map[string]*v1alpha1.BpfProgram{}}
	owner, want := members(1)
	member := owner.Members[0].ID
	nodes := colliding("node-", func(node string) string { return report.Name(owner, member, node) })
	on := func(node string) *Reports {
		r := reportsTo(t, server.serve)
		r.NodeName = node
		return r
	}
	first, second := on(nodes[0]), on(nodes[1])
	write(t, first, owner, want)
	write(t, second, owner, want)
	short, long := report.Name(owner, member, nodes[0]), report.LongName(owner, member, nodes[1])
	if len(server.reports) != 2 || server.reports[short].Status.Node != nodes[0] || server.reports[long] == nil || server.reports[long].Status.Node != nodes[1] {
		t.Fatalf("%v, want a report of each node", server.reports)
	}
	server.sent()
	second = on(nodes[1])
	if err := second.Read(t.Context(), owner.Key, long); err != nil {
		t.Fatal(err)
	}
	delete(server.reports, short)
	write(t, second, owner, want)
	if sent := server.sent(); sent != "GET" {
		t.Errorf("after a restart of the agent and the end of the other report: %s", sent)
	}
}

// Who may create objects of another kind with the same name, or members of chosen names, can compute a name that another
// object's report has. That report, and its owner's record, stay as they are.
func TestReportsOfAnotherObjectWithTheName(t *testing.T) {
	server := &stored{reports: map[string]*v1alpha1.BpfProgram{}}
	r := reportsTo(t, server.serve)
	owner, want := members(1)
	name := report.Name(owner, owner.Members[0].ID, "node")
	theirs := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "theirs", ResourceVersion: "1", OwnerReferences: []metav1.OwnerReference{
		{Kind: "XdpProgram", Name: "app", UID: "other", Controller: new(true)},
	}}}
	theirs.Status.Node, theirs.Status.ProgramID = "node", 42
	server.reports[name] = theirs.DeepCopy()
	if err := r.Read(t.Context(), owner.Key, name); err != nil || len(r.Recorded(owner.Key)) > 0 {
		t.Errorf("%v: the record has %v", err, r.Recorded(owner.Key))
	}
	write(t, r, owner, want)
	if err := r.Write(t.Context(), owner.Key, nil, plan.Plan{}, nil, report.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if len(server.reports) != 1 || server.reports[name].Status.ProgramID != 42 || server.reports[name].UID != "theirs" {
		t.Errorf("%+v", server.reports)
	}
	if len(r.known.taken) > 0 {
		t.Errorf("after the object's end, %v are taken", r.known.taken)
	}
}

// Two members of one application can have the same short name, too.
func TestReportsOfTwoMembersWithOneName(t *testing.T) {
	server := &stored{reports: map[string]*v1alpha1.BpfProgram{}}
	r := reportsTo(t, server.serve)
	app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app", UID: "uid"}}
	app.Spec.ByteCode.Path = new("/x.o")
	bare := program.Owner{Key: program.Key{Kind: "BpfApplication", Name: "app"}, UID: "uid"}
	functions := colliding("f", func(f string) string { return report.Name(bare, "tracepoint-"+f, "node") })
	for _, f := range functions {
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &v1alpha1.TracepointProgramInfo{
			BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: f}, Names: []string{"a/x"},
		}})
	}
	owner := program.OwnerOf("BpfApplication", app)
	if a, b := report.Name(owner, owner.Members[0].ID, "node"), report.Name(owner, owner.Members[1].ID, "node"); a != b {
		t.Fatalf("the IDs %s and %s have the names %s and %s", owner.Members[0].ID, owner.Members[1].ID, a, b)
	}
	write(t, r, owner, plan.Want(owner, program.Node{}, nil))
	if len(server.reports) != 2 {
		t.Errorf("%d reports", len(server.reports))
	}
	server.sent()
	write(t, r, owner, plan.Want(owner, program.Node{}, nil))
	if sent := server.sent(); sent != "" {
		t.Errorf("the same again: %s", sent)
	}
}
