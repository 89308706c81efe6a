// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/kinds"
)

// Leftovers deletes the BpfPrograms of nodes that are gone: no agent is left to do it.
type Leftovers struct {
	Client client.Client
	// Live reads from the API server: the cache may hold the program of a node that it doesn't know yet.
	Live client.Reader
}

// collectTimeout bounds one pass over the programs of a node.
const collectTimeout = time.Minute

// SetupWithManager watches nodes that go, and programs in case their node went while nobody watched.
func (l *Leftovers) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("leftovers").
		Watches(&corev1.Node{}, handler.Funcs{
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q requests) { q.Add(nodeRequest(e.Object.GetName())) },
		})
	for _, kind := range v1alpha1.ProgramKinds {
		watched := source.Kind(mgr.GetCache(), client.Object(kind.New()), handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q requests) {
				if program, ok := e.Object.(v1alpha1.ProgramObject); ok && nodeOf(program) != "" {
					q.Add(nodeRequest(nodeOf(program)))
				}
			},
		})
		b.WatchesRawSource(kinds.Source(watched))
	}
	return b.Complete(l)
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

func nodeRequest(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// nodeOf is the name of the program's node, "" where it can't be told. A label of this length is the name itself: the
// hash of a longer name leaves more.
func nodeOf(program v1alpha1.ProgramObject) string {
	const surelyName = 50
	if node := program.GetStatus().Node; node != "" {
		return node
	}
	if label := nodeKey(program); len(label) <= surelyName {
		return label
	}
	return ""
}

// Reconcile looks whether a node is there, and deletes its programs where it isn't.
func (l *Leftovers) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	for _, reader := range []client.Reader{l.Client, l.Live} {
		node := client.Object(&corev1.Node{})
		if reader == l.Live {
			node = &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		}
		if err := reader.Get(ctx, request.NamespacedName, node); !apierrors.IsNotFound(err) {
			return reconcile.Result{}, err
		}
	}
	var errs []error
	for _, kind := range v1alpha1.ProgramKinds {
		errs = append(errs, l.collect(ctx, kind, request.Name))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// collect deletes the programs of that kind of a node that is gone.
func (l *Leftovers) collect(ctx context.Context, kind v1alpha1.Kind[v1alpha1.ProgramObject], node string) error {
	list, ok := kind.NewList().(client.ObjectList)
	if !ok {
		return fmt.Errorf("%T is no list", kind.NewList())
	}
	if err := l.Client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelHostname: v1alpha1.LabelValue(node)}); err != nil {
		return fmt.Errorf("list %ss of node %s: %w", kind.Name, node, err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		program, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", item)
		}
		if err := l.Client.Delete(ctx, program, client.Preconditions{UID: new(program.GetUID())}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s of node %s, which is gone: %w", kind.Name, program.GetName(), node, err)
		}
		return nil
	})
}
