// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	steps "github.com/bpfman/bpfman-operator/operator/rollout"
)

// A second policy, which somebody creates by mistake and deletes, neither makes a rollout go on that has failed, nor ends
// one.
func TestContestOfARollout(t *testing.T) {
	scheme := newScheme(t)
	policy := func(name string) *v1alpha1.RolloutPolicy {
		return &v1alpha1.RolloutPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.RolloutPolicySpec{
				Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1)}, {Nodes: intstr.FromInt32(2)}}, TimeLimit: metav1.Duration{Duration: time.Minute},
			},
		}
	}
	at := metav1.NewTime(time.Unix(0, 0))
	status := func(state v1alpha1.RolloutState, step int32, until *int64) *v1alpha1.RolloutStatus {
		return &v1alpha1.RolloutStatus{
			State: state, Message: "said before", Revision: 2, Step: step, Nodes: step, Until: until,
			Started: &at, StepStarted: &at, Previous: &v1alpha1.RolloutRevision{Revision: 1},
		}
	}
	for name, test := range map[string]struct {
		before  *v1alpha1.RolloutStatus
		resumed string
		want    v1alpha1.RolloutState
	}{
		"undone":              {before: status(v1alpha1.RolloutUndone, 1, new(int64(0))), want: v1alpha1.RolloutUndone},
		"halted":              {before: status(v1alpha1.RolloutHalted, 1, new(int64(1<<32))), want: v1alpha1.RolloutHalted},
		"halted, and resumed": {before: status(v1alpha1.RolloutHalted, 1, new(int64(1<<32))), resumed: "2/1", want: v1alpha1.RolloutProgressing},
		"in the last step":    {before: status(v1alpha1.RolloutProgressing, 3, nil), want: v1alpha1.RolloutProgressing},
		"complete":            {before: &v1alpha1.RolloutStatus{State: v1alpha1.RolloutComplete, Revision: 2}, want: v1alpha1.RolloutComplete},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _ := newReconciler(cluster(t, "a", "b", "c"))
			object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{
				Name: ref.Name, UID: uid, Generation: 2, Annotations: map[string]string{v1alpha1.AnnotationRolloutResumed: test.resumed},
			}}
			revision, err := rollout.RevisionOf(object)
			if err != nil {
				t.Fatal(err)
			}
			rollout.MarkObject(object) // as in the cache
			test.before.Hash = revision.Hash()
			status := test.before.DeepCopy()
			next := func(policies ...runtime.Object) {
				r.Client = fake.NewClientBuilder().WithScheme(scheme).WithRuntimeObjects(policies...).Build()
				owner := everywhere(2)
				owner.Rollout, owner.Before = status, 1
				r.index.SetOwner(ref, uid, owner)
				summary, _ := r.index.Summary(uid)
				var err error
				if status, _, err = r.rollout(t.Context(), ref, object, summary, &v1alpha1.BpfProgramStatusCommon{Rollout: status}); err != nil {
					t.Fatal(err)
				}
			}
			next(policy("first"), policy("second"))
			next(policy("first"))
			next(policy("first"))
			if status.State != test.want {
				t.Errorf("after the contest: %+v, want %s", status, test.want)
			}
			if test.resumed == "" && !equality.Semantic.DeepEqual(status.Until, test.before.Until) {
				t.Errorf("nodes changed after the contest: %+v", status)
			}
		})
	}
}

// Two operators work at the same time for a moment, for example while a request of the former leader is on its way. What one has
// decided about a rollout isn't taken back by the other, which then decides again, with what it reads.
func TestDecisionsOfAFormerLeader(t *testing.T) {
	r, _, _ := newReconciler(cluster(t, "a"))
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: uid}}
	object.Status.Rollout = &v1alpha1.RolloutStatus{State: v1alpha1.RolloutProgressing, Step: 1}
	r.index.SetOwner(ref, uid, everywhere(1))
	r.Client = fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(object).WithStatusSubresource(object).Build()
	read := func() *v1alpha1.TcxProgram {
		o := &v1alpha1.TcxProgram{}
		must(t, r.Client.Get(t.Context(), client.ObjectKeyFromObject(object), o))
		return o
	}
	write := func(o *v1alpha1.TcxProgram, state v1alpha1.RolloutState) (written bool) {
		want := o.GetStatus().DeepCopy()
		want.Rollout.State, want.Conditions = state, Summary{}.Conditions()
		written, err := r.write(t.Context(), ref.Kind, o, want)
		must(t, err)
		return written
	}
	stale := read()
	other := read()
	other.Status.Rollout.State = v1alpha1.RolloutHalted
	must(t, r.Client.Status().Update(t.Context(), other))
	if written := write(stale, v1alpha1.RolloutProgressing); written || read().Status.Rollout.State != v1alpha1.RolloutHalted {
		t.Errorf("written: %t, and the rollout is %s", written, read().Status.Rollout.State)
	}
	if current := read(); !write(current, v1alpha1.RolloutUndone) || !write(current, v1alpha1.RolloutComplete) {
		t.Error("an operator can't write what it has read, or after its own write")
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.Install(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// After a start, the RolloutPolicies can be listed after everything else. If they can't be listed at all, objects that had
// none aren't held up.
func TestRolloutWhosePoliciesAreNotListedYet(t *testing.T) {
	r, _, _ := newReconciler(cluster(t, "a"))
	unread := &kinds.UnreadError{Kind: "RolloutPolicy"}
	r.Client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return unread },
	})
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{UID: uid, Generation: 2}}
	status := &v1alpha1.RolloutStatus{State: v1alpha1.RolloutPaused}
	for _, was := range []*v1alpha1.RolloutStatus{status, nil} {
		if is, _, err := r.rollout(t.Context(), ref, object, Summary{Generation: 2}, &v1alpha1.BpfProgramStatusCommon{Rollout: was}); is != was || !kinds.Unread(err) {
			t.Errorf("%+v, %v, want %+v, and that nothing is written", is, err, was)
		}
	}
	unread.Err = errors.New("forbidden")
	for _, was := range []*v1alpha1.RolloutStatus{status, nil} {
		is, again, err := r.rollout(t.Context(), ref, object, Summary{Generation: 2}, &v1alpha1.BpfProgramStatusCommon{Rollout: was})
		if is != was || err != nil || (again != 0) != (was != nil) {
			t.Errorf("%+v is %+v, and decided about after %s: %v", was, is, again, err)
		}
	}
}

// A change of an object that can't be stored together with its previous revision isn't rolled out, and says so.
func TestRolloutOfALargeObject(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 10, 480 << 10} { // as base64, a third more
		object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: uid, Generation: 2}}
		object.Spec.GlobalData = map[string][]byte{"table": make([]byte, size)}
		revision, err := rollout.RevisionOf(object)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(revision)
		if err != nil {
			t.Fatal(err)
		}
		object.Spec.Priority = 7
		r, _, _ := newReconciler(cluster(t, "a"))
		r.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).WithIndex(object, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).Build()
		r.Live, r.Revisions = r.Client, &steps.History{Client: r.Client, Reader: r.Client, Namespace: "bpfman"}
		was := &v1alpha1.RolloutStatus{
			State: v1alpha1.RolloutProgressing, Hash: revision.Hash(), Revision: 2, Until: new(int64(1)), Previous: &v1alpha1.RolloutRevision{Revision: 1, Object: runtime.RawExtension{Raw: stored}},
		}
		is, _, err := r.begin(t.Context(), ref, was, steps.Input{
			Policies: []steps.Policy{{Name: "staged", Spec: &v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1)}}}}},
			Nodes:    steps.Nodes{Positions: func() []int64 { return []int64{1} }},
		})
		if large := size > 1<<10; err != nil || (is.State == v1alpha1.RolloutContested) != large || (is.Hash == was.Hash) != large ||
			strings.Contains(is.Message, "so no node changes until you make the object smaller") != large {
			t.Errorf("%d bytes: %v, %s with hash %s: %s", size, err, is.State, is.Hash, is.Message)
		}
	}
}

// Before the BpfNodes are listed, a node whose inspector has reported a conflict looks healthy.
func TestRolloutWhoseBpfNodesAreNotListedYet(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	at := metav1.NewTime(time.Unix(0, 0))
	was := &v1alpha1.RolloutStatus{
		State: v1alpha1.RolloutProgressing, Hash: "hash", Revision: 2, Step: 1, Nodes: 1, Until: new(int64(1 << 40)), Started: &at, StepStarted: &at,
	}
	x := cluster(t, "a")
	owner := everywhere(2)
	owner.Rollout, owner.Before = was, 1
	x.SetOwner(ref, uid, owner)
	x.SetReport(program("a", "program-a", 2, v1alpha1.BpfProgCondLoaded, ""))
	r, _, _ := newReconciler(x)
	r.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "staged"},
		Spec:       v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1)}}, TimeLimit: metav1.Duration{Duration: time.Hour}},
	}).Build()
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: uid, Generation: 2, Annotations: map[string]string{rollout.Mark: "hash"}}}
	for _, listed := range []bool{false, true} {
		r.health = asListed(listed)
		summary, _ := x.Summary(uid)
		is, again, err := r.rollout(t.Context(), ref, object, summary, &v1alpha1.BpfProgramStatusCommon{Rollout: was})
		if err != nil || again == 0 || (is.Step != was.Step) != listed {
			t.Errorf("listed: %v: %+v after %s, %v", listed, is, again, err)
		}
	}
}

// Without a RolloutPolicy, each revision is recorded once. What prevents that, such as a quota, holds nothing else up.
func TestRevisionsWithoutAPolicy(t *testing.T) {
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: uid, Generation: 2}}
	scheme := newScheme(t)
	must(t, appsv1.AddToScheme(scheme))
	var refused error
	attempts := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).
		WithIndex(&v1alpha1.TcxProgram{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				attempts++
				if refused != nil {
					return refused
				}
				return c.Create(ctx, o, options...)
			},
		}).Build()
	x := cluster(t, "a")
	x.SetOwner(ref, uid, everywhere(2))
	r, clock, _ := newReconciler(x)
	r.Client, r.Live, r.Revisions = c, c, &steps.History{Client: c, Reader: c, Namespace: "bpfman"}
	var is *v1alpha1.RecordedRevision
	next := func(want int64, wantAttempts int) (again time.Duration) {
		t.Helper()
		marked := object.DeepCopy()
		rollout.MarkObject(marked)
		is, again = r.revision(t.Context(), ref, marked, Summary{Generation: 2}, is, nil)
		if want == 0 && is != nil || want != 0 && (is == nil || is.Number != want) || attempts != wantAttempts {
			t.Fatalf("%+v after %d attempts, want revision %d after %d", is, attempts, want, wantAttempts)
		}
		return again
	}
	change := func(function string) {
		object.Spec.BpfFunctionName = function
		must(t, c.Update(t.Context(), object))
	}
	refused = errors.New("exceeded quota")
	if again := next(0, 1); again == 0 {
		t.Error("it isn't tried again")
	}
	next(0, 1) // by an event
	refused = nil
	clock.Step(recordRetry)
	next(1, 2)
	next(1, 2)
	change("another")
	next(2, 3)
	staged := &v1alpha1.RolloutStatus{Hash: "hash", Revision: 7}
	if got, _ := r.revision(t.Context(), ref, object, Summary{Generation: 2}, is, staged); got.Number != 7 || got.Hash != "hash" {
		t.Errorf("with a policy, it is %+v", got)
	}
	must(t, c.Delete(t.Context(), object))
	is, object.Spec.BpfFunctionName = nil, "deleted"
	if again := next(0, 3); again != 0 {
		t.Errorf("an object that doesn't exist is recorded again after %s", again)
	}
}

// While an admission webhook for ControllerRevisions is silent, each attempt takes long. The statuses of all objects don't wait
// for an attempt of each one.
func TestRevisionsThatAreRefusedSlowly(t *testing.T) {
	scheme := newScheme(t)
	must(t, appsv1.AddToScheme(scheme))
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: uid, Generation: 2}}
	r, clock, _ := newReconciler(cluster(t, "a"))
	attempts, takes := 0, 10*time.Second
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).
		WithIndex(&v1alpha1.TcxProgram{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			attempts++
			clock.Step(takes)
			return errors.New("failed calling webhook")
		}}).Build()
	r.Client, r.Live, r.Revisions = c, c, &steps.History{Client: c, Reader: c, Namespace: "bpfman"}
	rollout.MarkObject(object)
	try := func(name types.UID, want int) {
		t.Helper()
		other := object.DeepCopy()
		other.UID = name
		if is, again := r.revision(t.Context(), ref, other, Summary{Generation: 2}, nil, nil); is != nil || again <= 0 || attempts != want {
			t.Errorf("%+v after %d attempts, again after %s; want none after %d", is, attempts, again, want)
		}
	}
	try("first", 1)
	try("second", 1)
	clock.Step(recordRetry)
	takes = 10 * time.Millisecond // a quota of a namespace
	try("third", 2)
	try("fourth", 3)
}

// A rollout whose revision can't be recorded says why, and begins once it can be. Until then, no node changes. If the API server
// isn't there for a moment, it begins a moment later.
func TestRolloutWhoseRevisionIsRefused(t *testing.T) {
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: uid, Generation: 2}}
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "controllerrevisions"}, "flows", errors.New("exceeded quota: few"))
	webhook := apierrors.NewInternalError(errors.New("failed calling webhook: deadline exceeded"))
	for name, test := range map[string]struct {
		err   error
		takes time.Duration
		words string // of a contest
		again time.Duration
	}{
		"by a quota":   {quota, 0, "so no node changes until it can be: create ControllerRevision prog-f06942d709a0904e72f7: controllerrevisions \"flows\" is forbidden: exceeded quota: few", recordRetry},
		"by a webhook": {webhook, 10 * time.Second, "failed calling webhook", recordRetry},
		"by nobody":    {errors.New("connection refused"), 0, "", unlistedRetry},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := newScheme(t)
			must(t, appsv1.AddToScheme(scheme))
			x := cluster(t, "a", "b")
			x.SetOwner(ref, uid, everywhere(2))
			r, clock, _ := newReconciler(x)
			refused := test.err
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(object.DeepCopy()).
				WithIndex(&v1alpha1.TcxProgram{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
				WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if refused != nil {
						clock.Step(test.takes)
						return refused
					}
					return c.Create(ctx, o, options...)
				}}).Build()
			r.Client, r.Live, r.Revisions = c, c, &steps.History{Client: c, Reader: c, Namespace: "bpfman"}
			policies := []steps.Policy{{Name: "first", Spec: &v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1)}}}}}
			summary, _ := r.index.Summary(uid)
			begin := func(was *v1alpha1.RolloutStatus) (*v1alpha1.RolloutStatus, time.Duration) {
				next, again, err := r.begin(t.Context(), ref, was, r.input(object, summary, was, policies))
				must(t, err)
				return next, again
			}
			is, again := begin(nil)
			if again != test.again || (is != nil) != (test.words != "") || is != nil && (is.State != v1alpha1.RolloutContested || !strings.Contains(is.Message, test.words)) {
				t.Fatalf("%+v, again after %s", is, again)
			}
			refused = nil
			if early, again := begin(is); early != is || again <= 0 {
				t.Errorf("by an event, it is %+v, again after %s", early, again)
			}
			clock.Step(again)
			if is, again = begin(is); is.State != v1alpha1.RolloutProgressing || is.Step != 1 || again != 0 {
				t.Errorf("later, it is %+v, again after %s", is, again)
			}
		})
	}
}

// Others than the operator can write ControllerRevisions. What nodes ran is in the status.
func TestRolloutFromARevisionThatSomebodyChanged(t *testing.T) {
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: uid, Generation: 2}}
	before := object.DeepCopy()
	before.Spec.BpfFunctionName = "before"
	ran, err := rollout.RevisionOf(before)
	if err != nil {
		t.Fatal(err)
	}
	forged := before.DeepCopy()
	forged.Spec.BpfFunctionName = "forged"
	was := &v1alpha1.RolloutStatus{State: v1alpha1.RolloutComplete, Hash: ran.Hash(), Revision: 1}
	for name, test := range map[string]struct {
		stored *v1alpha1.TcxProgram
		want   v1alpha1.RolloutState
	}{
		"the same": {before, v1alpha1.RolloutProgressing}, "another": {forged, v1alpha1.RolloutContested}, "none": {nil, v1alpha1.RolloutContested},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := newScheme(t)
			must(t, appsv1.AddToScheme(scheme))
			objects := []client.Object{object.DeepCopy()}
			if test.stored != nil {
				objects = append(objects, stored(t, test.stored, ran.Hash()))
			}
			r, _, _ := newReconciler(cluster(t, "a", "b"))
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
				WithIndex(&v1alpha1.TcxProgram{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).Build()
			r.Client, r.Live, r.Revisions = c, c, &steps.History{Client: c, Reader: c, Namespace: "bpfman"}
			policies := []steps.Policy{{Name: "first", Spec: &v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1)}}}}}
			summary, _ := r.index.Summary(uid)
			next, _, err := r.begin(t.Context(), ref, was, r.input(object, summary, was, policies))
			if err != nil || next.State != test.want {
				t.Errorf("%+v, %v, want %s", next, err, test.want)
			}
		})
	}
}

// A change that is applied together with the first RolloutPolicy goes through its steps: the agents hold it, and the status says
// what nodes ran before. What nodes already run when the policy is created doesn't change.
func TestPolicyThatComesWithAChange(t *testing.T) {
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: uid, Generation: 2}}
	before := object.DeepCopy()
	before.Generation, before.Spec.BpfFunctionName = 1, "before"
	ran, err := rollout.RevisionOf(before)
	must(t, err)
	policy := func(name string) *v1alpha1.RolloutPolicy {
		return &v1alpha1.RolloutPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1)}}, TimeLimit: metav1.Duration{Duration: time.Hour}},
		}
	}
	for name, test := range map[string]struct {
		reported int64 // the generation
		second   bool  // for a moment, another policy matches
		fails    bool  // a node that isn't selected can't unload the object
		want     v1alpha1.RolloutState
	}{
		"held":                      {1, false, false, v1alpha1.RolloutProgressing},
		"held, after a contest":     {1, true, false, v1alpha1.RolloutProgressing},
		"held, with a failure":      {1, false, true, v1alpha1.RolloutProgressing},
		"a node already runs it":    {2, false, false, v1alpha1.RolloutComplete},
		"all the same, a node runs": {2, true, false, v1alpha1.RolloutComplete},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := newScheme(t)
			must(t, appsv1.AddToScheme(scheme))
			x := cluster(t, "a", "b", "c")
			x.SetOwner(ref, uid, only(t, 2, "name notin (c)"))
			x.SetReport(program("a", "program-a", test.reported, v1alpha1.BpfProgCondLoaded, ""))
			if test.fails {
				x.SetReport(program("c", "program-c", 1, v1alpha1.BpfProgCondNotUnloaded, "busy"))
			}
			r, _, _ := newReconciler(x)
			r.health = asListed(true)
			marked := object.DeepCopy()
			rollout.MarkObject(marked)
			status := &v1alpha1.BpfProgramStatusCommon{
				Nodes: &v1alpha1.NodeCounts{Selected: 2, Attached: 2}, Revision: &v1alpha1.RecordedRevision{Number: 1, Hash: ran.Hash()},
			}
			marked.Status.BpfProgramStatusCommon = *status
			next := func(policies ...client.Object) {
				objects := append([]client.Object{object.DeepCopy(), stored(t, before, ran.Hash())}, policies...)
				c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
					WithIndex(&v1alpha1.TcxProgram{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).Build()
				r.Client, r.Live, r.Revisions = c, c, &steps.History{Client: c, Reader: c, Namespace: "bpfman"}
				summary, _ := x.Summary(uid)
				status.Rollout, _, err = r.rollout(t.Context(), ref, marked, summary, status)
				must(t, err)
			}
			if test.second {
				next(policy("first"), policy("second"))
			}
			next(policy("first"))
			is := status.Rollout
			if is.State != test.want || is.Hash != marked.Annotations[rollout.Mark] && test.want == v1alpha1.RolloutProgressing ||
				(is.Previous != nil && is.Previous.Revision == 1) != (test.want == v1alpha1.RolloutProgressing) {
				t.Errorf("%+v", is)
			}
		})
	}
}

// stored returns the first ControllerRevision of an object, with a label that says it has a hash.
func stored(t *testing.T, o *v1alpha1.TcxProgram, hash string) *appsv1.ControllerRevision {
	t.Helper()
	revision, err := rollout.RevisionOf(o)
	must(t, err)
	data, err := json.Marshal(revision)
	must(t, err)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: "first", Namespace: "bpfman", Labels: map[string]string{v1alpha1.LabelRevisionOf: string(o.UID), v1alpha1.LabelRevisionHash: hash},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, v1alpha1.SchemeGroupVersion.WithKind(ref.Kind))},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: 1,
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
