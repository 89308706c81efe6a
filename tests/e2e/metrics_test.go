// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/tests/node"
)

// TestMetrics scrapes each component from a node. Only clients with permission can read
// its metrics.
func TestMetrics(t *testing.T) {
	const space, reading, other = "e2e-metrics", "reader", "other"
	scrape := func(ctx context.Context, t *testing.T, token string, status int) {
		t.Helper()
		for component, at := range metricsServers(ctx, t) {
			await(ctx, t, fmt.Sprintf("%s answers %d", at.url, status), func(ctx context.Context) (bool, string) {
				page, err := ask[node.Page](ctx, at.node, "fetch", at.url, token)
				served := strings.Contains(page.Body, at.metric) && strings.Contains(page.Body, "process_resident_memory_bytes")
				return err == nil && page.Status == status && served == (status == http.StatusOK), fmt.Sprintf("%s: %d %.200s, %v", component, page.Status, page.Body, err)
			})
		}
	}
	feature(t,
		step{"nobody", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			scrape(ctx, s, "", http.StatusUnauthorized)
		}},
		step{"somebody without the right", func(ctx context.Context, s *testing.T) {
			scrape(ctx, s, tokenOf(ctx, t, space, other), http.StatusForbidden)
		}},
		step{"somebody with the right", func(ctx context.Context, s *testing.T) {
			scrape(ctx, s, metricsReader(ctx, t, space, reading), http.StatusOK)
		}},
	)
}

// metricsServer is the node and URL of a component's metrics, and the name of one of them.
type metricsServer struct{ node, url, metric string }

// metricsServers returns the servers of all components.
func metricsServers(ctx context.Context, t *testing.T) map[string]metricsServer {
	t.Helper()
	service := get(ctx, t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "bpfman-controller-manager-metrics-service"}})
	servers := map[string]metricsServer{
		"operator": {under.nodes()[0], "https://" + net.JoinHostPort(service.Spec.ClusterIP, "8443") + "/metrics", "controller_runtime_reconcile_total"},
	}
	pods, err := componentPods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		for _, c := range pod.Spec.Containers {
			flag, metric := "", ""
			switch c.Name {
			case "bpfman-agent":
				flag, metric = "--metrics-bind-address=", "bpfman_agent_daemon_call_duration_seconds"
			case "bpfman-csi":
				flag, metric = "--metrics-address=", "csi_"
			case "bpfman-inspector":
				flag, metric = "--metrics-bind-address=", "bpf_programs"
			}
			for _, arg := range c.Args {
				address, is := strings.CutPrefix(arg, flag)
				if flag == "" || !is {
					continue
				}
				if strings.HasPrefix(address, ":") {
					address = "127.0.0.1" + address
				}
				servers[c.Name+" on "+pod.Spec.NodeName] = metricsServer{pod.Spec.NodeName, "https://" + address + "/metrics", metric}
			}
		}
	}
	if want := 1 + 3*len(under.nodes()); len(servers) != want {
		t.Fatalf("%d components serve metrics, want %d: %v", len(servers), want, servers)
	}
	return servers
}

// readAgent reads the metrics of a node's agent. The reader has the permission.
func readAgent(ctx context.Context, t *testing.T, reader, nodeName string) string {
	t.Helper()
	server := metricsServers(ctx, t)[node.Agent+" on "+nodeName]
	page, err := ask[node.Page](ctx, server.node, "fetch", server.url, reader)
	if err != nil || page.Status != http.StatusOK {
		t.Fatalf("metrics of node %s: %d, %v", nodeName, page.Status, err)
	}
	return page.Body
}

// metricsReader creates a ServiceAccount that can read metrics, and returns a token for it.
func metricsReader(ctx context.Context, t *testing.T, space, name string) string {
	t.Helper()
	create(ctx, t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: space},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bpfman-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: space, Name: name}},
	})
	return tokenOf(ctx, t, space, name)
}

// tokenOf creates a ServiceAccount, and a token for it.
func tokenOf(ctx context.Context, t *testing.T, space, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}}
	create(ctx, t, account)
	request, err := under.clientset.CoreV1().ServiceAccounts(space).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("token of ServiceAccount %s/%s: %v", space, name, err)
	}
	return request.Status.Token
}
