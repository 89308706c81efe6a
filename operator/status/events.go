// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// queue takes the user objects whose status may have to change.
type queue = workqueue.TypedRateLimitingInterface[Ref]

// handle makes a handler of three functions that change the index.
func handle(set func(client.Object, queue), replaced func(old, new client.Object) bool, remove func(client.Object, queue)) handler.TypedEventHandler[client.Object, Ref] {
	return handler.TypedFuncs[client.Object, Ref]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { set(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			// After a lost watch, deleted and created anew arrives as one update.
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || replaced(e.ObjectOld, e.ObjectNew) {
				remove(e.ObjectOld, q)
			}
			set(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) { remove(e.Object, q) },
	}
}

func never(client.Object, client.Object) bool { return false }

func enqueue(q queue, refs []Ref) {
	for _, ref := range refs {
		q.Add(ref)
	}
}

func (r *Reconciler) ownerEvents(kind string) handler.TypedEventHandler[client.Object, Ref] {
	return handle(
		func(o client.Object, q queue) {
			ref := Ref{Kind: kind, NamespacedName: client.ObjectKeyFromObject(o)}
			r.index.SetOwner(ref, o.GetUID(), ownerOf(o.(v1alpha1.UserObject)))
			// Whatever changed: if it was the status, it may not be ours.
			q.Add(ref)
		},
		never,
		func(o client.Object, _ queue) {
			r.index.DeleteOwner(o.GetUID())
			r.forgetNote(o.GetUID())
		},
	)
}

func ownerOf(o v1alpha1.UserObject) Owner {
	owner := Owner{Generation: o.GetGeneration(), Deleting: !o.GetDeletionTimestamp().IsZero(), Programs: 1}
	switch o := o.(type) {
	case *v1alpha1.BpfApplication:
		owner.Programs = len(o.Spec.Programs)
	case *v1alpha1.BpfNsApplication:
		owner.Programs = len(o.Spec.Programs)
	}
	selector, err := metav1.LabelSelectorAsSelector(&o.GetAppCommon().NodeSelector)
	if err != nil {
		owner.Invalid = err.Error()
		return owner
	}
	owner.Selector = selector
	return owner
}

func (r *Reconciler) programEvents() handler.TypedEventHandler[client.Object, Ref] {
	return handle(
		func(o client.Object, q queue) {
			owner := metav1.GetControllerOf(o)
			if owner == nil {
				return
			}
			ref := Ref{Kind: owner.Kind, NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}
			enqueue(q, r.index.SetProgram(ref, owner.UID, nodeKey(o), programOf(o.(v1alpha1.ProgramObject))))
		},
		func(old, new client.Object) bool {
			return nodeKey(old) != nodeKey(new) || ownerUID(old) != ownerUID(new)
		},
		func(o client.Object, q queue) {
			enqueue(q, r.index.DeleteProgram(ownerUID(o), nodeKey(o), o.GetName()))
		},
	)
}

func nodeKey(o client.Object) string { return o.GetLabels()[v1alpha1.LabelHostname] }

func ownerUID(o client.Object) types.UID {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return owner.UID
	}
	return ""
}

func programOf(o v1alpha1.ProgramObject) Program {
	p := Program{Name: o.GetName(), Member: o.GetLabels()[v1alpha1.LabelAppProgramID], Generation: o.GetStatus().OwnerGeneration}
	if conditions := o.GetStatus().Conditions; len(conditions) > 0 {
		p.Condition, p.Message = v1alpha1.BpfProgramConditionType(conditions[0].Type), conditions[0].Message
	}
	return p
}

func (r *Reconciler) nodeEvents() handler.TypedEventHandler[client.Object, Ref] {
	return handle(
		func(o client.Object, q queue) {
			enqueue(q, r.index.SetNode(o.GetName(), o.GetLabels(), reachable(o.(*corev1.Node))))
		},
		never,
		func(o client.Object, q queue) { enqueue(q, r.index.DeleteNode(o.GetName())) },
	)
}

// reachable is false once the cluster has given the node up: nothing that it is asked to do will happen soon.
func reachable(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	return true
}

func (r *Reconciler) podEvents() handler.TypedEventHandler[client.Object, Ref] {
	gone := func(o client.Object, q queue) {
		pod := o.(*corev1.Pod)
		if pod.Spec.NodeName != "" && r.index.RemoveAgent(pod.Spec.NodeName, pod.UID) {
			r.Clock.AfterFunc(agentGrace, func() { enqueue(q, r.index.SettleAgent(pod.Spec.NodeName)) })
		}
	}
	return handle(
		func(o client.Object, q queue) {
			pod := o.(*corev1.Pod)
			switch {
			case pod.Spec.NodeName == "":
			case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
				// Evicted, say: the object stays for a while.
				gone(o, q)
			default:
				enqueue(q, r.index.AddAgent(pod.Spec.NodeName, pod.UID))
			}
		},
		never,
		gone,
	)
}
