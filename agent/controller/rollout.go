// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// assignment is what this node is to run of a user object.
type assignment struct {
	// owner is nil if there should be no programs on this node: the object doesn't exist, is being deleted, doesn't select
	// this node, or isn't rolled out to it yet.
	owner *program.Owner
	// version is the object in the revision of owner.
	version confirm.Version
	// governed means that a RolloutPolicy matches the object. Its nodes report a revision when it is confirmed.
	governed bool
	// previous means that the revision isn't the newest one.
	previous bool
	// held means that nothing changes until the operator has decided which nodes run the newest revision.
	held bool
}

// assigned returns what this node is to run of a user object.
func (r *Controller) assigned(key program.Key) (assignment, error) {
	// Any key in the queue means that there is, or was, an object of its kind.
	r.Cluster.Kinds.Open(v1alpha1.SchemeGroupVersion.WithKind(key.Kind))
	object, err := r.Cluster.UserObject(key.Kind, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return assignment{}, nil
	}
	if err != nil {
		return assignment{}, fmt.Errorf("get %s: %w", key, err)
	}
	if object.GetDeletionTimestamp() != nil {
		return assignment{}, nil
	}
	if reason := kinds.Undecodable(object); reason != "" {
		return assignment{}, &undecodableError{reason}
	}
	node, err := r.node()
	if err != nil {
		return assignment{}, err
	}
	selector, err := metav1.LabelSelectorAsSelector(&object.GetAppCommon().NodeSelector)
	if err != nil {
		return assignment{}, fmt.Errorf("%s: nodeselector: %w", key, err)
	}
	if !selector.Matches(labels.Set(node.Labels)) {
		return assignment{}, nil
	}
	governed, err := r.governed(key.Kind, object)
	if err != nil {
		return assignment{}, err
	}
	a, err := rollout.Assign(key.Kind, object, governed, r.NodeName, node.Labels)
	if err != nil {
		return assignment{}, err
	}
	if a.Held {
		confirmed := r.Changes.Confirmed(key, object.GetUID())
		if confirmed == nil {
			return assignment{held: true}, nil
		}
		if a.Object, err = confirmed.UserObject(); err != nil {
			return assignment{}, err
		}
		a.Previous = true
	}
	if a.Object == nil {
		return assignment{governed: governed}, nil
	}
	return assign(key, a.Object, node, assignment{governed: governed, previous: a.Previous})
}

// assign sets the owner and the version for an object.
func assign(key program.Key, object v1alpha1.UserObject, node *corev1.Node, a assignment) (assignment, error) {
	owner := program.OwnerOf(key.Kind, object)
	owner.Subject = policy.SubjectOf(key.Kind, object).On(node.Labels)
	a.owner = &owner
	var err error
	a.version, err = confirm.VersionOf(key.Kind, object)
	return a, err
}

// governed reports whether changes of an object are rolled out in steps. Without the kind, nothing is.
func (r *Controller) governed(kind string, object v1alpha1.UserObject) (bool, error) {
	if object.GetStatus().Rollout != nil {
		return true, nil
	}
	policies, err := r.Cluster.RolloutPolicies()
	unread := (*kinds.UnreadError)(nil)
	if errors.As(err, &unread) && (unread.Unused || unread.Err != nil) {
		err = nil
	}
	if err != nil {
		return false, fmt.Errorf("list RolloutPolicies: %w", err)
	}
	for _, p := range policies {
		if policy.CompileRollout(p).Matches(kind, object) {
			return true, nil
		}
	}
	return false, nil
}

// onRolloutPolicy enqueues the objects that a policy can affect.
func (r *Controller) onRolloutPolicy(all func()) toolscache.ResourceEventHandler {
	return handler[*v1alpha1.RolloutPolicy]{
		added: func(*v1alpha1.RolloutPolicy, bool) { all() },
		updated: func(before, now *v1alpha1.RolloutPolicy) {
			if !equality.Semantic.DeepEqual(before.Spec, now.Spec) {
				all()
			}
		},
		deleted: func(*v1alpha1.RolloutPolicy) { all() },
	}
}
