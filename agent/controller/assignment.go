// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/record"
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
	// since is what the events about the object ask of the node's state: see change.
	since *since
	// starting are the starts that wait for the pass. It can be nil.
	starting *pass
}

// assignments determine what this node is to run.
type assignments struct {
	cluster  *cluster.Cluster
	nodeName string
	reports  *record.Reports
	changes  *confirm.Changes
	novel    *novelties
}

// of returns what this node is to run of a user object.
func (a assignments) of(ctx context.Context, key program.Key) (assignment, error) {
	// Any key in the queue means that there is, or was, an object of its kind.
	a.cluster.Kinds.Open(v1alpha1.SchemeGroupVersion.WithKind(key.Kind))
	object, err := a.cluster.UserObject(key.Kind, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		a.novel.forget(key)
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
	node, err := a.cluster.OwnNode()
	if err != nil {
		return assignment{}, err
	}
	common := object.GetAppCommon()
	selector, err := metav1.LabelSelectorAsSelector(&common.NodeSelector)
	if err != nil {
		return assignment{}, fmt.Errorf("%s: nodeselector: %w", key, err)
	}
	if !selector.Matches(labels.Set(node.Labels)) {
		return assignment{}, nil
	}
	governed, err := a.governed(ctx, key, object)
	if err != nil {
		return assignment{}, err
	}
	staged := governed == rollout.Staged || object.GetStatus().Rollout != nil
	assigned, err := rollout.Assign(key.Kind, object, governed, a.nodeName, node.Labels)
	if err != nil {
		return assignment{}, err
	}
	if assigned.Held {
		confirmed := a.changes.Confirmed(key, object.GetUID())
		if confirmed == nil {
			return assignment{held: true}, nil
		}
		// A later version can have been tried, and have failed. After a reboot, nothing of the object runs then.
		if runs, err := a.isReported(key, confirmed); err != nil || !runs {
			return assignment{held: true}, err
		}
		if assigned.Object, err = confirmed.UserObject(); err != nil {
			return assignment{}, err
		}
		assigned.Previous = true
	}
	if assigned.Object == nil {
		return assignment{governed: staged}, nil
	}
	return assign(key, assigned.Object, node, assignment{governed: staged, previous: assigned.Previous})
}

// isReported reports whether the reports of this node are about a version.
func (a assignments) isReported(key program.Key, version *confirm.Version) (bool, error) {
	if len(a.reports.InDoubt(key)) > 0 {
		return false, nil
	}
	reports, err := a.reports.Of(key)
	generation := version.Generation()
	for _, r := range reports {
		if r.GetStatus().OwnerGeneration != generation {
			return false, nil
		}
	}
	return len(reports) > 0, err
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

// governed returns whether changes of an object are rolled out in steps.
func (a assignments) governed(ctx context.Context, key program.Key, object v1alpha1.UserObject) (rollout.Governed, error) {
	if err := a.awaitPolicies(ctx, key, object); err != nil {
		return rollout.Unknown, err
	}
	policies, err := a.cluster.RolloutPolicies()
	unread := (*kinds.UnreadError)(nil)
	switch {
	case errors.As(err, &unread) && object.GetStatus().Rollout != nil:
		return rollout.Unknown, nil // a policy matched the object when the status was written
	case errors.As(err, &unread) && (unread.Unused || apierrors.IsNotFound(unread.Err)):
		return rollout.Free, nil // there is no policy, or not even their definition
	case err != nil:
		return rollout.Unknown, fmt.Errorf("list RolloutPolicies: %w", err)
	}
	for _, p := range policies {
		if policy.CompileRollout(p).Matches(key.Kind, object) {
			return rollout.Staged, nil
		}
	}
	return rollout.Free, nil
}

// awaitPolicies returns an error until this node knows the policies that were applied together with a revision. An agent
// that doesn't watch RolloutPolicies, because there were none, looks for the first one. If it can't, there could be one.
func (a assignments) awaitPolicies(ctx context.Context, key program.Key, object v1alpha1.UserObject) error {
	if object.GetStatus().Rollout != nil {
		return nil
	}
	since, settled := a.novel.since(key, object)
	if settled {
		return nil
	}
	if time.Since(since) < together {
		return &waitingError{together - time.Since(since)}
	}
	of := v1alpha1.RolloutPolicyKind
	if err := a.cluster.Kinds.Look(ctx, of.GroupVersionKind(), of.Resource(), since.Add(together)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s is new to this node, and waits until it is known whether a RolloutPolicy matches it: %w", key, err)
	}
	a.novel.settle(key)
	return nil
}

// undecodableError is the error of reading an object that can't be decoded.
type undecodableError struct{ reason string }

func (e *undecodableError) Error() string { return "the object can't be decoded: " + e.reason }
