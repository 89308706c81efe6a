// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/probe"
)

const (
	shippedPod    = "daemon-as-shipped"
	shippedConfig = "daemon-as-shipped"
	socketDir     = "/run/bpfman-sock"
	shippedSocket = socketDir + "/bpfman.sock"

	// shippedToml turns off the verification of signatures, because it downloads
	// Sigstore's keys at each Load. This is in upstream's favor.
	shippedToml = "[signing]\nverify_enabled = false\nallow_unsigned = true\n"
)

// startShipped starts a second daemon on the node, in a pod of its own, with the
// environment and the certificates that upstream's image has. It uses the image and the
// arguments of the cluster's daemon, and its own directories, so that the two don't meet.
func (h helper) startShipped(ctx context.Context, c client.Client, nodeName, probeImage string, bundle []byte) error {
	clusters, err := daemonContainer(ctx, c, nodeName)
	if err != nil {
		return err
	}
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: shippedConfig, Namespace: helperNamespace},
		Data:       map[string]string{"bpfman.toml": shippedToml, "ca.crt": string(bundle)},
	}
	for _, object := range []client.Object{settings, shippedDaemon(nodeName, clusters, probeImage)} {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T of the daemon as shipped: %w", object, err)
		}
	}
	return h.awaitReady(ctx, shippedPod)
}

func shippedDaemon(nodeName string, clusters corev1.Container, probeImage string) *corev1.Pod {
	privileged, grace := true, int64(0)
	inMemory := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}
	debug := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/sys/kernel/debug"}}
	settings := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: shippedConfig}}}
	socket := corev1.VolumeMount{Name: "socket", MountPath: socketDir}
	hostToContainer := corev1.MountPropagationHostToContainer
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: shippedPod, Namespace: helperNamespace},
		Spec: corev1.PodSpec{
			NodeName: nodeName,
			// Like the cluster's daemon, it finds registries in the node's way.
			HostNetwork:                   true,
			TerminationGracePeriodSeconds: &grace,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Volumes: []corev1.Volume{
				{Name: "socket", VolumeSource: inMemory},
				{Name: "state", VolumeSource: inMemory},
				{Name: "debug", VolumeSource: debug},
				{Name: "settings", VolumeSource: settings},
			},
			Containers: []corev1.Container{{
				Name:            "bpfman",
				Image:           clusters.Image,
				Args:            clusters.Args,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Env: []corev1.EnvVar{
					{Name: node.Beside, Value: "shipped"},
					{Name: "SSL_CERT_FILE", Value: "/etc/bench/ca.crt"},
					{Name: "KUBE_NODE_NAME", Value: nodeName}, // the arguments require it
				},
				SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
				VolumeMounts: []corev1.VolumeMount{
					socket,
					{Name: "state", MountPath: "/run/bpfman"},
					{Name: "debug", MountPath: "/sys/kernel/debug", MountPropagation: &hostToContainer},
					{Name: "settings", MountPath: "/etc/bpfman/bpfman.toml", SubPath: "bpfman.toml"},
					{Name: "settings", MountPath: "/etc/bench"},
				},
			}, {
				Name:            probe.Name,
				Image:           probeImage,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Args:            []string{"wait"},
				VolumeMounts:    []corev1.VolumeMount{socket},
			}},
		},
	}
}

// daemonContainer returns the container of the daemon on the node.
func daemonContainer(ctx context.Context, c client.Client, nodeName string) (corev1.Container, error) {
	pod, err := nodePod(ctx, c, nodeName)
	if err != nil {
		return corev1.Container{}, err
	}
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "bpfman" })
	if i < 0 {
		return corev1.Container{}, fmt.Errorf("pod %s has no container bpfman", pod.Name)
	}
	return pod.Spec.Containers[i], nil
}

// bundle returns the certificates that a distribution ships, and that of the registry.
func bundle(distribution, registry string) ([]byte, error) {
	certificates, err := os.ReadFile(distribution)
	if err != nil {
		return nil, fmt.Errorf("read the certificates of a distribution: %w", err)
	}
	if registry == "" {
		return certificates, nil
	}
	own, err := os.ReadFile(registry)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the registry: %w", err)
	}
	return slices.Concat(certificates, own), nil
}

var errNoNodePod = errors.New("no pod bpfman-daemon runs on the node")

// nodePod returns the running pod of the DaemonSet on a node.
func nodePod(ctx context.Context, c client.Client, nodeName string) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace("bpfman"), client.MatchingLabels{"name": "bpfman-daemon"}); err != nil {
		return nil, fmt.Errorf("list bpfman's pods: %w", err)
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == nodeName && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			return &pod, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", errNoNodePod, nodeName)
}
