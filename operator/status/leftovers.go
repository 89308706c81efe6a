// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

// Leftovers deletes the BpfPrograms of deleted nodes, because these no longer have an agent.
type Leftovers struct {
	Client  client.Client
	Reports *reports.Store
	// Live reads from the API server, because the cache can contain the program of a node before the node.
	Live client.Reader
}

// collectTimeout bounds one reconciliation, which deletes the programs of a node.
const collectTimeout = time.Minute

// SetupWithManager watches the deletion of nodes. It also watches programs, because a node can be deleted during
// an interruption of the watch.
func (l *Leftovers) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("leftovers").
		Watches(&corev1.Node{}, handler.Funcs{
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q requests) { q.Add(nodeRequest(e.Object.GetName())) },
		})
	return b.WatchesRawSource(reports.Source(l.Reports, func(c reports.Change, q requests) {
		if c.Before == nil && nodeOf(c.After) != "" {
			q.Add(nodeRequest(nodeOf(c.After)))
		}
	})).Complete(l)
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

func nodeRequest(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// nodeOf returns the name of the report's node, or "" if it isn't known.
func nodeOf(report *reports.Report) string {
	node := report.Node.Value()
	return cmp.Or(node.Name, v1alpha1.NodeOfLabel(node.Label))
}

// Reconcile deletes the programs of a node if the node doesn't exist.
func (l *Leftovers) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	for _, reader := range []client.Reader{l.Client, l.Live} {
		node := client.Object(&corev1.Node{})
		if reader == l.Live {
			node = &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		}
		err := reader.Get(ctx, request.NamespacedName, node)
		if err == nil {
			return reconcile.Result{}, nil
		}
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("get node %s: %w", request.Name, err)
		}
	}
	of, unread := l.Reports.Of(v1alpha1.LabelValue(request.Name))
	errs := []error{unread}
	for _, report := range of {
		errs = append(errs, l.remove(ctx, report, request.Name))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// remove deletes a report of a deleted node.
func (l *Leftovers) remove(ctx context.Context, report *reports.Report, node string) error {
	kind := report.Kind()
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: report.Namespace(), Name: report.Name}}
	object.SetGroupVersionKind(kind.GroupVersionKind())
	if err := l.Client.Delete(ctx, object, client.Preconditions{UID: &report.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s %s of deleted node %s: %w", kind.Name, report.Name, node, err)
	}
	return nil
}
