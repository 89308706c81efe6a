// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/probe"
)

// keyClusterAccess is the key of the ConfigMap that decides which pods can mount the maps
// of cluster-scoped programs.
const keyClusterAccess = "bpfman.csi.cluster.access"

// TestClusterAccessByRBAC restricts cluster-scoped programs to pods whose ServiceAccount
// has the permission to use them. A pod without the permission waits, its Event names the
// missing permission, and it starts after getting the permission. Pods in other
// namespaces keep waiting. If all pods can read, those that only read start.
func TestClusterAccessByRBAC(t *testing.T) {
	requireType(t, "Tracepoint")
	const space, elsewhere, mapName = "e2e-rbac", "e2e-rbac-elsewhere", "tracepoint_stats_map"
	program := tracepoint("e2e-rbac")
	pod, other := reader(space, "reader", program.Name, mapName), reader(elsewhere, "reader", program.Name, mapName)
	writer := reader(elsewhere, "writer", program.Name, mapName)
	writer.Spec.Volumes[0].CSI.ReadOnly = new(bool)
	right := []string{"FailedMount", "PermissionDenied", `needs the verb "use" on tracepointprograms.bpfman.io "` + program.Name + `"`}
	feature(t,
		step{"a pod without the right waits, and is told", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			namespace(ctx, t, elsewhere)
			create(ctx, t, program)
			awaitSuccess(ctx, s, program)
			configure(ctx, t, s, map[string]string{keyClusterAccess: "rbac"}, hasFlag("cluster-access=rbac"), hasFlag("cluster-access=all"))
			create(ctx, t, pod)
			create(ctx, t, other)
			awaitEvent(ctx, s, pod, corev1.EventTypeWarning, append(right, "ServiceAccount "+space+"/default")...)
			awaitEvent(ctx, s, other, corev1.EventTypeWarning, append(right, "ServiceAccount "+elsewhere+"/default")...)
		}},
		step{"the right lets it start, and it alone", func(ctx context.Context, s *testing.T) {
			create(ctx, t, &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: space},
				Rules: []rbacv1.PolicyRule{{
					APIGroups: []string{v1alpha1.SchemeGroupVersion.Group}, Resources: []string{"tracepointprograms"},
					ResourceNames: []string{program.Name}, Verbs: []string{"use"},
				}},
			})
			create(ctx, t, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: space},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: space},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: space, Name: "default"}},
			})
			awaitReady(ctx, s, pod)
			awaitGrowth(ctx, s, pod, mapName, callKill)
			if probe.Ready(other) {
				s.Error("a pod of another namespace started too")
			}
		}},
		step{"where everyone may read, only a pod that would write waits", func(ctx context.Context, s *testing.T) {
			configure(ctx, t, s, map[string]string{keyClusterAccess: "read"}, hasFlag("cluster-access=read"), hasFlag("cluster-access=rbac"))
			awaitReady(ctx, s, other)
			awaitGrowth(ctx, s, other, mapName, callKill)
			create(ctx, t, writer)
			awaitEvent(ctx, s, writer, corev1.EventTypeWarning, append(right, "write access: not allowed: ServiceAccount "+elsewhere+"/default")...)
		}},
		step{"without the choice every pod starts", func(ctx context.Context, s *testing.T) {
			configure(ctx, t, s, map[string]string{keyClusterAccess: "all"}, hasFlag("cluster-access=all"), hasFlag("cluster-access=read"))
			awaitReady(ctx, s, writer)
		}},
	)
}

// configure sets keys of the ConfigMap, and waits until the pods of all node components
// satisfy then. When the test ends, it restores the keys, and waits until the pods
// satisfy before.
func configure(ctx context.Context, test, t *testing.T, data map[string]string, then, before func(*corev1.Pod) bool) {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "bpfman-config"}}
	old := map[string]string{}
	modify(ctx, t, config, func(c *corev1.ConfigMap) {
		for key, value := range data {
			old[key], c.Data[key] = c.Data[key], value
		}
	})
	test.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		modify(ctx, test, config, func(c *corev1.ConfigMap) { maps.Copy(c.Data, old) })
		awaitPods(ctx, test, before)
	})
	awaitPods(ctx, t, then)
}

// awaitPods waits until the pods of all node components run and satisfy a condition.
func awaitPods(ctx context.Context, t *testing.T, wanted func(*corev1.Pod) bool) {
	t.Helper()
	awaitFor(ctx, t, recovery, "the node components run as configured", func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		if err := under.List(ctx, &pods, client.InNamespace(bpfmanSpace), client.MatchingLabels{"name": "bpfman-daemon"}); err != nil {
			return false, err.Error()
		}
		ok := len(pods.Items) >= len(under.nodes())
		var states []string
		for i := range pods.Items {
			states = append(states, podState(&pods.Items[i]))
			ok = ok && probe.Ready(&pods.Items[i]) && wanted(&pods.Items[i])
		}
		return ok, strings.Join(states, "; ")
	})
}

func hasFlag(flag string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasSuffix(arg, flag) })
		})
	}
}
