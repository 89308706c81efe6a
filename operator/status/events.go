// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

// queue contains the user objects whose status can have changed.
type queue = workqueue.TypedRateLimitingInterface[Ref]

// handle returns a handler with two functions that change the index.
func handle[O client.Object](set, remove func(O, queue)) handler.TypedEventHandler[client.Object, Ref] {
	return handler.TypedFuncs[client.Object, Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) {
			if o, ok := e.Object.(O); ok {
				set(o, q)
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			before, wasO := e.ObjectOld.(O)
			after, isO := e.ObjectNew.(O)
			if !wasO || !isO {
				return
			}
			// After an interrupted watch, a deletion and recreation arrives as one update.
			if before.GetUID() != after.GetUID() {
				remove(before, q)
			}
			set(after, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) {
			if o, ok := e.Object.(O); ok {
				remove(o, q)
			}
		},
	}
}

func enqueue(q queue, refs []Ref) {
	for _, ref := range refs {
		q.Add(ref)
	}
}

func (r *Reconciler) ownerEvents(kind string) handler.TypedEventHandler[client.Object, Ref] {
	return handle(
		func(o v1alpha1.UserObject, q queue) {
			ref := Ref{Kind: kind, NamespacedName: client.ObjectKeyFromObject(o)}
			r.index.SetOwner(ref, o.GetUID(), ownerOf(kind, o, r.index.ownerOf(o.GetUID())))
			// Reconcile after any change: if the status changed, another client can have written it.
			q.Add(ref)
		},
		func(o v1alpha1.UserObject, _ queue) {
			r.index.DeleteOwner(o.GetUID())
			r.forgetNote(o.GetUID())
		},
	)
}

// ownerOf returns what the index needs to know about an object. Before is what it knew, so that the selector is compiled once:
// with hundreds of thousands of values, that takes longer than the events of other objects of the kind can wait.
func ownerOf(kind string, o v1alpha1.UserObject, before Owner) Owner {
	owner := Owner{Generation: o.GetGeneration(), Deleting: !o.GetDeletionTimestamp().IsZero(), Programs: 1, Undecodable: kinds.Undecodable(o)}
	if owner.Undecodable != "" {
		return owner
	}
	members, _ := o.Members()
	owner.Programs = len(members)
	common := o.GetAppCommon()
	if before.Generation == owner.Generation && before.Undecodable == "" {
		owner.Selector, owner.Invalid = before.Selector, before.Invalid
	} else if compiled, err := newSelector(&common.NodeSelector); err != nil {
		owner.Invalid = err.Error()
	} else {
		owner.Selector = compiled
	}
	if owner.Invalid != "" {
		return owner
	}
	owner.Rollout = o.GetStatus().Rollout.DeepCopy()
	if owner.Rollout != nil && owner.Rollout.Previous != nil {
		if previous, err := rollout.Parse(owner.Rollout.Previous.Object.Raw); err == nil {
			owner.Before, owner.ProgramsBefore = previous.Metadata.Generation, owner.Programs
			if was, err := previous.Object(kind); err == nil {
				members, _ := was.Members()
				owner.ProgramsBefore = len(members)
			}
		}
	}
	return owner
}

func (r *Reconciler) onReport(c reports.Change, q queue) {
	if before := c.Before; before != nil && (c.After == nil || before.Owner != c.After.Owner || before.Node.Value().Label != c.After.Node.Value().Label) {
		enqueue(q, r.index.DeleteReport(before))
		r.deleted(before)
	}
	if c.After != nil {
		enqueue(q, r.index.SetReport(c.After))
		if c.After.Foreign {
			r.Agents.Relist(c.After.Node.Value().Label)
		}
	}
}

// deleted notifies the agent of a node that a report was deleted, unless the agent creates another one.
// Agents don't notice what other clients delete.
func (r *Reconciler) deleted(p *reports.Report) {
	if !r.index.Misses(p) {
		return
	}
	r.Clock.AfterFunc(replacedWithin, func() {
		if r.index.Misses(p) {
			r.Agents.Relist(p.Node.Value().Label)
		}
	})
}

func (r *Reconciler) nodeEvents() handler.TypedEventHandler[client.Object, Ref] {
	return handle(
		func(node *corev1.Node, q queue) {
			enqueue(q, r.index.SetNode(node.Name, node.Labels, reachable(node)))
			ready := corev1.NodeCondition{}
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady {
					ready = c
				}
			}
			unready := unreadySince(ready.Status == corev1.ConditionTrue, ready.LastTransitionTime, node.CreationTimestamp)
			enqueue(q, r.index.SetReadiness(node.Name, "", unready, time.Time{}))
		},
		func(node *corev1.Node, q queue) { enqueue(q, r.index.DeleteNode(node.Name)) },
	)
}

// reachable returns false if the cluster considers the node unreachable. It can't do anything soon.
func reachable(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	return true
}

// isAgent reports whether a pod runs an agent on a node, or is about to. After an eviction, for example, a Pod still exists
// for some time.
func isAgent(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

func (r *Reconciler) podEvents() handler.TypedEventHandler[client.Object, Ref] {
	gone := func(pod *corev1.Pod, q queue) {
		if pod.Spec.NodeName != "" && r.index.RemoveAgent(pod.Spec.NodeName, pod.UID) {
			r.Clock.AfterFunc(agentGrace, func() { enqueue(q, r.index.SettleAgent(pod.Spec.NodeName, pod.UID)) })
		}
	}
	return handle(
		func(pod *corev1.Pod, q queue) {
			switch {
			case pod.Spec.NodeName == "":
			case !isAgent(pod):
				gone(pod, q)
			default:
				enqueue(q, r.index.AddAgent(pod.Spec.NodeName, pod.UID))
				ready := corev1.PodCondition{}
				for _, c := range pod.Status.Conditions {
					if c.Type == corev1.PodReady {
						ready = c
					}
				}
				unready := unreadySince(ready.Status == corev1.ConditionTrue, ready.LastTransitionTime, pod.CreationTimestamp)
				enqueue(q, r.index.SetReadiness(pod.Spec.NodeName, pod.UID, unready, terminatedAt(pod)))
			}
		},
		gone,
	)
}
