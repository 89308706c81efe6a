// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package takeover

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lease reports which operator this one is waiting for, unless it is one of its own replicas. Upstream's operator
// uses the same Lease. As long as upstream's operator holds it, this operator does nothing.
type Lease struct {
	// Live reads from the API server.
	Live      client.Reader
	Announcer *Announcer
	Lease     types.NamespacedName
	// Poll is the interval between checks.
	Poll time.Duration
	// elected is closed when this operator becomes the leader.
	elected <-chan struct{}
}

// SetupWithManager makes it check while the operator is waiting.
func (l *Lease) SetupWithManager(mgr ctrl.Manager) error {
	l.elected = mgr.Elected()
	return mgr.Add(l)
}

// NeedLeaderElection returns false, because it has to run on operators that aren't elected.
func (l *Lease) NeedLeaderElection() bool { return false }

// Start checks the Lease until this operator becomes the leader.
func (l *Lease) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.elected:
			cancel()
		case <-ctx.Done():
		}
	}()
	// Delay the first check: if this operator replaces another one, that one is about to end.
	err := wait.PollUntilContextCancel(ctx, l.Poll, false, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		note, err := l.rival(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			ctrl.LoggerFrom(ctx).Error(err, "Failed to find the current leader")
		case note != "":
			l.Announcer.AnotherOperator(ctx, note)
		}
		return false, nil
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// rival describes the leader, if it is a pod that doesn't belong to this operator.
func (l *Lease) rival(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := l.Live.Get(ctx, l.Lease, lease); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", nil
	}
	// The identity consists of the pod's name and a random part.
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := l.Live.List(ctx, pods, client.InNamespace(l.Lease.Namespace), client.MatchingFields{"metadata.name": name}); err != nil {
		return "", fmt.Errorf("look for pod %s, which holds Lease %s: %w", name, l.Lease.Name, err)
	}
	// If the holder has ended, or is about to, the Lease becomes free soon.
	if len(pods.Items) == 0 || pods.Items[0].DeletionTimestamp != nil || pods.Items[0].Labels[PartOfLabel] == partOf {
		return "", nil
	}
	return fmt.Sprintf("This operator is waiting, because pod %s of another operator holds the Lease %s", name, l.Lease.Name), nil
}
