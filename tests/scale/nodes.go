// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
)

// writers is the number of concurrent requests while the benchmark fills the cluster.
const writers = 8

// poolLabel selects all nodes of the benchmark.
var poolLabel = map[string]string{"pool": "scale"}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// startKwok starts kwok, which simulates the kubelets: nodes become ready, and their pods run. It renews no
// Leases, because their cost isn't bpfman's. With 5,000 nodes, there would be 500 writes per second.
func startKwok(c *controlPlane, path, stages string) (*component, error) {
	kubeconfig, err := c.kubeconfig("kwok", c.admin)
	if err != nil {
		return nil, err
	}
	args := []string{"--kubeconfig", kubeconfig, "--manage-all-nodes", "--node-lease-duration-seconds", "0"}
	for _, stage := range []string{"node/fast/node-initialize.yaml", "pod/fast/pod-ready.yaml", "pod/fast/pod-delete.yaml"} {
		args = append(args, "--config", filepath.Join(stages, stage))
	}
	return startComponent(c.dir, path, nil, args...)
}

// addNodes adds the nodes from first to last, each with its pod of the operator's DaemonSet, and waits until they
// run.
func addNodes(ctx context.Context, c *controlPlane, first, last int) error {
	var set appsv1.DaemonSet
	key := client.ObjectKey{Namespace: namespace, Name: deploy.DaemonSetName}
	err := poll(ctx, "the operator's DaemonSet", time.Minute, func(ctx context.Context) (bool, error) {
		err := c.client.Get(ctx, key, &set)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	adding, addCtx := errgroup.WithContext(ctx)
	adding.SetLimit(writers)
	for i := first; i < last; i++ {
		adding.Go(func() error { return addNode(addCtx, c, &set, nodeName(i)) })
	}
	if err := adding.Wait(); err != nil {
		return err
	}
	return poll(ctx, "the agents' pods to run", 10*time.Minute, func(ctx context.Context) (bool, error) {
		pods := &metav1.PartialObjectMetadataList{}
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := c.client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(deploy.PodLabels()),
			client.MatchingFields{"status.phase": string(corev1.PodRunning)})
		return len(pods.Items) >= last, err
	})
}

// addNode also simulates the DaemonSet controller.
func addNode(ctx context.Context, c *controlPlane, set *appsv1.DaemonSet, name string) error {
	labels := map[string]string{v1alpha1.LabelHostname: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
	maps.Copy(labels, poolLabel)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := c.client.Create(ctx, node); err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.Spec.NodeName = namespace, deploy.DaemonSetName+"-"+name, name
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	if err := c.client.Create(ctx, pod); err != nil {
		return fmt.Errorf("create the agent's pod of node %s: %w", name, err)
	}
	return nil
}
