// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"slices"
	"strings"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/operator/reports"
	steps "github.com/bpfman/bpfman-operator/operator/rollout"
)

// Owner is what the index needs to know about a user object.
type Owner struct {
	Generation int64
	Deleting   bool
	// Selector selects the nodes. If it is invalid, it is nil, and Invalid is the reason.
	Selector *selector
	Invalid  string
	// Undecodable is the reason why the object can't be decoded. Then only its metadata is known.
	Undecodable string
	// Programs is the number of programs that the object has on each node: one, or the number of an application's
	// members.
	Programs int
	// Rollout is the state of the object's rollout, or nil. Before is the generation of the revision that the other nodes
	// have, or 0, and ProgramsBefore the number of programs that the object has there.
	Rollout        *v1alpha1.RolloutStatus
	Before         int64
	ProgramsBefore int
}

// outcome is the combined result of a node's reports.
type outcome int

const (
	// uncounted means that the node isn't selected, or no longer matters.
	uncounted outcome = iota
	waiting
	attached
	// idle means that everything is loaded, but there is nothing to attach to.
	idle
	failed
)

// nodeState is what the reports of one node say about an owner.
type nodeState struct {
	node     *node
	matching bool
	reports  []*reports.Report // by name
	// The fields below are derived from those above, and counted in the owner.
	selected bool
	// lost means that the node would be selected if it were reachable.
	lost    bool
	outcome outcome
	// changes means that the node is to have the newest revision. progress is its state in the rollout.
	changes  bool
	progress progress
	// trouble is the reason of the progress failing, and of unsettled if it is known.
	trouble string
	// reason is the reason of the outcome failed or idle, and of waiting if the agent has reported one. stalled means that the failure stays until somebody
	// changes something.
	reason  problem.Note
	stalled bool
	// previous means that the outcome is failed, and that a program of the previous revision keeps running.
	previous bool
	// reported is what that means for a rollout of the newest revision.
	reported steps.Reported
}

// owner contains the reports about one object by node, and their sum. A change of a report has the same cost for
// any number of nodes: it subtracts the old report from the sum, and adds the new one.
type owner struct {
	Owner
	id      reports.Owner
	ref     Ref // the same without the UID
	known   bool
	nodes   map[string]*nodeState
	sum     Summary
	waiting *btree.BTreeG[*nodeState]
	failing *btree.BTreeG[*nodeState]
	idle    *btree.BTreeG[*nodeState]
	// without contains matching nodes without an agent. unreachable contains unreachable nodes.
	without     *btree.BTreeG[*nodeState]
	unreachable *btree.BTreeG[*nodeState]
	// changing contains the nodes of a rollout that aren't healthy.
	changing *btree.BTreeG[*nodeState]
	canaries labels.Selector
	// rolloutOrder and stepOrder are when the process learned of the rollout and of its step: see sighting. They are 0 if
	// these began earlier.
	rolloutOrder, stepOrder uint64
}

const treeDegree = 16

func newOwner(id reports.Owner) *owner {
	byNode := func(a, b *nodeState) bool { return a.node.key < b.node.key }
	stalledFirst := func(a, b *nodeState) bool { return a.stalled && !b.stalled || a.stalled == b.stalled && byNode(a, b) }
	failingFirst := func(a, b *nodeState) bool { return a.progress > b.progress || a.progress == b.progress && byNode(a, b) }
	return &owner{
		id: id, ref: Ref{Kind: id.Kind, NamespacedName: types.NamespacedName{Namespace: id.Namespace, Name: id.Name}},
		nodes:   map[string]*nodeState{},
		waiting: btree.NewG(treeDegree, byNode),
		failing: btree.NewG(treeDegree, stalledFirst),
		idle:    btree.NewG(treeDegree, byNode),
		without: btree.NewG(treeDegree, byNode), unreachable: btree.NewG(treeDegree, byNode),
		changing: btree.NewG(treeDegree, failingFirst),
	}
}

// update changes the report of a node, and returns whether the sum changed.
func (o *owner) update(n *node, change func(*nodeState)) bool {
	r := o.nodes[n.key]
	if r == nil {
		r = &nodeState{node: n}
	}
	before := *r
	o.count(r, -1)
	change(r)
	r.matching = o.Selector != nil && n.exists && o.Selector.matches(n.labels)
	r.selected = r.matching && n.runsAgent()
	r.lost = r.matching && !n.reachable
	r.changes = o.Rollout == nil || rollout.Changes(o.Rollout, rollout.Position(o.id.UID, n.name, n.labels, o.canaries))
	r.outcome, r.reason, r.stalled, r.reported = o.judge(r)
	r.previous = r.outcome == failed && r.keepsPrevious()
	r.progress, r.trouble = o.progress(r)
	o.count(r, +1)
	if r.matching || len(r.reports) > 0 {
		o.nodes[n.key] = r
	} else {
		delete(o.nodes, n.key)
	}
	// The number of nodes with reports only matters during a deletion.
	return o.Deleting && (len(before.reports) > 0) != (len(r.reports) > 0) ||
		before.matching != r.matching || before.selected != r.selected || before.lost != r.lost || before.outcome != r.outcome ||
		before.reason != r.reason || before.stalled != r.stalled || before.previous != r.previous || before.progress != r.progress || before.trouble != r.trouble
}

// judge returns the combined result of the programs on a node, its reason, whether it is stalled, and what it means for a
// rollout.
func (o *owner) judge(r *nodeState) (result outcome, reason problem.Note, stalled bool, reported steps.Reported) {
	generation, programs := o.Generation, o.Programs
	if !r.changes {
		generation, programs = o.Before, o.ProgramsBefore
	}
	wanted := r.selected && !o.Deleting && generation != 0
	done, linked, inPods, idly, pending := 0, false, true, problem.Note{}, problem.Note{}
	for _, program := range r.reports {
		p := program.State.Value()
		fails, said := false, problem.Note{Reason: p.Problem, Text: p.Message}
		switch {
		case !wanted:
			// The program is being unloaded. This has failed only if an agent says so. A node without an agent, or a
			// deleted node, doesn't count.
			fails = p.Condition == v1alpha1.BpfProgCondNotUnloaded && r.node.runsAgent()
		case p.Undecodable != "":
			fails, said = true, problem.Notef(problem.ReportUnreadable, "the report %s can't be decoded: %s", program.Name, p.Undecodable)
		case p.Generation != generation:
		case p.Condition.Failed():
			fails = true
		case p.Condition.Idle():
			done++
			idly = idleReasons[p.Condition]
		case p.Condition == v1alpha1.BpfProgCondLoaded:
			done++
			linked = linked || p.Linked
		case p.Condition == v1alpha1.BpfProgCondNone:
			pending = said
		}
		if fails && p.InPods {
			done++
		}
		inPods = inPods && (!fails || p.InPods)
		if fails && (result != failed || p.Stalled && !stalled) {
			said.Text = failure(p.Member, said.Text)
			result, reason, stalled = failed, said, p.Stalled
		}
	}
	switch {
	case result == failed:
		return failed, reason, stalled, reportedFailure(inPods, done >= programs)
	case !wanted:
		return uncounted, problem.Note{}, false, steps.Nothing
	case done < programs:
		return waiting, pending, false, steps.Nothing
	case idly.Text != "" && !linked:
		return idle, idly, false, steps.Attached
	}
	return attached, problem.Note{}, false, steps.Attached
}

// keepsPrevious reports whether a program of the previous revision runs on the node, because the newest one can't be loaded. One
// that isn't wanted anymore, and can't be unloaded, isn't.
func (r *nodeState) keepsPrevious() bool {
	for _, program := range r.reports {
		if state := program.State.Value(); state.Previous && state.Condition != v1alpha1.BpfProgCondNotUnloaded {
			return true
		}
	}
	return false
}

// reportedFailure returns what failures mean for a rollout: whether they are in pods only, and everything is reported.
func reportedFailure(inPods, complete bool) steps.Reported {
	switch {
	case !inPods:
		return steps.Failed
	case !complete:
		return steps.Nothing
	}
	return steps.FailedInPods
}

// idleReasons are the reasons why there is nothing to attach to, by the type of a program's condition.
var idleReasons = map[v1alpha1.BpfProgramConditionType]problem.Note{
	v1alpha1.BpfProgCondNoContainersOnNode: {Reason: problem.NothingMatches, Text: "no container matches"},
	v1alpha1.BpfProgCondNoInterfacesOnNode: {Reason: problem.NothingMatches, Text: "no interface matches"},
}

func failure(member, message string) string {
	if member == "" {
		return message
	}
	return member + ": " + message
}

// count adds the report to the sum n times, or subtracts it.
func (o *owner) count(r *nodeState, n int) {
	if r.matching {
		o.sum.Matching += n
	}
	switch {
	case r.selected:
		o.sum.Selected += n
	case r.lost:
		keep(o.unreachable, r, n > 0)
	case r.matching:
		keep(o.without, r, n > 0)
	}
	switch r.outcome {
	case uncounted:
	case waiting:
		o.sum.Waiting += n
		keep(o.waiting, r, n > 0)
	case failed:
		o.sum.Failed += n
		if r.stalled {
			o.sum.Stalled += n
		}
		if r.previous {
			o.sum.Previous += n
		}
		keep(o.failing, r, n > 0)
	case idle:
		o.sum.Idle += n
		keep(o.idle, r, n > 0)
	case attached:
		o.sum.Attached += n
	}
	if len(r.reports) > 0 {
		o.sum.Reporting += n
	}
	switch r.progress {
	case uninvolved:
		return
	case healthy:
		o.sum.Changing.Healthy += n
		return
	case unsettled:
		o.sum.Changing.Waiting += n
	case failing:
		o.sum.Changing.Failed += n
	}
	keep(o.changing, r, n > 0)
}

func keep(set *btree.BTreeG[*nodeState], r *nodeState, in bool) {
	if in {
		set.ReplaceOrInsert(r)
	} else {
		set.Delete(r)
	}
}

// summary returns the sum with the names of the first nodes in each state.
func (o *owner) summary() Summary {
	s := o.sum
	s.Namespaced = o.ref.Namespace != ""
	s.Kind, s.Generation, s.Deleting, s.Invalid, s.Undecodable = o.ref.Kind, o.Generation, o.Deleting, o.Invalid, o.Undecodable
	s.Unreachable = o.unreachable.Len()
	s.WithoutAgent, s.OutOfReach = names(o.without), names(o.unreachable)
	s.WaitingFor, s.Failures, s.IdleOn = reasons(o.waiting), reasons(o.failing), reasons(o.idle)
	s.Rollout = o.Rollout
	o.changing.Ascend(func(r *nodeState) bool {
		name := r.node.name
		if r.trouble != "" {
			name += ": " + shorten.Middle(r.trouble, maxError)
		}
		s.Changing.Names = append(s.Changing.Names, name)
		return len(s.Changing.Names) < maxNamed
	})
	return s
}

// reasons returns the names of the first nodes, with their reasons.
func reasons(reports *btree.BTreeG[*nodeState]) []NodeReason {
	var first []NodeReason
	reports.Ascend(func(r *nodeState) bool {
		first = append(first, NodeReason{r.node.name, r.reason.Text, r.reason.Reason})
		return len(first) < maxNamed
	})
	return first
}

// names returns the names of the first nodes.
func names(reports *btree.BTreeG[*nodeState]) []string {
	var first []string
	reports.Ascend(func(r *nodeState) bool {
		first = append(first, r.node.name)
		return len(first) < maxNamed
	})
	return first
}

// put adds or replaces a program. It keeps programs sorted by name, so that messages are stable.
func (r *nodeState) put(p *reports.Report) {
	i, found := r.find(p.Name)
	if found {
		r.reports[i] = p
	} else {
		r.reports = slices.Insert(r.reports, i, p)
	}
}

func (r *nodeState) remove(name string) {
	if i, found := r.find(name); found {
		r.reports = slices.Delete(r.reports, i, i+1)
	}
}

func (r *nodeState) find(name string) (int, bool) {
	return slices.BinarySearchFunc(r.reports, name, func(p *reports.Report, name string) int { return strings.Compare(p.Name, name) })
}
