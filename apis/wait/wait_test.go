// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package wait_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bpfman/bpfman-operator/apis/client/clientset/fake"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/apis/wait"
)

// object returns a TcxProgram of the second generation, whose condition is about the
// given generation.
func object(t v1alpha1.ProgramConditionType, generation int64) *v1alpha1.TcxProgram {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "packets", Generation: 2, ResourceVersion: "1"}}
	if t != "" {
		c := t.Condition("the message")
		c.ObservedGeneration = generation
		o.Status.Conditions = []metav1.Condition{c}
	}
	return o
}

// served returns a clientset with an object. Its watches start with the given events.
func served(o *v1alpha1.TcxProgram, events ...watch.Event) *fake.Clientset {
	clients := fake.NewSimpleClientset(o)
	clients.PrependWatchReactor("tcxprograms", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFakeWithChanSize(len(events), false)
		for _, e := range events {
			w.Action(e.Type, e.Object.DeepCopyObject())
		}
		return true, w, nil
	})
	return clients
}

func modified(o runtime.Object) watch.Event { return watch.Event{Type: watch.Modified, Object: o} }

func TestForSuccess(t *testing.T) {
	success, failure := v1alpha1.ProgramReconcileSuccess, v1alpha1.ProgramReconcileError
	tests := map[string]struct {
		is     *v1alpha1.TcxProgram
		events []watch.Event
	}{
		"already so":               {is: object(success, 2)},
		"after a while":            {is: object("", 0), events: []watch.Event{modified(object(v1alpha1.ProgramNotYetLoaded, 2)), modified(object(success, 2))}},
		"through a failure":        {is: object(failure, 2), events: []watch.Event{modified(object(success, 2))}},
		"of this generation alone": {is: object(success, 1), events: []watch.Event{modified(object(failure, 2)), modified(object(success, 2))}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := wait.ForSuccess(ctx, served(test.is, test.events...).BpfmanV1alpha1().TcxPrograms(), "packets")
			if err != nil {
				t.Fatal(err)
			}
			if c := got.Status.Conditions[0]; c.Type != string(success) || c.ObservedGeneration != 2 {
				t.Errorf("condition = %+v", c)
			}
		})
	}
}

func TestForVerdictEndsWithAFailure(t *testing.T) {
	clients := served(object(v1alpha1.ProgramNotYetLoaded, 2), modified(object(v1alpha1.ProgramReconcileError, 2)))
	got, err := wait.ForVerdict(t.Context(), clients.BpfmanV1alpha1().TcxPrograms(), "packets")
	if err != nil || got.Status.Conditions[0].Reason != "ReconcileError" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTheErrorHasTheLastState(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	clients := served(object("", 0), modified(object(v1alpha1.ProgramReconcileError, 2)))
	_, err := wait.ForSuccess(ctx, clients.BpfmanV1alpha1().TcxPrograms(), "packets")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "ReconcileError: the message") {
		t.Errorf("err = %v", err)
	}
}

func TestAnObjectThatIsNotThere(t *testing.T) {
	programs := served(object("", 0)).BpfmanV1alpha1().TcxPrograms()
	if _, err := wait.ForSuccess(t.Context(), programs, "others"); !apierrors.IsNotFound(err) {
		t.Errorf("ForSuccess: %v", err)
	}
	if err := wait.ForDeletion(t.Context(), programs, "others"); err != nil {
		t.Errorf("ForDeletion: %v", err)
	}
}

func TestForDeletion(t *testing.T) {
	clients := served(object("", 0), watch.Event{Type: watch.Deleted, Object: object("", 0)})
	// After the event of the watch, the object is read again.
	clients.PrependReactor("get", "tcxprograms", func() clienttesting.ReactionFunc {
		reads := 0
		return func(clienttesting.Action) (bool, runtime.Object, error) {
			reads++
			return reads > 1, nil, apierrors.NewNotFound(v1alpha1.Resource("tcxprograms"), "packets")
		}
	}())
	if err := wait.ForDeletion(t.Context(), clients.BpfmanV1alpha1().TcxPrograms(), "packets"); err != nil {
		t.Error(err)
	}
}
