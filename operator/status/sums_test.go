// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

// world is a small cluster with complete objects. Nothing in it is derived from other data.
type world struct {
	nodes   map[string]*worldNode
	owners  map[types.UID]*worldOwner
	reports map[types.UID]*v1alpha1.BpfProgram
	events  int
}

type worldNode struct {
	exists, reachable, agent bool
	labels                   map[string]string
	// unready and agentUnready are since when the node and its agent aren't ready.
	unready, agentUnready time.Time
	// terminated is when a container of the agent's pod did, and termination when that became known. conflicts are those
	// that the inspector reports, and conflicted is when they became known, by object.
	terminated  time.Time
	termination moment
	conflicts   []rollout.Conflict
	inspected   bool
	conflicted  map[string]moment
}

// moment is when something became known, by the number of the event. The first that is known of a node or pod can be old.
type moment struct {
	event int
	first bool
}

type worldOwner struct {
	ref   Ref
	known bool
	spec  Owner
	// step is when the step of its rollout became known, or 0 if it began earlier.
	step int
}

// TestSums compares the sums, which come from compact reports and are updated by each event, with sums of the
// complete objects. It does this after each of thousands of random events.
// inZone selects the nodes of zone a.
var inZone = &selector{byKey: map[string]*requirement{"zone": {required: true, in: map[string]struct{}{"a": {}}}}, needed: 1}

func TestSums(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			x, w := NewIndex(), newWorld()
			compact := map[types.UID]*reports.Report{}
			for step := range 300 {
				said := w.change(t, random, x, compact)
				for uid, o := range w.owners {
					got, known := x.Summary(uid)
					if known != o.known {
						t.Fatalf("step %d, %s: %s is known: %v", step, said, uid, known)
					}
					// Text doesn't distinguish an empty list from nil.
					if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", w.sum(uid)); known && got != want {
						t.Fatalf("step %d, %s: the sum of %s is\n%s\nand that of the objects\n%s", step, said, uid, got, want)
					}
				}
			}
		})
	}
}

func newWorld() *world {
	w := &world{nodes: map[string]*worldNode{}, owners: map[types.UID]*worldOwner{}, reports: map[types.UID]*v1alpha1.BpfProgram{}}
	for i := range 8 {
		w.nodes[fmt.Sprintf("node-%d", i)] = &worldNode{conflicted: map[string]moment{}}
	}
	for i := range 3 {
		name := fmt.Sprintf("prog-%d", i)
		w.owners[types.UID(name)] = &worldOwner{ref: Ref{Kind: "TcxProgram", NamespacedName: types.NamespacedName{Name: name}}}
	}
	return w
}

// change makes one random change to the world and to the index.
func (w *world) change(t *testing.T, random *rand.Rand, x *Index, compact map[types.UID]*reports.Report) string {
	t.Helper()
	node := slices.Sorted(maps.Keys(w.nodes))[random.IntN(len(w.nodes))]
	uid := slices.Sorted(maps.Keys(w.owners))[random.IntN(len(w.owners))]
	n, o := w.nodes[node], w.owners[uid]
	w.events++
	switch what := random.IntN(23); what {
	case 20:
		if !n.exists {
			return "nothing"
		}
		n.unready = randomTime(random)
		x.SetReadiness(node, "", n.unready, time.Time{})
		return fmt.Sprintf("%s is unready since %v", node, n.unready)
	case 21:
		if !n.agent {
			return "nothing"
		}
		before := n.terminated
		n.agentUnready, n.terminated = randomTime(random), randomTime(random)
		if n.termination.event == 0 || !before.Equal(n.terminated) {
			n.termination = moment{w.events, n.termination.event == 0}
		}
		x.SetReadiness(node, types.UID("agent-"+node), n.agentUnready, n.terminated)
		return fmt.Sprintf("the agent of %s is unready since %v, and terminated at %v", node, n.agentUnready, n.terminated)
	case 22:
		n.conflicts = nil
		if random.IntN(2) == 0 {
			since := metav1.NewTime(started.Add(time.Duration(random.IntN(3)-1) * time.Second))
			n.conflicts = []rollout.Conflict{{BpfNodeOwner: v1alpha1.BpfNodeOwner{Kind: o.ref.Kind, Name: o.ref.Name}, Since: since, Message: "another program is first"}}
			if _, known := n.conflicted[o.ref.Name]; !known {
				n.conflicted[o.ref.Name] = moment{w.events, !n.inspected}
			}
		}
		n.inspected = true
		x.SetHealth(node, rollout.Health{Conflicts: n.conflicts})
		return fmt.Sprintf("%s has conflicts: %v", node, n.conflicts)
	case 0:
		n.exists, n.unready = false, time.Time{}
		x.DeleteNode(node)
		return node + " goes"
	case 1, 2, 3:
		n.exists, n.reachable = true, random.IntN(4) > 0
		n.labels = map[string]string{"zone": string(rune('a' + random.IntN(2)))}
		x.SetNode(node, n.labels, n.reachable)
		return fmt.Sprintf("%s is %v", node, *n)
	case 4, 5, 6:
		n.agent = random.IntN(4) > 0
		if n.agent {
			x.AddAgent(node, types.UID("agent-"+node))
		} else if x.RemoveAgent(node, types.UID("agent-"+node)) {
			x.SettleAgent(node, types.UID("agent-"+node))
			n.agentUnready, n.terminated, n.termination = time.Time{}, time.Time{}, moment{}
		}
		return fmt.Sprintf("%s has an agent: %v", node, n.agent)
	case 7:
		o.known, o.spec, o.step = false, Owner{}, 0
		x.DeleteOwner(uid)
		return string(uid) + " goes"
	case 8, 9, 10:
		before, wasKnown := o.spec.Rollout, o.known
		o.known, o.spec = true, Owner{
			Generation: o.spec.Generation + 1, Deleting: random.IntN(5) == 0, Programs: random.IntN(3),
			Selector: []*selector{{}, inZone, nil}[random.IntN(3)],
		}
		if o.spec.Rollout = randomRollout(random); o.spec.Rollout != nil && random.IntN(2) == 0 {
			o.spec.Before, o.spec.ProgramsBefore = o.spec.Generation-1, random.IntN(3)
		}
		if now := o.spec.Rollout; wasKnown && now != nil && (before == nil || before.Step != now.Step) {
			o.step = w.events
		}
		x.SetOwner(o.ref, uid, o.spec)
		return fmt.Sprintf("%s is %+v", uid, o.spec)
	default:
		member := []string{"", "one", "two"}[random.IntN(3)]
		id := types.UID(fmt.Sprintf("%s-%s-%s", uid, member, node))
		if before := compact[id]; before != nil {
			x.DeleteReport(before)
		}
		delete(w.reports, id)
		delete(compact, id)
		if what < 13 {
			return string(id) + " goes"
		}
		full := randomReport(random, o, uid, member, node, id)
		data, err := json.Marshal(full)
		if err != nil {
			t.Fatal(err)
		}
		if compact[id], err = reports.Decode(data); err != nil {
			t.Fatal(err)
		}
		w.reports[id] = full
		x.SetReport(compact[id])
		return string(id) + " says " + string(data)
	}
}

// started is the start of all rollouts.
var started = time.Unix(100, 0)

// randomTime returns zero, or a time before or after the start of rollouts.
func randomTime(random *rand.Rand) time.Time {
	return []time.Time{{}, started.Add(-time.Second), started.Add(time.Second)}[random.IntN(3)]
}

func randomRollout(random *rand.Rand) *v1alpha1.RolloutStatus {
	if random.IntN(2) == 0 {
		return nil
	}
	s := &v1alpha1.RolloutStatus{Step: random.Int32N(2), Started: &metav1.Time{Time: started}, StepStarted: &metav1.Time{Time: started}, Canaries: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}}
	if random.IntN(4) > 0 {
		s.Until = new(random.Int64N(1 << 33))
	}
	return s
}

func randomReport(random *rand.Rand, o *worldOwner, owner types.UID, member, node string, id types.UID) *v1alpha1.BpfProgram {
	p := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{
		Name: string(id), UID: id,
		Labels: map[string]string{
			v1alpha1.LabelHostname: v1alpha1.LabelValue(node), v1alpha1.LabelAppProgramID: member, v1alpha1.LabelOwnerKind: o.ref.Kind,
		},
		OwnerReferences: []metav1.OwnerReference{{Kind: o.ref.Kind, Name: o.ref.Name, UID: owner, Controller: new(true)}},
	}}
	p.Status.Node, p.Status.OwnerGeneration = node, max(0, o.spec.Generation-int64(random.IntN(4)/3))
	conditions := []v1alpha1.BpfProgramConditionType{
		"", v1alpha1.BpfProgCondLoaded, v1alpha1.BpfProgCondLoaded, v1alpha1.BpfProgCondNoContainersOnNode, v1alpha1.BpfProgCondNoInterfacesOnNode,
		v1alpha1.BpfProgCondNotLoaded, v1alpha1.BpfProgCondNotUnloaded, v1alpha1.BpfProgCondNone,
	}
	if condition := conditions[random.IntN(len(conditions))]; condition != "" {
		state := []v1alpha1.State{v1alpha1.Reconciling, v1alpha1.Stalled}[random.IntN(2)]
		p.Status.Conditions = state.Conditions(condition.Condition(fmt.Sprintf("message %d", random.IntN(3))))
		if condition == v1alpha1.BpfProgCondLoaded && random.IntN(3) > 0 {
			p.Status.Links = []v1alpha1.BpfProgramLink{{AttachPoint: "lo", State: v1alpha1.LinkAttached}}
		}
	}
	return p
}

// sum computes the summary of an object from scratch.
func (w *world) sum(uid types.UID) Summary {
	o := w.owners[uid]
	s := Summary{Kind: o.ref.Kind, Generation: o.spec.Generation, Deleting: o.spec.Deleting}
	name := func(names *[]string, node string) {
		if len(*names) < maxNamed {
			*names = append(*names, node)
		}
	}
	s.Rollout = o.spec.Rollout
	var stuck, failing []NodeReason
	var broken, unsettled []string
	for _, node := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[node]
		runs := n.exists && n.reachable && n.agent
		if runs {
			s.Agents++
		}
		matches := n.exists && o.spec.Selector != nil && (o.spec.Selector != inZone || n.labels["zone"] == "a")
		if matches {
			s.Matching++
		}
		switch {
		case matches && runs:
			s.Selected++
		case matches && !n.reachable:
			s.Unreachable++
			name(&s.OutOfReach, node)
		case matches:
			name(&s.WithoutAgent, node)
		}
		changes := o.spec.Rollout == nil || o.spec.Rollout.Until == nil ||
			rollout.Position(uid, node, n.labels, labels.SelectorFromSet(labels.Set{"zone": "a"})) < *o.spec.Rollout.Until
		generation, programs := o.spec.Generation, o.spec.Programs
		if !changes {
			generation, programs = o.spec.Before, o.spec.ProgramsBefore
		}
		wanted := matches && runs && !o.spec.Deleting && generation != 0
		done, linked, idle, pending, stalled, failures := w.count(uid, node, generation, wanted)
		if w.reporting(uid, node) {
			s.Reporting++
		}
		if changes && o.spec.Rollout != nil && matches && runs && !o.spec.Deleting {
			switch {
			case len(stalled)+len(failures) > 0:
				s.Changing.Failed++
				broken = append(broken, node+": "+slices.Concat(stalled, failures)[0])
			case wanted && done < programs || !n.unready.IsZero() || !n.agentUnready.IsZero():
				s.Changing.Waiting++
				unsettled = append(unsettled, node)
			case !n.terminated.IsZero() && !n.termination.first && n.termination.event > o.step:
				s.Changing.Failed++
				broken = append(broken, node+": the agent or the daemon terminated at "+n.terminated.UTC().Format(time.RFC3339))
			case slices.ContainsFunc(n.conflicts, func(c rollout.Conflict) bool {
				at := n.conflicted[o.ref.Name]
				return c.Name == o.ref.Name && !at.first && at.event > o.step
			}):
				s.Changing.Failed++
				broken = append(broken, node+": another program is first")
			default:
				s.Changing.Healthy++
			}
		}
		switch {
		case len(stalled) > 0 && runs:
			s.Failed++
			s.Stalled++
			stuck = append(stuck, NodeReason{Node: node, Reason: stalled[0]})
		case len(failures) > 0 && runs:
			s.Failed++
			failing = append(failing, NodeReason{Node: node, Reason: failures[0]})
		case !wanted:
		case done < programs:
			s.Waiting++
			if len(s.WaitingFor) < maxNamed {
				s.WaitingFor = append(s.WaitingFor, NodeReason{Node: node, Reason: pending})
			}
		case idle != "" && !linked:
			s.Idle++
			if len(s.IdleOn) < maxNamed {
				s.IdleOn = append(s.IdleOn, NodeReason{node, idle, problem.NothingMatches})
			}
		default:
			s.Attached++
		}
	}
	s.Changing.Names = slices.Concat(broken, unsettled)
	s.Changing.Names = s.Changing.Names[:min(maxNamed, len(s.Changing.Names))]
	s.Failures = slices.Concat(stuck, failing)
	s.Failures = s.Failures[:min(maxNamed, len(s.Failures))]
	return s
}

func (w *world) reporting(uid types.UID, node string) bool {
	for _, p := range w.reports {
		if p.OwnerReferences[0].UID == uid && p.Status.Node == node {
			return true
		}
	}
	return false
}

// count counts the reports about an object from a node.
func (w *world) count(uid types.UID, node string, generation int64, wanted bool) (done int, linked bool, idle, pending string, stalled, failures []string) {
	for _, id := range slices.Sorted(maps.Keys(w.reports)) {
		p := w.reports[id]
		if p.OwnerReferences[0].UID != uid || p.Status.Node != node || len(p.Status.Conditions) == 0 {
			continue
		}
		c := p.Status.Conditions[0]
		condition := v1alpha1.BpfProgramConditionType(c.Type)
		current := p.Status.OwnerGeneration == generation
		switch {
		case !wanted && condition == v1alpha1.BpfProgCondNotUnloaded, wanted && current && condition.Failed():
			text := strings.TrimPrefix(p.Labels[v1alpha1.LabelAppProgramID]+": "+c.Message, ": ")
			if slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Stalled" }) {
				stalled = append(stalled, text)
			} else {
				failures = append(failures, text)
			}
		case !current:
		case condition == v1alpha1.BpfProgCondLoaded:
			done++
			linked = linked || len(p.Status.Links) > 0
		case condition.Idle():
			done++
			idle = map[bool]string{true: "no container matches", false: "no interface matches"}[condition == v1alpha1.BpfProgCondNoContainersOnNode]
		case condition == v1alpha1.BpfProgCondNone:
			pending = c.Message
		}
	}
	return done, linked, idle, pending, stalled, failures
}
