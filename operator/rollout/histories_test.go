// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/internal/shrink"
)

var (
	histories = flag.Int("histories", 100_000, "number of random histories")
	seed      = flag.Uint64("seed", 1, "seed of the random histories")
)

// TestHistories plays random histories of a small cluster against the decisions of the operator and of the agents, and
// checks after each event what docs/rollouts.md says always holds. It prints the shortest history that it finds for a
// fault. Run more with -args -histories=10000000 -seed=2.
func TestHistories(t *testing.T) {
	var mu sync.Mutex
	var shortest []event
	var fault string
	var searches sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for worker := range workers {
		searches.Go(func() {
			random := rand.New(rand.NewPCG(*seed, uint64(worker)))
			for range *histories / workers {
				history := make([]event, 4+random.IntN(16))
				for i := range history {
					history[i] = event{what(random.IntN(int(ends))), random.IntN(slots)}
				}
				found := play(history)
				if found == "" {
					continue
				}
				history = shrink.Sequence(history, func(h []event) bool { return play(h) != "" })
				found = play(history)
				mu.Lock()
				if fault == "" || len(history) < len(shortest) {
					shortest, fault = history, found
				}
				mu.Unlock()
				return
			}
		})
	}
	searches.Wait()
	if fault != "" {
		t.Errorf("%s\nafter %v", fault, shortest)
	}
}

// TestHistoriesReachEverything proves that the histories aren't about nothing.
func TestHistoriesReachEverything(t *testing.T) {
	reached := map[string]bool{}
	random := rand.New(rand.NewPCG(*seed, 0))
	for range 20_000 {
		w := newWorld()
		for range 20 {
			w.happens(event{what(random.IntN(int(ends))), random.IntN(slots)})
			if w.status != nil {
				reached[fmt.Sprintf("%s in step %d", w.status.State, w.status.Step)] = true
			}
		}
	}
	for _, want := range []string{
		"Progressing in step 1", "Progressing in step 2", "Progressing in step 3", "Complete in step 0", "Halted in step 1", "Halted in step 2",
		"Undone in step 1", "Paused in step 1", "Paused in step 2", "Contested in step 0", "Contested in step 2",
	} {
		if !reached[want] {
			t.Errorf("no history reaches %s", want)
		}
	}
}

// play returns the first fault in a history, or "".
func play(history []event) string {
	w := newWorld()
	for _, e := range history {
		w.happens(e)
		if w.fault != "" {
			return w.fault
		}
	}
	return ""
}

// event is something that happens, to one of the nodes if it is about a node.
type event struct {
	what what
	node int
}

type what int

const (
	settles what = iota // agents act and report, and the operator decides until nothing changes
	decides
	acts
	reports
	leaves
	joins
	losesAgent
	getsAgent
	becomesUnready
	becomesReady
	terminates
	podFails
	scalesToZero
	timePasses
	limitPasses
	restarts
	lists
	editsGood
	editsBad
	editsDeadly
	takesBack
	resumes
	pauses
	unpauses
	createsSecondPolicy
	deletesSecondPolicy
	deletesPolicy
	createsPolicy
	appliesBoth
	createsObject
	actsBlindly
	refuses
	accepts
	ends
)

var names = [ends]string{
	"everything settles", "the operator decides", "an agent acts", "an agent reports", "a node leaves", "a node joins", "a node loses its agent",
	"a node gets an agent", "a node becomes unready", "a node becomes ready", "a daemon terminates", "an attach in a tenant's pod fails", "all nodes leave",
	"some time passes", "the time limit passes", "the operator restarts", "the operator has listed everything", "an edit", "an edit that fails",
	"an edit that kills nodes", "an edit is taken back", "a user resumes", "a user pauses", "a user unpauses", "a second policy", "no second policy",
	"no policy", "a policy", "the object is applied with a policy", "the object is created", "an agent acts without knowing the policy",
	"a quota refuses revisions", "no quota refuses revisions",
}

func (e event) String() string { return fmt.Sprintf("\n\t%s (%d)", names[e.what], e.node) }

// slots is the number of nodes.
const slots = 4

// world is a cluster with one object. It knows what is true, which the operator and the agents don't.
type world struct {
	nodes [slots]machine
	now   time.Time
	// revision is that of the object, or 0 if there is none. kinds contains what running a revision does.
	revision int
	kinds    []effect
	staged   bool // the object was created when the policy was there
	ran      bool // the object's status said so, without a policy
	recorded int  // the revision in the object's status, without a policy
	// policy and second mean that these policies exist.
	policy, second bool
	spec           v1alpha1.RolloutPolicySpec
	paused         bool
	resumed        string
	status         *v1alpha1.RolloutStatus
	memory         Memory
	listed         bool
	// refused means that no revision can be recorded.
	refused bool
	// proven are the revisions that all steps have accepted, or that nodes ran before there was a policy.
	proven map[int]bool
	// granted is the number of nodes that got the revision in the current step.
	granted int
	numbers map[string]int64
	fault   string
}

type effect int

const (
	good effect = iota
	bad
	deadly
)

// machine is a node.
type machine struct {
	exists, agent, ready bool
	// born makes the position of a replacement differ.
	born int
	// runs is the revision that runs, and reported the one that is reported, with the result.
	runs, reported int
	result         Reported
	terminated     bool
	podFails       bool
}

func newWorld() *world {
	w := &world{
		now: start, listed: true, kinds: []effect{good}, proven: map[int]bool{}, numbers: map[string]int64{},
		spec: v1alpha1.RolloutPolicySpec{
			Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1)}, {Nodes: intstr.FromString("50%"), UntilResumed: true}}, TimeLimit: metav1.Duration{Duration: time.Minute},
			OnFailure: v1alpha1.RolloutHalt,
		},
	}
	for i := range w.nodes {
		w.nodes[i] = machine{exists: true, agent: true, ready: true}
	}
	return w
}

func (w *world) position(i int) int64 {
	return int64((i*31+w.nodes[i].born*17)%101)*slots + int64(i) + 1
}

func hashOf(revision int) string { return fmt.Sprintf("h%d", revision) }

func (w *world) happens(e event) {
	n := &w.nodes[e.node]
	switch e.what {
	case settles:
		for range 8 {
			for i := range w.nodes {
				w.act(i, false)
				w.report(i)
			}
			w.decide()
		}
	case decides:
		w.decide()
	case acts, actsBlindly:
		w.act(e.node, e.what == actsBlindly)
	case reports:
		w.report(e.node)
	case leaves:
		*n = machine{born: n.born}
	case scalesToZero:
		for i := range w.nodes {
			w.nodes[i] = machine{born: w.nodes[i].born}
		}
	case joins:
		if !n.exists {
			*n = machine{exists: true, agent: true, ready: true, born: n.born + 1}
		}
	case losesAgent:
		n.agent = false
	case getsAgent:
		n.agent = n.exists
	case becomesUnready:
		n.ready = false
	case becomesReady:
		n.ready = true
	case terminates:
		n.terminated = n.agent
	case podFails:
		n.podFails = n.exists
	case timePasses:
		w.now = w.now.Add(time.Second)
	case limitPasses:
		w.now = w.now.Add(time.Minute)
	case restarts:
		w.memory, w.listed = Memory{}, false
	case lists:
		w.listed = true
	case refuses, accepts:
		w.refused = e.what == refuses
	default:
		w.person(e)
	}
}

// person does what a user or an administrator does.
func (w *world) person(e event) {
	edit := func(kind effect) {
		if w.revision != 0 {
			w.kinds = append(w.kinds, kind)
			w.revision = len(w.kinds) - 1
		}
	}
	switch e.what { //nolint:exhaustive // the others aren't about persons
	case editsGood:
		edit(good)
	case editsBad:
		edit(bad)
	case editsDeadly:
		edit(deadly)
	case takesBack:
		w.revision = max(w.revision-1, min(w.revision, 1))
	case resumes:
		if w.status != nil {
			w.resumed = w.status.Position()
		}
	case pauses, unpauses:
		w.paused = e.what == pauses
	case createsSecondPolicy, deletesSecondPolicy:
		w.second = e.what == createsSecondPolicy
	case deletesPolicy:
		w.policy = false
	case createsPolicy:
		w.policy = true
		if e.node == 0 {
			w.spec.OnFailure = v1alpha1.RolloutUndo
		}
	case createsObject, appliesBoth:
		if w.revision == 0 {
			w.policy = w.policy || e.what == appliesBoth
			w.staged = w.policy || w.second
			edit := []effect{good, bad, deadly, good}[e.node]
			w.kinds = append(w.kinds, edit)
			w.revision = len(w.kinds) - 1
		}
	}
}

// act makes an agent run what it is assigned. Blind means that it doesn't know the policies.
func (w *world) act(i int, blind bool) {
	n := &w.nodes[i]
	if !n.exists || !n.agent || w.revision == 0 {
		return
	}
	governed := rollout.Free
	if (w.policy || w.second) && !blind {
		governed = rollout.Staged
	}
	before := n.runs
	switch rollout.Turn(w.status, hashOf(w.revision), governed, w.position(i)) {
	case rollout.Hold:
	case rollout.Nothing:
		n.runs = 0
	case rollout.Newest:
		n.runs = w.revision
	case rollout.Previous:
		n.runs = int(w.status.Previous.Object.Raw[0])
		if n.runs != before && !w.proven[n.runs] && before == w.revision {
			return // it goes back to what the steps before had
		}
	}
	if n.runs != before && w.kinds[n.runs] == deadly {
		*n = machine{exists: true, born: n.born} // without an agent that reports
	}
}

func (w *world) report(i int) {
	n := &w.nodes[i]
	if !n.exists || !n.agent || n.runs == 0 {
		n.reported = 0
		return
	}
	n.reported, n.result = n.runs, Attached
	if w.kinds[n.runs] == bad {
		n.result = Failed
	} else if n.podFails {
		n.result = FailedInPods
	}
}

func (w *world) health(i int) Health {
	n := &w.nodes[i]
	reported := Nothing
	if n.reported == w.revision {
		reported = n.result
	}
	return Node{Reported: reported, Shared: true, Ready: n.ready, Restarted: n.terminated}.Health()
}

func (w *world) input() Input {
	in := Input{Hash: hashOf(w.revision), Now: w.now, Memory: w.memory, Paused: w.paused, Resumed: w.resumed}
	if w.policy {
		in.Policies = append(in.Policies, Policy{Name: "first", Spec: &w.spec})
	}
	if w.second {
		in.Policies = append(in.Policies, Policy{Name: "second", Spec: &w.spec})
	}
	if !w.listed { // what an operator that has just started sees
		in.Nodes = Nodes{Current: true, Positions: func() []int64 { return nil }}
		return in
	}
	in.Nodes = Nodes{Listed: true, Current: true}
	past := Past{Observed: w.ran, Created: start, Policy: start}
	if w.recorded != 0 && !w.newestRan() {
		in.Ran = &v1alpha1.RecordedRevision{Number: int64(w.recorded), Hash: hashOf(w.recorded)}
	}
	if !w.staged {
		past.Policy = start.Add(time.Hour)
	}
	var positions []int64
	for i, n := range w.nodes {
		if n.reported != 0 {
			past.Reporting++
		}
		if n.exists {
			in.Nodes.Matching++
		}
		if !n.exists || !n.agent {
			continue
		}
		in.Nodes.Selected++
		positions = append(positions, w.position(i))
		if w.status == nil || w.status.Started == nil || !rollout.Changes(w.status, w.position(i)) {
			continue
		}
		switch w.health(i) {
		case Healthy:
			in.Nodes.Healthy++
		case Waiting:
			in.Nodes.Waiting++
		case Failing:
			in.Nodes.Failed++
		}
	}
	slices.Sort(positions)
	in.Nodes.Positions, in.Adopted = func() []int64 { return positions }, past.Adopted()
	return in
}

// newestRan reports whether a node has reported the newest revision.
func (w *world) newestRan() bool {
	return slices.ContainsFunc(w.nodes[:], func(n machine) bool { return n.reported == w.revision })
}

// decide is a decision of the operator, with what is stored and read in between.
func (w *world) decide() {
	if w.revision == 0 {
		return
	}
	in, was := w.input(), w.status
	d := Decide(was, in)
	w.memory = d.Memory
	now := d.Status
	if d.Begins {
		now = w.start(d.Status, in)
	}
	if now == nil && in.Nodes.Listed {
		if w.recorded = w.revision; w.refused {
			w.recorded = 0
		}
	}
	if now == nil && was == nil {
		// The operator has written to the status which nodes run the object.
		w.ran = w.ran || !w.staged && in.Nodes.Listed && slices.ContainsFunc(w.nodes[:], func(n machine) bool { return n.reported != 0 })
	}
	w.check(was, now, in)
	w.status = now
	if was == nil || now == nil || was.Position() != now.Position() || was.Hash != now.Hash || was.Nodes != now.Nodes {
		for i := range w.nodes {
			w.nodes[i].terminated = false // it was before the step
		}
		w.granted = w.covered(now)
	}
}

// start records a revision as [History] does.
func (w *world) start(was *v1alpha1.RolloutStatus, in Input) *v1alpha1.RolloutStatus {
	if w.refused {
		return Contest(was, in.Policies[0].Name, problem.Note{Text: "exceeded quota"})
	}
	number, previous := Before(was)
	if number != 0 && previous == nil {
		previous = &v1alpha1.RolloutRevision{Revision: number}
		previous.Object.Raw = []byte{byte(revisionOf(was.Hash))}
	}
	w.numbers[in.Hash] = int64(len(w.kinds) + len(w.numbers))
	back := previous != nil && hashOf(int(previous.Object.Raw[0])) == in.Hash
	return Start(was, v1alpha1.RecordedRevision{Number: w.numbers[in.Hash], Hash: in.Hash}, previous, back, in)
}

func revisionOf(hash string) (revision int) {
	_, _ = fmt.Sscanf(hash, "h%d", &revision)
	return revision
}

// covered returns how many nodes with an agent a state gives the newest revision.
func (w *world) covered(s *v1alpha1.RolloutStatus) (covered int) {
	for i, n := range w.nodes {
		if n.exists && n.agent && s != nil && rollout.Changes(s, w.position(i)) {
			covered++
		}
	}
	return covered
}

// check compares a transition with what always holds.
func (w *world) check(was, now *v1alpha1.RolloutStatus, in Input) {
	if len(in.Policies) == 0 {
		if now != nil {
			w.fault = "without a policy, there is a rollout"
		}
		w.proven = map[int]bool{} // all nodes get it, no matter what it is
		return
	}
	if !in.Nodes.Listed && len(in.Policies) == 1 && now != was {
		w.fault = fmt.Sprintf("decided before everything was listed: %s", stateOf(now))
		return
	}
	same := was != nil && now != nil && was.Hash == now.Hash
	switch {
	case !same:
		w.begins(was, now, in)
	case was.State == v1alpha1.RolloutUndone && now.State != was.State && !w.edited(was),
		was.State == v1alpha1.RolloutHalted && now.State != was.State && w.resumed != was.Position() && !w.edited(was):
		w.fault = fmt.Sprintf("%s became %s, and nobody did anything", was.State, now.State)
	case now.State == v1alpha1.RolloutHalted && was.State != now.State, now.State == v1alpha1.RolloutUndone && was.State != now.State:
		if w.unhealthy(was, in) == 0 {
			w.fault = fmt.Sprintf("%s without an unhealthy node", now.State)
		}
	default:
		w.advances(was, now, in)
	}
}

// edited reports whether the object isn't the one that a state is about.
func (w *world) edited(s *v1alpha1.RolloutStatus) bool { return s.Hash != hashOf(w.revision) }

func stateOf(s *v1alpha1.RolloutStatus) string {
	if s == nil {
		return "nothing"
	}
	return string(s.State) + " " + s.Position()
}

// begins checks the first state of a revision.
func (w *world) begins(was, now *v1alpha1.RolloutStatus, in Input) {
	switch {
	case now == nil || now.State == v1alpha1.RolloutContested:
	case now.State == v1alpha1.RolloutComplete:
		revision := revisionOf(now.Hash)
		before, _ := Before(was)
		adopted := (was == nil || was.Revision == 0) && !w.staged && (in.Ran == nil || in.Ran.Hash == now.Hash)
		if !adopted && before == 0 {
			w.fault = fmt.Sprintf("revision %d skipped all steps", revision)
		}
		w.proven[revision] = true
	default:
		limit := min(size(w.spec.Steps[0].Nodes, in.Nodes.Matching, true), in.Nodes.Selected)
		if covered := w.covered(now); covered > limit {
			w.fault = fmt.Sprintf("the first step has %d nodes", covered)
		}
	}
}

// unhealthy returns how many nodes of a step aren't healthy, in truth. It counts those that aren't there.
func (w *world) unhealthy(s *v1alpha1.RolloutStatus, in Input) int {
	required := in.Nodes.Matching
	if s.Until != nil && int(s.Step) <= len(w.spec.Steps) {
		required = 0
		for _, step := range w.spec.Steps[:s.Step] {
			required = max(required, size(step.Nodes, in.Nodes.Matching, true))
		}
	}
	required = min(required, w.granted, in.Nodes.Matching)
	healthy, present := 0, 0
	for i, n := range w.nodes {
		if !n.exists || !n.agent || !rollout.Changes(s, w.position(i)) {
			continue
		}
		present++
		if n.ready && !n.terminated && n.reported == w.revision && n.result != Failed {
			healthy++
		}
	}
	return max(required, present) - healthy
}

// advances checks that a step is followed by the next one, if its nodes were healthy or a user said so.
func (w *world) advances(was, now *v1alpha1.RolloutStatus, in Input) {
	from, to := int(was.Step), int(now.Step)
	if now.State == v1alpha1.RolloutComplete && was.Started != nil {
		to = from + 1
		if was.Until != nil {
			w.fault = fmt.Sprintf("complete after step %d", from)
			return
		}
		w.proven[revisionOf(now.Hash)] = true
	}
	if was.State == v1alpha1.RolloutComplete || from == to {
		if was.Until != nil && now.Until != nil && *now.Until > *was.Until && w.granted > 0 {
			w.fault = "a step got more nodes"
		}
		return
	}
	switch {
	case to == 1 && w.granted == 0:
	case to != from+1:
		w.fault = fmt.Sprintf("step %d became %d", from, to)
	case w.resumed == was.Position():
	case w.granted == 0 || in.Nodes.Selected == 0:
		w.fault = fmt.Sprintf("step %d ended without a node", from)
	case w.unhealthy(was, in) > 0:
		w.fault = fmt.Sprintf("step %d ended with %d unhealthy nodes of %d", from, w.unhealthy(was, in), w.granted)
	}
	if limit := cmp.Or(w.limit(to, in), 1); w.covered(now) > max(limit, w.covered(was)) {
		w.fault = strings.TrimSpace(w.fault + fmt.Sprintf(" step %d has %d nodes", to, w.covered(now)))
	}
}

// limit returns how many nodes a step can have.
func (w *world) limit(step int, in Input) int {
	if step < 1 || step > len(w.spec.Steps) {
		return slots
	}
	return size(w.spec.Steps[step-1].Nodes, in.Nodes.Selected, true)
}
