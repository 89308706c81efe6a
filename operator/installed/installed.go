// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package installed checks an installation. `helm test` runs it.
package installed

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"

	"github.com/bpfman/bpfman-operator/operator/deploy"
)

// DeploymentName is the name of the operator's Deployment.
const DeploymentName = "bpfman-operator"

const interval = time.Second

// Await waits until the operator and the node components in the namespace are available in their current version.
// If ctx ends before that, the error lists what isn't available.
func Await(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string) error {
	var missing error
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		found := check(ctx, client, namespace)
		// If the deadline ended the request, the previous error is more useful.
		if missing == nil || ctx.Err() == nil {
			missing = found
		}
		return found == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("bpfman isn't ready in namespace %s: %w", namespace, err), missing)
	}
	return nil
}

func check(ctx context.Context, client typedappsv1.AppsV1Interface, namespace string) error {
	deployment, err := client.Deployments(namespace).Get(ctx, DeploymentName, metav1.GetOptions{})
	if err != nil {
		return absent("Deployment", DeploymentName, err)
	}
	if err := deploymentReady(deployment); err != nil {
		return err
	}
	daemonSet, err := client.DaemonSets(namespace).Get(ctx, deploy.DaemonSetName, metav1.GetOptions{})
	if err != nil {
		return absent("DaemonSet", deploy.DaemonSetName, err)
	}
	return daemonSetReady(daemonSet)
}

func absent(kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no %s %s", kind, name)
	}
	return fmt.Errorf("get %s %s: %w", kind, name, err)
}

func deploymentReady(d *appsv1.Deployment) error {
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return fmt.Errorf("the last change of Deployment %s isn't rolled out", d.Name)
	case wanted == 0:
		return fmt.Errorf("the Deployment %s is scaled to 0 replicas", d.Name)
	case min(s.UpdatedReplicas, s.AvailableReplicas) < wanted:
		return fmt.Errorf("the Deployment %s has %d of %d replicas available, %d of them up to date", d.Name, s.AvailableReplicas, wanted, s.UpdatedReplicas)
	}
	return nil
}

func daemonSetReady(d *appsv1.DaemonSet) error {
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return fmt.Errorf("the last change of DaemonSet %s isn't rolled out", d.Name)
	case s.DesiredNumberScheduled == 0:
		return fmt.Errorf("the DaemonSet %s selects no node", d.Name)
	case min(s.UpdatedNumberScheduled, s.NumberAvailable) < s.DesiredNumberScheduled:
		return fmt.Errorf("the DaemonSet %s is available on %d of %d nodes, and up to date on %d", d.Name, s.NumberAvailable, s.DesiredNumberScheduled, s.UpdatedNumberScheduled)
	}
	return nil
}
