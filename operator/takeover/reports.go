// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

const (
	// rollPoll is the interval between checks whether upstream's agent still runs on a node. There is no hurry,
	// because reports block nothing.
	rollPoll = 2 * time.Second
	// collectTimeout bounds one reconciliation, which deletes the reports of a node.
	collectTimeout = time.Minute
)

// Reports deletes the BpfPrograms and BpfNsPrograms that upstream's agents wrote, node by node. A report stays as
// long as upstream's agent runs on its node, because that agent would unload the program when its report is
// deleted.
type Reports struct {
	Client  client.Client
	Reports *reports.Store
	// Live reads from the API server what the cache doesn't contain.
	Live      client.Reader
	Announcer *Announcer
	// Namespace is the namespace of the node components. AgentLabels select this operator's node pods, and
	// upstream's.
	Namespace   string
	AgentLabels map[string]string
}

// SetupWithManager watches reports that this project's agents didn't write.
func (r *Reports) SetupWithManager(mgr ctrl.Manager) error {
	foreign := func(c reports.Change, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if c.After != nil && c.After.State.Value().Kind == "" {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: c.After.Node.Value().Label}})
		}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("takeover-reports").
		WatchesRawSource(reports.Source(r.Reports, foreign)).
		Complete(r)
}

// Reconcile deletes the reports of one node, when upstream's agent no longer runs there.
func (r *Reports) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	node := request.Name
	runs, err := r.AgentRuns(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	if runs {
		return reconcile.Result{RequeueAfter: rollPoll}, nil
	}
	collected := 0
	var errs []error
	for _, kind := range v1alpha1.ProgramKinds {
		n, err := r.collect(ctx, kind, node)
		collected += n
		errs = append(errs, err)
	}
	if collected > 0 {
		r.Announcer.TakenOver(ctx, fmt.Sprintf("Deleted %d reports of upstream's agent on node %s", collected, node))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// AgentRuns reports whether a pod of upstream's DaemonSet is on a node. Such a pod lacks a label that this
// operator's pods have.
func (r *Reports) AgentRuns(ctx context.Context, node string) (bool, error) {
	selector, err := lacking(PartOfLabel, r.AgentLabels)
	if err != nil {
		return false, fmt.Errorf("select upstream's pods: %w", err)
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err = r.Live.List(ctx, pods, client.InNamespace(r.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		return false, fmt.Errorf("list pods of upstream's agent on node %s: %w", node, err)
	}
	return len(pods.Items) > 0, nil
}

// collect deletes the reports of a kind that upstream's agent wrote on a node, and returns their number.
func (r *Reports) collect(ctx context.Context, kind v1alpha1.Kind[v1alpha1.ProgramObject], node string) (int, error) {
	// The cache doesn't contain annotations. They identify reports whose finalizers were removed manually.
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind.Name + "List"))
	selector, err := lacking(v1alpha1.LabelOwnerKind, map[string]string{v1alpha1.LabelHostname: node})
	if err != nil {
		return 0, fmt.Errorf("select upstream's reports: %w", err)
	}
	err = r.Live.List(ctx, list, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return 0, fmt.Errorf("list %ss of upstream's agent on node %s: %w", kind.Name, node, err)
	}
	collected := 0
	var errs []error
	err = meta.EachListItem(list, func(item runtime.Object) error {
		report, ok := item.(*metav1.PartialObjectMetadata)
		if !ok || !IsReport(report) {
			return nil
		}
		report.SetGroupVersionKind(kind.GroupVersionKind())
		collected++
		errs = append(errs, r.delete(ctx, report))
		return nil
	})
	return collected, errors.Join(append(errs, err)...)
}

func (r *Reports) delete(ctx context.Context, report *metav1.PartialObjectMetadata) error {
	if _, err := RemoveFinalizers(ctx, r.Client, report); err != nil {
		return err
	}
	if err := r.Client.Delete(ctx, report, client.Preconditions{UID: new(report.GetUID())}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s %s of upstream's agent: %w", report.Kind, report.GetName(), err)
	}
	return nil
}

// lacking returns a selector for objects that have no label with the key, and have the other labels.
func lacking(key string, others labels.Set) (labels.Selector, error) {
	requirement, err := labels.NewRequirement(key, selection.DoesNotExist, nil)
	if err != nil {
		return nil, fmt.Errorf("label %s: %w", key, err)
	}
	selector, err := labels.ValidatedSelectorFromSet(others)
	if err != nil {
		return nil, fmt.Errorf("labels %v: %w", others, err)
	}
	return selector.Add(*requirement), nil
}
