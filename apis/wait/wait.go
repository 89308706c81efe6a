// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package wait lets a Go client wait until the programs that an object declares run on their nodes, or until the
// object is deleted.
//
// It works with the typed client of any kind that users write:
//
//	programs := clientset.BpfmanV1alpha1().XdpPrograms()
//	object, err := wait.ForSuccess(ctx, programs, "packets")
//
// The context bounds the wait. In a shell script, use kubectl wait --for=condition=ReconcileSuccess.
package wait

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Client is the part of a generated typed client that this package uses.
type Client[O v1alpha1.UserObject] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (O, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Error describes the state of the object when the wait ended. It unwraps to the cause: the context's error, or
// the error of a request to the API server.
type Error struct {
	// Name is the name of the object.
	Name string
	// Condition is the last observed condition of the object. Its type is empty if there was none.
	Condition metav1.Condition
	// Err is the reason why the wait ended.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Condition.Type == "" {
		return fmt.Sprintf("wait for %s: %v; it has no status", e.Name, e.Err)
	}
	return fmt.Sprintf("wait for %s: %v; its status is %s: %s", e.Name, e.Err, e.Condition.Reason, e.Condition.Message)
}

// Unwrap implements errors.Unwrap.
func (e *Error) Unwrap() error { return e.Err }

// ForSuccess waits until each selected node runs what the object's current generation requests, and returns the
// object. It keeps waiting when nodes fail, because they retry; the Error contains the last failure. If the object
// doesn't exist, it returns an error immediately.
func ForSuccess[O v1alpha1.UserObject](ctx context.Context, client Client[O], name string) (O, error) {
	return until(ctx, client, name, v1alpha1.ProgramReconcileSuccess)
}

// ForVerdict waits until each selected node either runs what the object's current generation requests, or has
// failed to do so, and returns the object. Its condition says which.
func ForVerdict[O v1alpha1.UserObject](ctx context.Context, client Client[O], name string) (O, error) {
	return until(ctx, client, name, v1alpha1.ProgramReconcileSuccess, v1alpha1.ProgramReconcileError)
}

// until waits for the first condition that has one of these types and is about the object's current generation.
func until[O v1alpha1.UserObject](ctx context.Context, client Client[O], name string, types ...v1alpha1.ProgramConditionType) (O, error) {
	var last metav1.Condition
	met := func(object O) bool {
		last = condition(object)
		for _, t := range types {
			if v1alpha1.ProgramConditionTypeOf(last.Type) == t && last.ObservedGeneration == object.GetGeneration() {
				return true
			}
		}
		return false
	}
	object, err := follow(ctx, client, name, met)
	if err != nil {
		return object, &Error{Name: name, Condition: last, Err: err}
	}
	return object, nil
}

// ForDeletion waits until the object doesn't exist. Its programs can be unloaded slightly later. To wait for that
// too, wait for the deletion of the BpfPrograms (BpfNsPrograms) whose label [v1alpha1.LabelOwnedByProgram] has the
// object's name.
func ForDeletion[O v1alpha1.UserObject](ctx context.Context, client Client[O], name string) error {
	var last metav1.Condition
	_, err := follow(ctx, client, name, func(object O) bool { last = condition(object); return false })
	if apierrors.IsNotFound(err) {
		return nil
	}
	return &Error{Name: name, Condition: last, Err: err}
}

func condition(object v1alpha1.UserObject) metav1.Condition {
	if conditions := object.GetStatus().Conditions; len(conditions) > 0 {
		return conditions[0]
	}
	return metav1.Condition{}
}

// follow reads the object, then watches it, until met returns true. It returns a NotFound error when the object is
// deleted.
func follow[O v1alpha1.UserObject](ctx context.Context, client Client[O], name string, met func(O) bool) (O, error) {
	for {
		object, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil || met(object) {
			return object, err
		}
		watcher := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			return client.Watch(ctx, options)
		}}
		_, err = watchtools.Until(ctx, object.GetResourceVersion(), watcher, func(event watch.Event) (bool, error) {
			if event.Type == watch.Error {
				return false, apierrors.FromObject(event.Object)
			}
			changed, ok := event.Object.(O)
			if !ok {
				return false, fmt.Errorf("the API server sent a %T", event.Object)
			}
			object = changed
			if event.Type == watch.Deleted {
				return false, errDeleted
			}
			return met(object), nil
		})
		switch {
		case err == nil:
			return object, nil
		case ctx.Err() != nil:
			return object, fmt.Errorf("%w", context.Cause(ctx))
		case errors.Is(err, errDeleted), errors.Is(err, watchtools.ErrWatchClosed), apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			// Read it again: an object with the same name may exist again, and the watch may have missed changes.
		default:
			return object, fmt.Errorf("watch %s: %w", name, err)
		}
	}
}

var errDeleted = errors.New("deleted")
