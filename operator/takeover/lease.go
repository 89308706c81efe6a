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

// Lease says for whom this operator waits, where that is none of its own replicas: upstream's operator takes the same
// Lease, and as long as it holds it, nothing of this operator works.
type Lease struct {
	// Live reads from the API server.
	Live      client.Reader
	Announcer *Announcer
	Lease     types.NamespacedName
	// Poll is how often it looks.
	Poll time.Duration
	// elected is closed once this operator leads.
	elected <-chan struct{}
}

// SetupWithManager has it look while the operator waits.
func (l *Lease) SetupWithManager(mgr ctrl.Manager) error {
	l.elected = mgr.Elected()
	return mgr.Add(l)
}

// NeedLeaderElection is false: it works for those who aren't elected.
func (l *Lease) NeedLeaderElection() bool { return false }

// Start looks until this operator leads.
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
	// The first look is late: where this operator takes another's place, that one is about to end.
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

// rival says who leads, if it is a pod that isn't of this operator.
func (l *Lease) rival(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := l.Live.Get(ctx, l.Lease, lease); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", nil
	}
	// The identity is the pod's name and a random part.
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := l.Live.List(ctx, pods, client.InNamespace(l.Lease.Namespace), client.MatchingFields{"metadata.name": name}); err != nil {
		return "", fmt.Errorf("look for pod %s, which holds Lease %s: %w", name, l.Lease.Name, err)
	}
	// A lead whose holder has ended, or is about to, passes on.
	if len(pods.Items) == 0 || pods.Items[0].DeletionTimestamp != nil || pods.Items[0].Labels[partOfLabel] == partOf {
		return "", nil
	}
	return fmt.Sprintf("This operator is waiting, because pod %s of another operator holds the Lease %s", name, l.Lease.Name), nil
}
