// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// TestRegistration makes the kubelet forget the plugin, which node-driver-registrar
// registered.
func TestRegistration(t *testing.T) {
	requireType(t, "Tracepoint")
	const space, mapName = "e2e-registration", "tracepoint_stats_map"
	program := tracepoint("e2e-registration")
	before := reader(space, "before", program.Name, mapName)
	feature(t,
		step{"by the sidecar", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, program)
			create(ctx, t, before)
			awaitReady(ctx, s, before)
			checkRegistered(ctx, s)
		}},
		step{"the sidecar's socket is removed", func(ctx context.Context, s *testing.T) {
			restarts := sidecarRestarts(ctx, s)
			loseRegistration(ctx, t, s, reader(space, "lost", program.Name, mapName))
			if after := sidecarRestarts(ctx, s); after != restarts {
				s.Errorf("the sidecar was restarted %d times, and %d before", after, restarts)
			}
		}},
		step{"the plugin's socket is removed", func(ctx context.Context, s *testing.T) {
			loseRegistration(ctx, t, s, reader(space, "lost-again", program.Name, mapName))
		}},
		step{"and taken back by the sidecar", func(ctx context.Context, s *testing.T) {
			killAndAwait(ctx, s, node.Registrar)
			checkRegistered(ctx, s)
			again := reader(space, "again", program.Name, mapName)
			create(ctx, t, again)
			awaitReady(ctx, s, again)
			for _, pod := range []*corev1.Pod{before, again} {
				awaitGrowth(ctx, s, pod, mapName, callKill)
			}
		}},
		step{"its restarts leave the mount table", func(ctx context.Context, s *testing.T) {
			if testing.Short() {
				s.Skip("takes minutes")
			}
			restart(ctx, s, node.Registrar)
			checkRegistered(ctx, s)
		}},
	)
}

// registrationSocket is the path of the plugin's registration socket in the plugin's
// container.
const registrationSocket = "/registration/" + v1alpha1.CSIDriverName + "-reg.sock"

// loseRegistration removes the plugin's registration socket on each node, so that the kubelet
// forgets the plugin. The plugin is registered again, and a new pod gets its volume.
func loseRegistration(ctx context.Context, test, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	before := map[string]string{}
	for _, name := range under.nodes() {
		before[name] = csiNode(ctx, t, name).ResourceVersion
		if _, err := ask[any](ctx, name, "remove", node.CSI, registrationSocket); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range under.nodes() {
		await(ctx, t, "the kubelet of node "+name+" has forgotten the driver", func(ctx context.Context) (bool, string) {
			n := csiNode(ctx, t, name)
			return n.ResourceVersion != before[name], fmt.Sprint(n.Spec.Drivers)
		})
	}
	checkRegistered(ctx, t)
	create(ctx, test, pod)
	awaitReady(ctx, t, pod)
}

func csiNode(ctx context.Context, t *testing.T, name string) *storagev1.CSINode {
	t.Helper()
	n := &storagev1.CSINode{}
	must.Succeed(t, under.Get(ctx, types.NamespacedName{Name: name}, n))
	return n
}

// sidecarRestarts returns the number of restarts of all sidecars.
func sidecarRestarts(ctx context.Context, t *testing.T) (restarts int32) {
	t.Helper()
	var pods corev1.PodList
	must.Succeed(t, under.List(ctx, &pods, client.InNamespace(bpfmanSpace), client.MatchingLabels{"name": "bpfman-daemon"}))
	for i := range pods.Items {
		if status := registrarOf(&pods.Items[i]); status != nil {
			restarts += status.RestartCount
		}
	}
	return restarts
}

// registrarOf returns the status of the sidecar in a node pod, or nil if there is none.
func registrarOf(pod *corev1.Pod) *corev1.ContainerStatus {
	at := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == "node-driver-registrar" })
	if at < 0 {
		return nil
	}
	return &pod.Status.ContainerStatuses[at]
}

// checkRegistered checks that the kubelets have added the plugin to their CSINodes.
func checkRegistered(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, name := range under.nodes() {
		await(ctx, t, "node "+name+" has the CSI driver", func(ctx context.Context) (bool, string) {
			var n storagev1.CSINode
			err := under.Get(ctx, types.NamespacedName{Name: name}, &n)
			return err == nil && slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
				return d.Name == v1alpha1.CSIDriverName && d.NodeID == name
			}), fmt.Sprint(n.Spec.Drivers, err)
		})
	}
}
