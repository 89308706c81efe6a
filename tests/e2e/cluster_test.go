// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/probe"
	"github.com/bpfman/bpfman-operator/tests/restarts"
)

const (
	// label is on all objects of the tests, so that those of a killed run can be found.
	label          = "bpfman.io/e2e"
	probeNamespace = "bpfman-e2e"
	bpfmanSpace    = "bpfman"
)

var (
	// patience is how long a test waits for an expected state.
	patience = duration("E2E_PATIENCE", time.Minute)
	// interval is the polling interval.
	interval = duration("E2E_INTERVAL", 150*time.Millisecond)
)

// cluster is the cluster under test.
type cluster struct {
	client.Client
	resources *resources.Resources
	clientset *kubernetes.Clientset
	// probes are the pods of the node probe.
	probes *probe.Pods
	// trials show what the kernels of all nodes support, by type. refusals show which nodes don't support a type.
	trials   map[string]node.Trial
	refusals map[string]map[string]node.Trial
	// restarts contains the restarts of bpfman's containers.
	restarts *restarts.Log
}

func connect(ctx context.Context, cfg *envconf.Config) (context.Context, error) {
	kube, err := cfg.NewClient()
	if err != nil {
		return ctx, fmt.Errorf("connect to the cluster of %s: %w", settings.kubeconfig, err)
	}
	r := kube.Resources()
	// The client must not slow down tests with many objects.
	r.GetConfig().QPS, r.GetConfig().Burst = 200, 400
	// The framework's decoder uses this scheme.
	if err := v1alpha1.Install(scheme.Scheme); err != nil {
		return ctx, fmt.Errorf("add the kinds of bpfman.io: %w", err)
	}
	c, err := client.New(r.GetConfig(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return ctx, fmt.Errorf("create client: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(r.GetConfig())
	if err != nil {
		return ctx, fmt.Errorf("make a clientset: %w", err)
	}
	under = &cluster{Client: c, resources: r, clientset: clientset, restarts: restarts.NewLog(c, bpfmanSpace), trials: map[string]node.Trial{}, refusals: map[string]map[string]node.Trial{}}
	return ctx, nil
}

// sweep removes what a killed run left.
func sweep(ctx context.Context, _ *envconf.Config) (context.Context, error) {
	for _, kind := range v1alpha1.UserKinds {
		list, ok := kind.NewList().(client.ObjectList)
		if !ok {
			return ctx, fmt.Errorf("%s: its list is none", kind.Name)
		}
		if err := under.List(ctx, list, client.HasLabels{label}); err != nil {
			return ctx, fmt.Errorf("list %ss: %w", kind.Name, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			return client.IgnoreNotFound(under.Delete(ctx, o.(client.Object))) //nolint:errcheck // it is a user object
		})
		if err != nil {
			return ctx, fmt.Errorf("delete %ss left by another run: %w", kind.Name, err)
		}
	}
	for _, o := range []client.Object{&rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRole{}} {
		if err := under.DeleteAllOf(ctx, o, client.HasLabels{label}); err != nil {
			return ctx, fmt.Errorf("delete %T left by another run: %w", o, err)
		}
	}
	var spaces corev1.NamespaceList
	if err := under.List(ctx, &spaces, client.HasLabels{label}); err != nil {
		return ctx, fmt.Errorf("list namespaces: %w", err)
	}
	for i := range spaces.Items {
		if err := remove(ctx, &spaces.Items[i]); err != nil {
			return ctx, err
		}
	}
	return ctx, nil
}

// remove deletes an object immediately, and waits until it is deleted.
func remove(ctx context.Context, o client.Object) error {
	what := fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
	if err := under.Delete(ctx, o, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("delete %s: %w", what, err)
	}
	err := eventually.Succeeds(ctx, patience, interval, func(ctx context.Context) error {
		if err := under.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is still there"), err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s is gone: %w", what, err)
	}
	return nil
}

// startProbes runs the node probe on each node that has the node components.
func startProbes(ctx context.Context, _ *envconf.Config) (context.Context, error) {
	var agents corev1.PodList
	if err := under.List(ctx, &agents, client.InNamespace(bpfmanSpace), client.MatchingLabels{"name": "bpfman-daemon"}); err != nil {
		return ctx, fmt.Errorf("list the pods of the node components: %w", err)
	}
	if len(agents.Items) == 0 {
		return ctx, errors.New("no node component runs in the namespace bpfman: deploy bpfman first")
	}
	nodes := map[string]bool{}
	for _, pod := range agents.Items {
		nodes[pod.Spec.NodeName] = true
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: probeNamespace, Labels: map[string]string{label: "true"}}}
	var err error
	under.probes, err = probe.Start(ctx, under.resources.GetConfig(), space, settings.probe, slices.Collect(maps.Keys(nodes)), patience)
	return ctx, err
}

func stopProbes(ctx context.Context, _ *envconf.Config) (context.Context, error) {
	return ctx, remove(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: probeNamespace}})
}

// tryKernel finds out what every node can load and attach.
func tryKernel(ctx context.Context, _ *envconf.Config) (context.Context, error) {
	for _, name := range under.nodes() {
		var trials []node.Trial
		err := eventually.Succeeds(ctx, patience, interval, func(ctx context.Context) (err error) {
			// The daemon can have just started.
			trials, err = ask[[]node.Trial](ctx, name, "try", settings.bytecode)
			return err
		})
		if err != nil {
			return ctx, err
		}
		for _, t := range trials {
			seeHolders(&t)
			if under.refusals[t.Type] == nil {
				under.refusals[t.Type] = map[string]node.Trial{}
			}
			if !t.Attached {
				under.refusals[t.Type][name] = t
			}
			// A type counts as unsupported if one node doesn't support it.
			if known, ok := under.trials[t.Type]; !ok || known.Attached {
				under.trials[t.Type] = t
			}
		}
	}
	return ctx, nil
}

// seeHolders finds out from here which programs fill a tracepoint, if the node has the same kernel as this
// machine. A node only sees its own processes.
func seeHolders(t *node.Trial) {
	if here, err := node.BootID(); t.Taken == "" || err != nil || here != t.BootID || os.Geteuid() != 0 {
		return
	}
	if places, err := node.PlacesAt(node.TrialTracepoint); err == nil && places.Full() {
		t.Taken = "at tracepoint " + node.TrialTracepoint + " " + places.String()
	}
}

// nodes returns the nodes with node components.
func (c *cluster) nodes() []string { return slices.Sorted(maps.Keys(c.probes.ByNode)) }

// ask runs a command of the node probe on a node, and decodes its output.
func ask[T any](ctx context.Context, nodeName string, command ...string) (T, error) {
	return probe.Ask[T](ctx, under.probes.On(nodeName), command...)
}

// inBackground runs a command of the node probe on a node until the returned function is called, or the test ends. The
// function ends the command with another one, and returns its answer.
func inBackground[T any](ctx context.Context, t *testing.T, nodeName string, command []string, end ...string) func() T {
	t.Helper()
	type result struct {
		answer T
		err    error
	}
	ended := make(chan result, 1)
	go func() {
		answer, err := ask[T](ctx, nodeName, command...)
		ended <- result{answer, err}
	}()
	stop := sync.OnceValue(func() T {
		if _, err := ask[any](context.WithoutCancel(ctx), nodeName, end...); err != nil {
			t.Error(err)
		}
		r := <-ended
		if r.err != nil {
			t.Error(r.err)
		}
		return r.answer
	})
	t.Cleanup(func() { stop() })
	return stop
}

// answers ends what inBackground runs on several nodes, and returns the answers by node.
func answers[T any](stops map[string]func() T) map[string]T {
	all := map[string]T{}
	for name, stop := range stops {
		all[name] = stop()
	}
	return all
}
