// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlenvtest "sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
)

const namespace = "bpfman"

// The ServiceAccounts of the measured components, with the names in config/rbac.
const (
	operatorAccount = "bpfman-operator"
	agentAccount    = "bpfman-daemon"
	// comparedAccount is the account of the agents for comparison, which watch more than this project's agent has
	// permission for.
	comparedAccount = "compared-agent"
)

// controlPlane is a separate etcd and kube-apiserver for the benchmark. config/default is deployed there, without
// the operator's Deployment. No other controller and no kubelet runs there.
type controlPlane struct {
	environment *ctrlenvtest.Environment
	// admin has all permissions.
	admin  *rest.Config
	client client.Client
	core   *kubernetes.Clientset
	// accounts contains the tokens of the components.
	accounts map[string]*rest.Config

	apiServer, etcd process
	etcdURL         string
	// dir contains kubeconfigs and logs.
	dir string
}

func startControlPlane(ctx context.Context, dir string) (c *controlPlane, err error) {
	definitions, err := envtest.Definitions()
	if err != nil {
		return nil, err
	}
	c = &controlPlane{
		environment: &ctrlenvtest.Environment{
			CRDDirectoryPaths: []string{definitions}, ErrorIfCRDPathMissing: true, ControlPlaneStopTimeout: 2 * time.Minute,
		},
		accounts: map[string]*rest.Config{}, dir: dir,
	}
	plane := &c.environment.ControlPlane
	plane.Etcd = &ctrlenvtest.Etcd{}
	// The reports of 5,000 nodes, with their history until compaction, exceed etcd's default limit of 2 GiB.
	plane.Etcd.Configure().Set("quota-backend-bytes", "8589934592")
	// Otherwise, the API server reads and decodes all objects every five minutes, to compare its cache with etcd.
	// This takes more than half a minute.
	plane.GetAPIServer().Configure().Set("feature-gates", "DetectCacheInconsistency=false")
	if c.admin, err = c.environment.Start(); err != nil {
		return nil, fmt.Errorf("start etcd and kube-apiserver: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	c.admin.QPS = -1
	c.etcdURL = plane.Etcd.URL.String()
	if c.apiServer, err = child("kube-apiserver"); err != nil {
		return nil, err
	}
	if c.etcd, err = child("etcd"); err != nil {
		return nil, err
	}
	if c.client, err = client.New(c.admin, client.Options{Scheme: envtest.Scheme()}); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if c.core, err = kubernetes.NewForConfig(c.admin); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, c.deploy(ctx)
}

func (c *controlPlane) stop() error {
	if err := c.environment.Stop(); err != nil {
		return fmt.Errorf("stop etcd and kube-apiserver: %w", err)
	}
	return nil
}

// deploy applies config/default, and gets tokens for the accounts in it.
func (c *controlPlane) deploy(ctx context.Context) error {
	if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	if err := envtest.Apply(ctx, c.client, "config/default", "Deployment"); err != nil {
		return err
	}
	if err := c.allowCompared(ctx); err != nil {
		return err
	}
	for _, account := range []string{operatorAccount, agentAccount, comparedAccount} {
		day := int64(24 * 60 * 60)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}
		answer, err := c.core.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("get a token for %s: %w", account, err)
		}
		config := rest.AnonymousClientConfig(c.admin)
		config.QPS, config.BearerToken = -1, answer.Status.Token
		c.accounts[account] = config
	}
	return nil
}

// allowCompared creates the account of the agents for comparison.
func (c *controlPlane) allowCompared(ctx context.Context) error {
	meta := metav1.ObjectMeta{Name: comparedAccount}
	read := []string{"get", "list", "watch"}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: comparedAccount, Namespace: namespace}},
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{Verbs: read, APIGroups: []string{v1alpha1.SchemeGroupVersion.Group}, Resources: []string{"*"}},
			{Verbs: read, APIGroups: []string{""}, Resources: []string{"nodes", "pods"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: comparedAccount},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: comparedAccount, Namespace: namespace}},
		},
	} {
		if err := c.client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// as returns the configuration of a client with a component's account and its own connection.
func (c *controlPlane) as(account string) *rest.Config { return rest.CopyConfig(c.accounts[account]) }

// kubeconfig writes a configuration to a file.
func (c *controlPlane) kubeconfig(name string, config *rest.Config) (string, error) {
	path := filepath.Join(c.dir, name+".kubeconfig")
	if err := envtest.WriteKubeconfig(path, config); err != nil {
		return "", fmt.Errorf("write kubeconfig of %s: %w", name, err)
	}
	return path, nil
}

// collected makes the API server collect garbage, and returns its metrics after that.
func (c *controlPlane) collected(ctx context.Context, times int) (map[string]*io_prometheus_client.MetricFamily, error) {
	for range times {
		if _, err := c.core.RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx); err != nil {
			return nil, fmt.Errorf("collect the API server's garbage: %w", err)
		}
	}
	return c.metrics(ctx)
}

// value returns the value of a gauge or counter that exists once.
func value(metrics map[string]*io_prometheus_client.MetricFamily, name string) float64 {
	var sum float64
	for _, m := range metrics[name].GetMetric() {
		sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return sum
}

// heap returns the memory that the API server uses for objects and stacks, in KiB, after a garbage collection. Its
// resident memory also contains the garbage since the last collection.
func (c *controlPlane) heap(ctx context.Context) (float64, error) {
	metrics, err := c.collected(ctx, 2) // the second one frees objects with finalizers
	if err != nil {
		return 0, err
	}
	return (value(metrics, "go_memstats_heap_alloc_bytes") + value(metrics, "go_memstats_stack_inuse_bytes")) / 1024, nil
}

// load is the API server's memory, and its watches.
type load struct {
	heap     float64 // in KiB
	resident float64 // in MiB
	watches  map[string]int
}

func (c *controlPlane) load(ctx context.Context) (load, error) {
	heap, err := c.heap(ctx)
	if err != nil {
		return load{}, err
	}
	used, err := c.apiServer.memory()
	if err != nil {
		return load{}, err
	}
	watches, err := c.watches(ctx)
	return load{heap, used.resident, watches}, err
}

// watches counts the API server's watches, by resource.
func (c *controlPlane) watches(ctx context.Context) (map[string]int, error) {
	metrics, err := c.metrics(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, m := range metrics["apiserver_longrunning_requests"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["verb"] == "WATCH" {
			counts[labels["resource"]] += int(m.GetGauge().GetValue())
		}
	}
	return counts, nil
}

func (c *controlPlane) metrics(ctx context.Context) (map[string]*io_prometheus_client.MetricFamily, error) {
	stream, err := c.core.RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	defer stream.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(stream)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return families, nil
}
