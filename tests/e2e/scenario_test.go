// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/probe"
)

var trialOrder = []string{"XDP", "TC", "TCX", "Fentry", "Fexit", "LSM", "Kprobe", "Tracepoint", "Uprobe", node.ContainerUprobe, node.NamespacedUprobe}

// step is a step of a feature. It has its own t. Objects that later steps need must be
// created with the t of the feature's test.
type step struct {
	name string
	run  func(ctx context.Context, t *testing.T)
}

// feature runs steps that depend on the previous ones. It fails if containers of bpfman restarted that no step
// restarted.
func feature(t *testing.T, steps ...step) {
	t.Helper()
	if _, err := under.restarts.Unexpected(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := features.New(t.Name())
	for _, s := range steps {
		b.Assess(s.name, func(ctx context.Context, own *testing.T, _ *envconf.Config) context.Context {
			if t.Failed() {
				own.Skip("a step before this one failed")
			}
			s.run(ctx, own)
			return ctx
		})
	}
	testenv.Test(t, b.Feature())
	unexpected, err := under.restarts.Unexpected(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, what := range unexpected {
		t.Error(what)
	}
}

// requireType skips the test if the daemon itself can't attach such programs here.
func requireType(t *testing.T, name string) {
	t.Helper()
	trial, tried := under.trials[name]
	if !tried {
		trial = node.Trial{Type: name, Error: "it was not tried on the daemon"}
	}
	if !trial.Attached {
		prerequisite.Missing(t, "this cluster can't do "+name+"; the daemon itself says: "+inTheWay(trial), typeOf(t, trial))
	}
}

// inTheWay returns why the daemon itself can't attach these programs.
func inTheWay(refusals ...node.Trial) string {
	texts := make([]string, 0, len(refusals))
	for _, trial := range refusals {
		text := trial.Error
		if trial.Taken != "" {
			text += "; " + trial.Taken
		}
		texts = append(texts, text)
	}
	return strings.Join(slices.Compact(texts), "; ")
}

// typeOf returns the type of program of a trial.
func typeOf(t *testing.T, trial node.Trial) prerequisite.Name {
	t.Helper()
	if trial.Type == node.ContainerUprobe || trial.Type == node.NamespacedUprobe {
		return prerequisite.Uprobe
	}
	name, err := prerequisite.OfType(trial.Type)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// await polls until look returns true. On a timeout, it fails with what look saw last.
func await(ctx context.Context, t *testing.T, what string, look func(ctx context.Context) (ok bool, saw string)) {
	t.Helper()
	awaitFor(ctx, t, patience, what, look)
}

func awaitFor(ctx context.Context, t *testing.T, timeout time.Duration, what string, look func(ctx context.Context) (ok bool, saw string)) {
	t.Helper()
	err := eventually.Succeeds(ctx, timeout, interval, func(ctx context.Context) error {
		if ok, saw := look(ctx); !ok {
			return errors.New(saw)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// mark adds the tests' label to an object.
func mark(o client.Object) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[label] = "true"
	o.SetLabels(labels)
}

// create creates an object, which is deleted when the test of t ends.
func create(ctx context.Context, t *testing.T, o client.Object) {
	t.Helper()
	mark(o)
	ctx = context.WithoutCancel(ctx)
	await(ctx, t, fmt.Sprintf("%T %s can be created", o, o.GetName()), func(ctx context.Context) (bool, string) {
		err := under.Create(ctx, o)
		// An object with that name of another test can still be in deletion.
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
		return err == nil, fmt.Sprint(err)
	})
	t.Cleanup(func() {
		if user, ok := o.(v1alpha1.UserObject); ok {
			removeProgram(ctx, t, user)
			return
		}
		if space, ok := o.(*corev1.Namespace); ok {
			// Its content is already deleted, so the test doesn't wait for it.
			if err := under.Delete(ctx, space); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete namespace %s: %v", space.Name, err)
			}
			return
		}
		if err := remove(ctx, o); err != nil {
			t.Error(err)
		}
	})
}

// removeProgram deletes a user object, and waits until nothing of it is left: neither
// reports nor programs in the daemon.
func removeProgram(ctx context.Context, t *testing.T, o v1alpha1.UserObject) {
	t.Helper()
	if err := remove(ctx, o); err != nil {
		t.Error(err)
		return
	}
	await(ctx, t, kindOf(o)+" "+o.GetName()+" leaves nothing", func(ctx context.Context) (bool, string) {
		programs, err := programsOf(ctx, o)
		if err != nil || len(programs) > 0 {
			return false, fmt.Sprintf("%d program objects, %v", len(programs), err)
		}
		loaded, err := loadedFor(ctx, o.GetUID())
		return err == nil && len(loaded) == 0, fmt.Sprintf("in the daemon: %v, %v", loaded, err)
	})
}

// namespace creates a namespace for the test.
func namespace(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	create(ctx, t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// modify changes an object, and retries after a conflict.
func modify[O client.Object](ctx context.Context, t *testing.T, o O, change func(O)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := under.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change(o)
		return under.Update(ctx, o)
	})
	if err != nil {
		t.Fatalf("update %T %s: %v", o, o.GetName(), err)
	}
}

// conditionOf returns the object's condition. It is empty if there is none for the
// current generation.
func conditionOf(ctx context.Context, o v1alpha1.UserObject) (metav1.Condition, error) {
	if err := under.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return metav1.Condition{}, err
	}
	conditions := o.GetStatus().Conditions
	if len(conditions) == 0 || conditions[0].ObservedGeneration != o.GetGeneration() {
		return metav1.Condition{}, nil
	}
	return conditions[0], nil
}

// awaitSuccess waits until the object has what it requests on all nodes.
func awaitSuccess(ctx context.Context, t *testing.T, o v1alpha1.UserObject) {
	t.Helper()
	await(ctx, t, kindOf(o)+" "+o.GetName()+" is attached", func(ctx context.Context) (bool, string) {
		c, err := conditionOf(ctx, o)
		return v1alpha1.ProgramConditionTypeOf(c.Type) == v1alpha1.ProgramReconcileSuccess, fmt.Sprintf("%s: %s, %v", c.Type, c.Message, err)
	})
	programs, err := programsOf(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		saw(kindOf(o), func(r *result) {
			r.loaded = r.loaded || p.GetStatus().ProgramID != 0
			r.attached = r.attached || slices.ContainsFunc(p.GetStatus().Links, attached)
		})
	}
}

func attached(l v1alpha1.BpfProgramLink) bool { return l.State == v1alpha1.LinkAttached }

// awaitFailure waits until the object's condition is a failure with all the words, and
// the node's name.
func awaitFailure(ctx context.Context, t *testing.T, o v1alpha1.UserObject, words ...string) {
	t.Helper()
	var c metav1.Condition
	await(ctx, t, fmt.Sprintf("%s %s fails with %q", kindOf(o), o.GetName(), words), func(ctx context.Context) (bool, string) {
		var err error
		c, err = conditionOf(ctx, o)
		ok := v1alpha1.ProgramConditionTypeOf(c.Type) == v1alpha1.ProgramReconcileError && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(c.Message, w) })
		return ok, fmt.Sprintf("%s: %s, %v", c.Type, c.Message, err)
	})
	if !slices.ContainsFunc(under.nodes(), func(n string) bool { return strings.Contains(c.Message, n) }) {
		t.Errorf("the condition names no node: %s", c.Message)
	}
}

// awaitEvent waits for an Event about an object that contains all the words.
func awaitEvent(ctx context.Context, t *testing.T, about client.Object, eventType string, words ...string) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("a %s Event about %s with %q", eventType, about.GetName(), words), func(ctx context.Context) (bool, string) {
		events, err := eventsAbout(ctx, about)
		var texts []string
		for _, e := range events {
			text := e.Reason + ": " + e.Message
			texts = append(texts, e.Type+" "+text)
			if e.Type == eventType && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%q, %v", texts, err)
	})
}

func eventsAbout(ctx context.Context, about client.Object) ([]corev1.Event, error) {
	var events corev1.EventList
	if err := under.List(ctx, &events); err != nil {
		return nil, fmt.Errorf("list Events: %w", err)
	}
	return slices.DeleteFunc(events.Items, func(e corev1.Event) bool { return e.InvolvedObject.UID != about.GetUID() }), nil
}

// programsOf returns the reports that a user object owns.
func programsOf(ctx context.Context, o v1alpha1.UserObject) ([]v1alpha1.ProgramObject, error) {
	return programs(ctx, func(p v1alpha1.ProgramObject) bool { return metav1.IsControlledBy(p, o) })
}

// programs returns the reports of all namespaces that keep selects.
func programs(ctx context.Context, keep func(v1alpha1.ProgramObject) bool) ([]v1alpha1.ProgramObject, error) {
	var out []v1alpha1.ProgramObject
	for _, kind := range v1alpha1.ProgramKinds {
		list, ok := kind.NewList().(client.ObjectList)
		if !ok {
			return nil, fmt.Errorf("%s: its list is none", kind.Name)
		}
		if err := under.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %ss: %w", kind.Name, err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			if p, ok := item.(v1alpha1.ProgramObject); ok && keep(p) {
				out = append(out, p)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// loadedFor returns the programs that the daemons have for an owner.
func loadedFor(ctx context.Context, owner types.UID) ([]node.Program, error) {
	var out []node.Program
	for _, name := range under.nodes() {
		programs, err := loadedOn(ctx, name, owner)
		if err != nil {
			return nil, err
		}
		out = append(out, programs...)
	}
	return out, nil
}

// loadedOn returns the programs that the daemon on a node has for an owner.
func loadedOn(ctx context.Context, nodeName string, owner types.UID) ([]node.Program, error) {
	programs, err := ask[[]node.Program](ctx, nodeName, "programs")
	return slices.DeleteFunc(programs, func(p node.Program) bool { return p.Metadata[v1alpha1.MetadataUUID] != string(owner) }), err
}

// kindOf returns an object's kind, which a typed client doesn't set in the object.
func kindOf(o runtime.Object) string {
	gvks, _, err := under.Scheme().ObjectKinds(o)
	if err != nil || len(gvks) == 0 {
		return fmt.Sprintf("%T", o)
	}
	return gvks[0].Kind
}

// awaitAttached waits until the object has a link on a node. Success alone can mean that
// there is no container.
func awaitAttached(ctx context.Context, t *testing.T, o v1alpha1.UserObject) {
	t.Helper()
	await(ctx, t, o.GetName()+" has a link", func(ctx context.Context) (bool, string) {
		programs, err := programsOf(ctx, o)
		for _, p := range programs {
			if slices.ContainsFunc(p.GetStatus().Links, attached) {
				return true, ""
			}
		}
		return false, fmt.Sprint(programs, err)
	})
	awaitSuccess(ctx, t, o)
}

// awaitReady waits until a pod is ready.
func awaitReady(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	await(ctx, t, "pod "+pod.Name+" is ready", func(ctx context.Context) (bool, string) {
		if err := under.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err.Error()
		}
		events, err := eventsAbout(ctx, pod)
		texts := []string{podState(pod)}
		for _, e := range events {
			texts = append(texts, e.Reason+": "+e.Message)
		}
		return probe.Ready(pod), fmt.Sprintf("%q, %v", texts, err)
	})
}
