// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// Keys of the ConfigMap about how the kubelet learns of the CSI plugin.
const (
	keyRegistration   = "bpfman.csi.registration"
	keyRegistrarImage = "bpfman.csi.registrar.image"
)

// probed is when the sidecar's liveness probe has failed if it does.
const probed = 2 * time.Minute

// TestRegistration has the kubelet learn of the plugin in both ways, by the sidecar and by
// the plugin itself, from one to the other and back.
func TestRegistration(t *testing.T) {
	requireType(t, "Tracepoint")
	const space, mapName = "e2e-registration", "tracepoint_stats_map"
	program := tracepoint("e2e-registration")
	before := reader(space, "before", program.Name, mapName)
	sidecar, itself := reader(space, "sidecar", program.Name, mapName), reader(space, "itself", program.Name, mapName)
	bySidecar := func(pod *corev1.Pod) bool { return registrarOf(pod) != nil }
	byItself := func(pod *corev1.Pod) bool { return registrarOf(pod) == nil }
	var components corev1.PodList
	feature(t,
		step{"by the sidecar", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, program)
			create(ctx, t, before)
			awaitReady(ctx, s, before)
			if err := under.List(ctx, &components, client.InNamespace(bpfmanSpace), client.MatchingLabels{"name": "bpfman-daemon"}); err != nil {
				s.Fatal(err)
			}
			was := byItself
			if bySidecar(&components.Items[0]) {
				was = bySidecar
			}
			configure(ctx, t, s, map[string]string{keyRegistration: "sidecar", keyRegistrarImage: settings.registrar}, bySidecar, was)
			create(ctx, t, sidecar)
			awaitReady(ctx, s, sidecar)
			awaitGrowth(ctx, s, sidecar, mapName, callKill)
			awaitGrowth(ctx, s, before, mapName, callKill)
			checkRegistered(ctx, s)
		}},
		step{"its probe is content", func(ctx context.Context, s *testing.T) {
			if testing.Short() {
				s.Skip("takes minutes")
			}
			awaitFor(ctx, s, probed+recovery, "the sidecar has run long enough to be probed", func(ctx context.Context) (bool, string) {
				if err := under.List(ctx, &components, client.InNamespace(bpfmanSpace), client.MatchingLabels{"name": "bpfman-daemon"}); err != nil {
					return false, err.Error()
				}
				long := true
				for i := range components.Items {
					status := registrarOf(&components.Items[i])
					if status == nil || status.RestartCount > 0 {
						s.Fatalf("the sidecar was restarted: %+v", status)
					}
					long = long && status.State.Running != nil && time.Since(status.State.Running.StartedAt.Time) > probed
				}
				return long, fmt.Sprint(len(components.Items))
			})
		}},
		step{"its restarts leave the mount table", func(ctx context.Context, s *testing.T) {
			if testing.Short() {
				s.Skip("takes minutes")
			}
			restart(ctx, s, node.Registrar)
			checkRegistered(ctx, s)
		}},
		step{"by the plugin itself", func(ctx context.Context, s *testing.T) {
			configure(ctx, t, s, map[string]string{keyRegistration: "self"}, byItself, bySidecar)
			create(ctx, t, itself)
			awaitReady(ctx, s, itself)
			for _, pod := range []*corev1.Pod{before, sidecar, itself} {
				awaitGrowth(ctx, s, pod, mapName, callKill)
			}
			checkRegistered(ctx, s)
		}},
	)
}

// registrarOf is the state of the sidecar in a pod of the node components, nil where there
// is none.
func registrarOf(pod *corev1.Pod) *corev1.ContainerStatus {
	at := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == "node-driver-registrar" })
	if at < 0 {
		return nil
	}
	return &pod.Status.ContainerStatuses[at]
}

// checkRegistered checks that the kubelets have told the cluster of the plugin.
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
