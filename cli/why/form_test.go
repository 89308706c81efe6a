// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package why

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// TestFormOfAnswers holds each problem of docs/status.md against the form of an answer: what runs where and the cause, then one
// thing to do, each in a line, and details after them.
func TestFormOfAnswers(t *testing.T) {
	t.Parallel()
	for _, section := range problem.Table() {
		for _, row := range section.Rows {
			for _, named := range []problem.Reason{row.Reason, ""} { // older agents name none
				const message = "it fails"
				page, text := answer(t, named, message+"\n0: R1=ctx()\nR0 !read_ok")
				lines := strings.Split(text, "\n")
				if want := "  Revision 1 fails on 1 of 1 node: " + message; lines[1] != want {
					t.Errorf("%s: the answer begins with %q, want %q", row.Reason, lines[1], want)
				}
				if want := "  To do: " + row.ToDo; named != "" && lines[2] != want || !strings.HasPrefix(lines[2], "  To do: ") || lines[3] != "" || page.ToDo == "" {
					t.Errorf("%s: %q follows, want one to-do", row.Reason, lines[2:4])
				}
				if strings.Contains(strings.Join(lines[:3], "\n"), `\n`) || !strings.Contains(text, "R0 !read_ok\n") {
					t.Errorf("%s: the log isn't below:\n%s", row.Reason, text)
				}
			}
		}
	}
}

// answer explains an object that fails on its only node with a message, whose problem can have a name.
func answer(t *testing.T, named problem.Reason, message string) (page Page, text string) {
	t.Helper()
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "counter", UID: "1f2e", Generation: 1}}
	o.Status.Revision = &v1alpha1.RecordedRevision{Number: 1}
	controller := true
	report := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{Name: "counter-a", OwnerReferences: []metav1.OwnerReference{{UID: o.UID, Controller: &controller}}}}
	report.Status = v1alpha1.BpfProgramStatus{Node: "a", Function: "f", OwnerGeneration: 1, Problem: string(named), Conditions: []metav1.Condition{v1alpha1.BpfProgCondNotLoaded.Condition(message)}}
	page, err := Explain(Facts{Kind: "TcxProgram", Object: o, Reports: []v1alpha1.ProgramObject{report}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := page.Print(&out, false); err != nil {
		t.Fatal(err)
	}
	return page, out.String()
}

// What runs where comes first, in numbers.
func TestSummary(t *testing.T) {
	t.Parallel()
	o := &v1alpha1.TcxProgram{}
	o.Status.Revision = &v1alpha1.RecordedRevision{Number: 2}
	failed := Node{State: Failed, Programs: []Program{{Condition: "NotLoaded", Previous: true, Message: "no such function (the previously loaded program 9 keeps running)\nlog"}}}
	for want, nodes := range map[string][]Node{
		"Revision 2 runs on 2 of 2 nodes": {{State: Attached}, {State: Attached}},
		"Revision 2 runs on 1 of 2 nodes; the previous revision runs on 1 node; revision 2 fails on 1 of 2 nodes: no such function": {failed, {State: Attached}},
		"2 nodes have not reported yet; 1 node is without an agent":                                                                 {{State: NotReported}, {State: NotReported}, {State: NoAgent}},
		"Revision 2 runs on 1 of 2 nodes; 1 node is held back by the rollout":                                                       {{State: RollingOut}, {State: Attached}, {State: Left}},
		"1 node has not processed the last change yet":                                                                              {{State: Outdated}},
		"Revision 2 has nothing to attach to on 3 nodes":                                                                            {{State: Idle}, {State: Idle}, {State: Idle}},
		"It runs nowhere: no node is selected":                                                                                      nil,
	} {
		if got := summary(Facts{Object: o}, Page{Nodes: nodes}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A rollout that has failed is said beside what runs, with what to do, even if no node fails anymore.
func TestSummaryOfRollouts(t *testing.T) {
	t.Parallel()
	const refused = "the kernel's verifier refuses the program: R0 !read_ok"
	of := func(state v1alpha1.RolloutState, message string) Facts {
		o := &v1alpha1.TcxProgram{}
		o.Status.Revision = &v1alpha1.RecordedRevision{Number: 3}
		o.Status.Rollout = &v1alpha1.RolloutStatus{State: state, Revision: 3, Message: message, Previous: &v1alpha1.RolloutRevision{Revision: 2}}
		return Facts{Object: o}
	}
	held, failed := Node{State: RollingOut}, Node{State: Failed, Programs: []Program{{Condition: "NotLoaded", Message: refused}}}
	for want, test := range map[string]struct {
		facts Facts
		nodes []Node
	}{
		"Revision 3 runs on 1 of 3 nodes; revision 2 runs on 2 of 3 nodes, held back by the rollout": {
			of(v1alpha1.RolloutProgressing, "step 1 of 2"), []Node{{State: Attached}, held, held},
		},
		"Revision 3 fails on 1 of 2 nodes: " + refused + "; revision 2 runs on 1 of 2 nodes, held back by the rollout; the rollout of revision 3 was halted: 1 of 1 nodes aren't healthy (a: see above)": {
			of(v1alpha1.RolloutHalted, "1 of 1 nodes aren't healthy (a: "+refused+")"), []Node{failed, held},
		},
		"Revision 2 runs on 2 of 2 nodes, held back by the rollout; the rollout of revision 3 was undone: 1 of 1 nodes aren't healthy (a: " + refused + ")": {
			of(v1alpha1.RolloutUndone, "1 of 1 nodes aren't healthy (a: "+refused+")"), []Node{held, held},
		},
	} {
		if got := summary(test.facts, Page{Nodes: test.nodes}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	undone := Object{State: Failed, Problem: string(problem.RolloutUndone), Message: "Rollout undone"}
	if got, want := todo(Page{Object: undone, Nodes: []Node{held, held}}), problem.ToDo(problem.RolloutUndone); got != want || got == "" {
		t.Errorf("to do: %q, want %q", got, want)
	}
}

// What the agent has found to be meant is what to do.
func TestSolutionsHaveTheNearestName(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]struct {
		named problem.Reason
		todo  string
	}{
		"the bytecode has no function syn_cuont (did you mean syn_count?); its functions are syn_count, when loading from image x": {
			problem.NoSuchFunction, "set bpffunctionname to syn_count, or to another function that the message lists",
		},
		"attach to syscalls/sys_enter_execv: the kernel has no tracepoint syscalls/sys_enter_execv; did you mean sys_enter_execve?": {
			problem.NoSuchTracepoint, "set the name to syscalls/sys_enter_execve, or to another tracepoint: `/sys/kernel/tracing/available_events` on the node lists them",
		},
		"globals.stp: the bytecode has no global variable stp; did you mean step?, when loading from image x": {
			problem.NoSuchGlobal, "set the name to step, the nearest one that there is",
		},
		"the section of the function is for another type of program, when loading on_exec from image x; on_exec is in section tracepoint/sched/sched_process_exec": {
			problem.ProgramType, "use the kind for functions in the section tracepoint/sched/sched_process_exec, or change the section of on_exec in the source",
		},
		"globals.x; did you mean evil?: the bytecode has no global variable x; did you mean step?": {problem.NoSuchGlobal, problem.ToDo(problem.NoSuchGlobal)},
		"the section of a function is for another type of program; f is in section xdp; g is in section kprobe/x": {
			problem.ProgramType, problem.ToDo(problem.ProgramType),
		},
		"the kernel has no tracepoint a/b": {problem.NoSuchTracepoint, problem.ToDo(problem.NoSuchTracepoint)},
	} {
		if got := solution(string(want.named), "", message); got != want.todo {
			t.Errorf("%s: %q, want %q", message, got, want.todo)
		}
	}
}
