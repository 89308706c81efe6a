// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// fleet simulates the agents of some nodes, which run what the status of one object assigns to them.
type fleet struct {
	t *testing.T
	c client.Client
	// pool is the value of the label pool of the nodes, and the name of the object.
	pool   string
	object *v1alpha1.TracepointProgram
	nodes  []*corev1.Node
	// runs contains the function that each node runs, or "". generations contains the generation that it reports.
	runs        map[string]string
	generations map[string]int64
	// breaks returns whether a function fails on a node.
	breaks func(function, node string) bool
}

// newFleet creates n nodes, the last of which is a canary.
func newFleet(t *testing.T, pool string, n int) *fleet {
	t.Helper()
	f := &fleet{t: t, c: cluster(t), pool: pool, runs: map[string]string{}, generations: map[string]int64{}, breaks: func(string, string) bool { return false }}
	for i := range n {
		set := map[string]string{"pool": pool}
		if i == n-1 {
			set["canary"] = "true"
		}
		name := fmt.Sprintf("%s-%d", pool, i)
		addNode(t, f.c, name, set)
		f.ready(name, corev1.ConditionTrue)
		node := &corev1.Node{}
		must.Succeed(t, f.c.Get(t.Context(), client.ObjectKey{Name: name}, node))
		f.nodes = append(f.nodes, node)
	}
	f.object = tracepoint(pool, pool)
	f.object.Labels = map[string]string{"rollout": pool}
	f.object.Spec.BpfFunctionName = "v1"
	return f
}

// ready sets the conditions of a node and of its agent's pod.
func (f *fleet) ready(name string, status corev1.ConditionStatus) {
	f.t.Helper()
	node, pod := &corev1.Node{}, &corev1.Pod{}
	must.Succeed(f.t, f.c.Get(f.t.Context(), client.ObjectKey{Name: name}, node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()}}
	must.Succeed(f.t, f.c.Status().Update(f.t.Context(), node))
	must.Succeed(f.t, f.c.Get(f.t.Context(), client.ObjectKey{Namespace: namespace, Name: "agent-" + name}, pod))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
	must.Succeed(f.t, f.c.Status().Update(f.t.Context(), pod))
}

// policy creates a policy that matches the object.
func (f *fleet) policy(name string, edit func(*v1alpha1.RolloutPolicySpec)) *v1alpha1.RolloutPolicy {
	f.t.Helper()
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Match.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"rollout": f.pool}}
	p.Spec.Canaries = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}}
	p.Spec.Steps = []v1alpha1.RolloutStep{{Nodes: intstr.FromInt(1), UntilResumed: true}, {Nodes: intstr.FromString("50%"), UntilResumed: true}}
	if edit != nil {
		edit(&p.Spec)
	}
	create(f.t, f.c, p)
	envtest.Eventually(f.t, "the policy's condition", func(ctx context.Context) error {
		if err := f.c.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Type != "Ready" || p.Status.Conditions[0].Status != metav1.ConditionTrue {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	return p
}

// act makes each agent run and report what is assigned to it.
func (f *fleet) act(ctx context.Context) error {
	if err := f.c.Get(ctx, client.ObjectKeyFromObject(f.object), f.object); err != nil {
		return err
	}
	for _, node := range f.nodes {
		a, err := rollout.Assign("TracepointProgram", f.object, rollout.Staged, node.Name, node.Labels)
		if err != nil {
			return err
		}
		if a.Held {
			continue
		}
		if a.Object == nil {
			if err := client.IgnoreNotFound(f.c.Delete(ctx, programOf(f.object, node.Name))); err != nil {
				return err
			}
			delete(f.runs, node.Name)
			continue
		}
		function := a.Object.(*v1alpha1.TracepointProgram).Spec.BpfFunctionName //nolint:errcheck // the kind of the object
		owner := f.object.DeepCopy()
		owner.Generation = a.Object.GetGeneration()
		if f.runs[node.Name] == function && f.generations[node.Name] == owner.Generation {
			continue
		}
		condition := v1alpha1.BpfProgCondLoaded.Condition()
		if f.breaks(function, node.Name) {
			condition = v1alpha1.BpfProgCondNotLoaded.Condition("broken")
		}
		report(f.t, f.c, owner, node.Name, condition) //nolint:contextcheck // it has the test's
		f.runs[node.Name], f.generations[node.Name] = function, owner.Generation
	}
	return nil
}

// is waits for a state of the rollout, and for the functions of the nodes in the order of their positions.
func (f *fleet) is(state v1alpha1.RolloutState, functions string, words string) {
	f.t.Helper()
	envtest.Eventually(f.t, fmt.Sprintf("%s with %s", state, functions), func(ctx context.Context) error {
		if err := f.act(ctx); err != nil {
			return err
		}
		s := f.object.Status.Rollout
		if s == nil || s.State != state || !strings.Contains(s.Message, words) || f.functions() != functions {
			return fmt.Errorf("the rollout is %+v, and the nodes run %s", s, f.functions())
		}
		return nil
	})
}

// functions returns the functions that the nodes run, in the order of their positions.
func (f *fleet) functions() string {
	canaries := rollout.Canaries(&metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}})
	byPosition := map[int64]string{}
	for _, node := range f.nodes {
		byPosition[rollout.Position(f.object.UID, node.Name, node.Labels, canaries)] = node.Name
	}
	var all []string
	for _, position := range slices.Sorted(maps.Keys(byPosition)) {
		all = append(all, f.runs[byPosition[position]])
	}
	return strings.Join(all, ",")
}

func (f *fleet) edit(edit func()) {
	f.t.Helper()
	envtest.Eventually(f.t, "the edit", func(ctx context.Context) error {
		if err := f.c.Get(ctx, client.ObjectKeyFromObject(f.object), f.object); err != nil {
			return err
		}
		edit()
		return f.c.Update(ctx, f.object)
	})
}

func (f *fleet) annotate(name, value string) {
	f.t.Helper()
	f.edit(func() {
		if f.object.Annotations == nil {
			f.object.Annotations = map[string]string{}
		}
		f.object.Annotations[name] = value
	})
}

func (f *fleet) resume() {
	f.t.Helper()
	f.annotate(v1alpha1.AnnotationRolloutResumed, f.object.Status.Rollout.Position())
}

// condition waits for the first condition and for the one that is True beside it.
func (f *fleet) condition(first v1alpha1.ProgramConditionType, state v1alpha1.State, words string) {
	f.t.Helper()
	envtest.Eventually(f.t, "the conditions", func(ctx context.Context) error {
		if err := f.act(ctx); err != nil {
			return err
		}
		c := f.object.Status.Conditions
		if len(c) == 0 || c[0].Type != string(first) || !strings.Contains(c[0].Message, words) || c[len(c)-1].Type != string(state) || c[len(c)-1].Status != metav1.ConditionTrue {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// revisions returns the functions of the object's ControllerRevisions, by number.
func (f *fleet) revisions() string {
	f.t.Helper()
	var list appsv1.ControllerRevisionList
	must.Succeed(f.t, f.c.List(f.t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelRevisionOf: string(f.object.UID)}))
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	var all []string
	for _, c := range list.Items {
		stored, err := rollout.Parse(c.Data.Raw)
		if err != nil {
			f.t.Fatal(err)
		}
		o, err := stored.Object("TracepointProgram")
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%d:%s", c.Revision, o.(*v1alpha1.TracepointProgram).Spec.BpfFunctionName)) //nolint:errcheck // the kind
	}
	return strings.Join(all, " ")
}

// A new object and an edit reach the canary first, then half of the nodes, then all.
func TestRollout(t *testing.T) {
	f := newFleet(t, "rollout", 4)
	f.policy("rollout", nil)
	create(t, f.c, f.object)
	f.is(v1alpha1.RolloutPaused, "v1,,,", "step 1 is complete")
	f.condition(v1alpha1.ProgramNotYetLoaded, v1alpha1.Reconciling, "Rollout paused: step 1 is complete, and the rollout waits until you resume it. Attached on 1 of 4 selected nodes")
	f.resume()
	f.is(v1alpha1.RolloutPaused, "v1,v1,,", "step 2 is complete")
	f.resume()
	f.is(v1alpha1.RolloutComplete, "v1,v1,v1,v1", "")
	f.condition(v1alpha1.ProgramReconcileSuccess, v1alpha1.Ready, "Attached on 4 of 4 selected nodes")

	f.edit(func() { f.object.Spec.BpfFunctionName = "v2" })
	f.is(v1alpha1.RolloutPaused, "v2,v1,v1,v1", "step 1 is complete")
	f.condition(v1alpha1.ProgramNotYetLoaded, v1alpha1.Reconciling, "Attached on 4 of 4")
	if got := f.revisions(); got != "1:v1 2:v2" {
		t.Errorf("the revisions are %s", got)
	}

	// Labels aren't a part of the revision. Which nodes are selected isn't either.
	f.edit(func() {
		f.object.Labels["other"] = "label"
		f.object.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpExists}}
	})
	f.is(v1alpha1.RolloutPaused, "v2,v1,v1,v1", "step 1 is complete")

	// A node that joins has the revision that its position says.
	f.resume()
	f.is(v1alpha1.RolloutPaused, "v2,v2,v1,v1", "step 2 is complete")
	envtest.Eventually(t, "the Event", hasEvent(f.c, f.object, "RolloutProgressing", func(note string) bool { return strings.Contains(note, "revision 2, step 2 of 3 on 2 of 4 nodes") }))

	// Another edit starts over: the other nodes return to the revision before.
	f.edit(func() { f.object.Spec.BpfFunctionName = "v3" })
	f.is(v1alpha1.RolloutPaused, "v3,v1,v1,v1", "step 1 is complete")

	// Taking the edit back ends the rollout.
	f.edit(func() { f.object.Spec.BpfFunctionName = "v1" })
	f.is(v1alpha1.RolloutComplete, "v1,v1,v1,v1", "")
	if got := f.revisions(); got != "2:v2 3:v3 4:v1" {
		t.Errorf("the revisions are %s", got)
	}
}

// A revision that fails on the canary reaches no other node.
func TestRolloutHalts(t *testing.T) {
	f := newFleet(t, "halts", 4)
	f.policy("halts", func(s *v1alpha1.RolloutPolicySpec) { s.Steps[0].UntilResumed, s.Steps[1].UntilResumed = false, false })
	create(t, f.c, f.object)
	f.is(v1alpha1.RolloutComplete, "v1,v1,v1,v1", "")
	f.breaks = func(function, _ string) bool { return function == "bad" }
	f.edit(func() { f.object.Spec.BpfFunctionName = "bad" })
	f.is(v1alpha1.RolloutHalted, "bad,v1,v1,v1", "1 of 1 nodes with revision 2 aren't healthy (halts-3: broken): no other node changes")
	f.condition(v1alpha1.ProgramReconcileError, v1alpha1.Stalled, "Rollout halted: 1 of 1 nodes with revision 2 aren't healthy (halts-3: broken)")
	envtest.Eventually(t, "the Event", hasEvent(f.c, f.object, "RolloutHalted", func(note string) bool { return strings.HasPrefix(note, "Halted: 1 of 1 nodes") }))
	f.edit(func() { f.object.Spec.BpfFunctionName = "good" })
	f.is(v1alpha1.RolloutComplete, "good,good,good,good", "")
}

// An operator that restarts finds a halted rollout as the former one left it, and writes nothing.
func TestRolloutStaysHaltedAfterRestarts(t *testing.T) {
	f := newFleet(t, "restarts", 3)
	f.policy("restarts", func(s *v1alpha1.RolloutPolicySpec) { s.Steps[0].UntilResumed, s.Steps[1].UntilResumed = false, false })
	f.object.Spec.GlobalData = map[string][]byte{"limit": {1}}
	f.object.Annotations = map[string]string{v1alpha1.AnnotationRestartedAt: "now"}
	create(t, f.c, f.object)
	f.is(v1alpha1.RolloutComplete, "v1,v1,v1", "")
	f.breaks = func(function, _ string) bool { return function == "bad" }
	f.edit(func() { f.object.Spec.BpfFunctionName = "bad" })
	f.is(v1alpha1.RolloutHalted, "bad,v1,v1", "")
	f.condition(v1alpha1.ProgramReconcileError, v1alpha1.Stalled, "Rollout halted")
	halted := f.object.DeepCopy()
	for i := range 3 {
		restart(t)
		// It has listed everything when it summarizes another object, and decided about this one.
		probe := tracepoint(fmt.Sprintf("restarts-%d", i), "restarts")
		create(t, f.c, probe)
		shows(t, f.c, probe, "3/0/0 NotYetLoaded: Attached on 0 of 3 selected nodes, waiting for restarts-0, restarts-1, restarts-2")
		must.Succeed(t, f.c.Get(t.Context(), client.ObjectKeyFromObject(halted), f.object))
		if f.object.ResourceVersion != halted.ResourceVersion {
			t.Fatalf("after restart %d, the rollout is %+v, and was %+v", i, f.object.Status.Rollout, halted.Status.Rollout)
		}
		must.Succeed(t, f.c.Delete(t.Context(), probe))
	}
}

// With onFailure undo, the canary returns too.
func TestRolloutUndoes(t *testing.T) {
	f := newFleet(t, "undoes", 3)
	f.policy("undoes", func(s *v1alpha1.RolloutPolicySpec) {
		s.OnFailure, s.Steps[0].UntilResumed = v1alpha1.RolloutUndo, false
	})
	f.breaks = func(function, _ string) bool { return function == "bad" }
	create(t, f.c, f.object)
	f.is(v1alpha1.RolloutPaused, "v1,v1,", "")
	f.resume()
	f.is(v1alpha1.RolloutComplete, "v1,v1,v1", "")
	f.edit(func() { f.object.Spec.BpfFunctionName = "bad" })
	f.is(v1alpha1.RolloutUndone, "v1,v1,v1", "revision 1 runs again on all nodes until you edit the object")
	f.condition(v1alpha1.ProgramReconcileError, v1alpha1.Stalled, "Rollout undone")
}

// Agents that don't know of a policy can run an object that was applied together with it. The steps aren't skipped.
func TestRolloutOfAnObjectAppliedWithItsPolicy(t *testing.T) {
	f := newFleet(t, "together", 3)
	f.policy("together", nil)
	create(t, f.c, f.object)
	for _, node := range f.nodes {
		report(t, f.c, f.object, node.Name, v1alpha1.BpfProgCondLoaded.Condition())
		f.runs[node.Name], f.generations[node.Name] = "v1", f.object.Generation
	}
	f.is(v1alpha1.RolloutPaused, "v1,,", "step 1 is complete")
}

// A halted rollout stays halted while no node matches, and a canary that is replaced doesn't count as healthy.
func TestRolloutOfNodesThatGo(t *testing.T) {
	f := newFleet(t, "goes", 3)
	f.policy("goes", func(s *v1alpha1.RolloutPolicySpec) { s.Steps[0].UntilResumed, s.Steps[1].UntilResumed = false, false })
	create(t, f.c, f.object)
	f.is(v1alpha1.RolloutComplete, "v1,v1,v1", "")
	f.breaks = func(function, _ string) bool { return function == "bad" }
	f.edit(func() { f.object.Spec.BpfFunctionName = "bad" })
	f.is(v1alpha1.RolloutHalted, "bad,v1,v1", "")
	labelled := func(pool string) {
		for _, node := range f.nodes {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"pool":%q}}}`, pool))
			must.Succeed(t, f.c.Patch(t.Context(), node, patch))
		}
	}
	labelled("elsewhere")
	envtest.Eventually(t, "no node matches", func(ctx context.Context) error {
		err := f.c.Get(ctx, client.ObjectKeyFromObject(f.object), f.object)
		if err != nil || f.object.Status.Nodes.Selected > 0 {
			return fmt.Errorf("%w: %+v", err, f.object.Status.Nodes)
		}
		return nil
	})
	if state := f.object.Status.Rollout.State; state != v1alpha1.RolloutHalted {
		t.Errorf("without nodes, the rollout is %s", state)
	}
	labelled(f.pool)
	f.is(v1alpha1.RolloutHalted, "bad,v1,v1", "")
}

// A node that isn't ready after the change stops the rollout.
func TestRolloutAwaitsReadyNodes(t *testing.T) {
	f := newFleet(t, "ready", 3)
	f.policy("ready", func(s *v1alpha1.RolloutPolicySpec) { s.Steps[0].UntilResumed, s.Steps[1].UntilResumed = false, false })
	create(t, f.c, f.object)
	f.is(v1alpha1.RolloutComplete, "v1,v1,v1", "")
	f.ready("ready-2", corev1.ConditionFalse)
	f.edit(func() { f.object.Spec.BpfFunctionName = "v2" })
	f.is(v1alpha1.RolloutProgressing, "v2,v1,v1", "revision 2, step 1 of 3 on 1 of 3 nodes")
	f.ready("ready-2", corev1.ConditionTrue)
	f.is(v1alpha1.RolloutComplete, "v2,v2,v2", "")
}

// runsSince sets when the agent on a node terminated last, or never. An inspector runs beside it.
func (f *fleet) runsSince(name string, terminated *corev1.ContainerStateTerminated) {
	f.t.Helper()
	pod := &corev1.Pod{}
	must.Succeed(f.t, f.c.Get(f.t.Context(), client.ObjectKey{Namespace: namespace, Name: "agent-" + name}, pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: deploy.AgentContainer, LastTerminationState: corev1.ContainerState{Terminated: terminated}}, {Name: deploy.InspectorContainer},
	}
	must.Succeed(f.t, f.c.Status().Update(f.t.Context(), pod))
}

// inspects sets what the inspector of a node says about objects.
func (f *fleet) inspects(name string, h rollout.Health) {
	f.t.Helper()
	o := &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := controllerutil.CreateOrPatch(f.t.Context(), f.c, o, func() error {
		o.Annotations = map[string]string{v1alpha1.AnnotationObjectHealth: h.String()}
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
}

// A conflict that is new, an agent that crashed, or programs that take longer halt a rollout. A user can resume it.
func TestRolloutHealth(t *testing.T) {
	f := newFleet(t, "health", 3)
	f.policy("health", func(s *v1alpha1.RolloutPolicySpec) { s.MaxRunTimePercent = 200 })
	owner := v1alpha1.BpfNodeOwner{Kind: "TracepointProgram", Name: f.object.Name}
	old := rollout.Conflict{BpfNodeOwner: owner, Since: metav1.NewTime(time.Now().Add(-time.Hour)), Message: "it was there before"}
	fast := []rollout.RunTime{{Program: programID, Loaded: metav1.NewTime(time.Now().Add(time.Hour)), Average: 150, Previous: 100}}
	for _, node := range f.nodes {
		f.runsSince(node.Name, nil)
		f.inspects(node.Name, rollout.Health{Conflicts: []rollout.Conflict{old}, RunTimes: fast})
	}
	create(t, f.c, f.object)
	f.is(v1alpha1.RolloutPaused, "v1,,", "step 1 is complete")

	now := rollout.Conflict{BpfNodeOwner: owner, Since: metav1.NewTime(time.Now().Add(time.Minute)), Message: "another program is first"}
	f.inspects("health-2", rollout.Health{Conflicts: []rollout.Conflict{old, now}, RunTimes: fast})
	f.is(v1alpha1.RolloutHalted, "v1,,", "1 of 1 nodes with revision 1 aren't healthy (health-2: another program is first)")
	f.inspects("health-2", rollout.Health{RunTimes: fast})
	f.resume()
	f.is(v1alpha1.RolloutPaused, "v1,v1,", "step 2 is complete")

	f.runsSince("health-2", &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(time.Now().Add(time.Minute))})
	f.is(v1alpha1.RolloutHalted, "v1,v1,", "1 of 2 nodes with revision 1 aren't healthy (health-2: the agent or the daemon terminated at ")

	f.edit(func() { f.object.Spec.BpfFunctionName = "v2" })
	f.is(v1alpha1.RolloutPaused, "v2,,", "step 1 is complete") // it terminated before
	f.runsSince("health-2", &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(time.Unix(1, 0))})
	f.is(v1alpha1.RolloutHalted, "v2,,", "the agent or the daemon terminated at ")

	f.edit(func() { f.object.Spec.BpfFunctionName = "v3" })
	f.is(v1alpha1.RolloutPaused, "v3,,", "step 1 is complete")
	slow := []rollout.RunTime{{Program: programID, Loaded: metav1.NewTime(time.Now().Add(2 * time.Hour)), Average: 201, Previous: 100}}
	f.inspects("health-2", rollout.Health{RunTimes: slow})
	f.is(v1alpha1.RolloutHalted, "v3,,", "health-2: a run takes 201 ns on average, and 100 ns in the previous revision")
}

// An object that nodes run when a policy is created changes nowhere. Two policies that match hold its changes, until one
// is deleted. Without a policy, all nodes have the newest revision.
func TestRolloutPolicies(t *testing.T) {
	f := newFleet(t, "policies", 3)
	create(t, f.c, f.object)
	for _, node := range f.nodes {
		report(t, f.c, f.object, node.Name, v1alpha1.BpfProgCondLoaded.Condition())
		f.runs[node.Name] = "v1"
	}
	envtest.Eventually(t, "the status to say that nodes run it", func(ctx context.Context) error {
		if err := f.c.Get(ctx, client.ObjectKeyFromObject(f.object), f.object); err != nil {
			return err
		}
		if n := f.object.Status.Nodes; n == nil || n.Attached == 0 {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	first := f.policy("first", nil)
	f.is(v1alpha1.RolloutComplete, "v1,v1,v1", "")
	second := f.policy("second", nil)
	f.is(v1alpha1.RolloutContested, "v1,v1,v1", "the RolloutPolicies first, second match the object")
	f.edit(func() { f.object.Spec.BpfFunctionName = "v2" })
	f.is(v1alpha1.RolloutContested, "v1,v1,v1", "")
	f.condition(v1alpha1.ProgramReconcileError, v1alpha1.Stalled, "first, second")
	must.Succeed(t, f.c.Delete(t.Context(), second))
	f.is(v1alpha1.RolloutPaused, "v2,v1,v1", "step 1 is complete")
	must.Succeed(t, f.c.Delete(t.Context(), first))
	envtest.Eventually(t, "the end of the rollout", func(ctx context.Context) error {
		if err := f.c.Get(ctx, client.ObjectKeyFromObject(f.object), f.object); err != nil || f.object.Status.Rollout != nil {
			return fmt.Errorf("%w, %+v", err, f.object.Status.Rollout)
		}
		return nil
	})
}
