// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/probe"
)

// requireThreeNodes skips a test if the cluster has fewer nodes, unless the test was requested
// explicitly.
func requireThreeNodes(t *testing.T) {
	t.Helper()
	if got := len(under.nodes()); got < 3 {
		said := fmt.Sprintf("the cluster has %d nodes, not 3: make test-nodes", got)
		if settings.nodes != "" {
			t.Fatal(said)
		}
		t.Skip(said)
	}
}

// requireMachines skips a test if the machines of the cluster can't be controlled.
func requireMachines(t *testing.T) {
	t.Helper()
	if settings.machines == "" {
		t.Skip("the cluster isn't that of `make cluster-up`, whose nodes can be stopped and started")
	}
}

// workers returns the nodes without the control plane.
func workers() []string { return under.nodes()[1:] }

// machine runs a command of the cluster's program, hack/cluster, for a node, and returns the
// last line of its output.
func machine(ctx context.Context, t *testing.T, nodeName string, command ...string) string {
	t.Helper()
	args := slices.Concat(strings.Fields(settings.machines), []string{"--node", nodeName}, command)
	var said, complained bytes.Buffer
	run := exec.CommandContext(ctx, args[0], args[1:]...)
	run.Stdout, run.Stderr = &said, &complained
	if err := run.Run(); err != nil {
		t.Fatalf("%s of node %s: %v: %s%s", strings.Join(command, " "), nodeName, err, said.String(), complained.String())
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	return lines[len(lines)-1]
}

// restore runs a command for a node when the test of t ends, and waits until the node is in its
// original state.
func restore(ctx context.Context, t *testing.T, nodeName string, command ...string) {
	t.Helper()
	ctx = context.WithoutCancel(ctx)
	t.Cleanup(func() {
		machine(ctx, t, nodeName, command...)
		awaitNode(ctx, t, nodeName)
	})
}

// awaitNode waits until the node is ready, with the node components and the probe.
func awaitNode(ctx context.Context, t *testing.T, nodeName string) {
	t.Helper()
	awaitFor(ctx, t, recovery, "node "+nodeName+" is back", func(ctx context.Context) (bool, string) {
		node := &corev1.Node{}
		if err := under.Get(ctx, client.ObjectKey{Name: nodeName}, node); err != nil {
			return false, err.Error()
		}
		if !nodeReady(node) {
			return false, fmt.Sprint(node.Status.Conditions)
		}
		var pods corev1.PodList
		if err := under.List(ctx, &pods); err != nil {
			return false, err.Error()
		}
		probePod, components := "", 0
		var states []string
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName != nodeName || pod.Namespace != probeNamespace && pod.Namespace != bpfmanSpace {
				continue
			}
			states = append(states, podState(pod))
			switch {
			case !probe.Ready(pod) || pod.DeletionTimestamp != nil:
			case pod.Namespace == probeNamespace:
				probePod = pod.Name
			case pod.Labels["name"] == "bpfman-daemon":
				components++
			}
		}
		if probePod == "" || components != 1 {
			return false, strings.Join(states, "; ")
		}
		under.probes.ByNode[nodeName] = probePod
		// The status can still show a container from before the reboot as running.
		_, err := ask[[]int](ctx, nodeName, "processes", "bpfman-agent")
		return err == nil, fmt.Sprint(err)
	})
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// awaitUnreachable waits until the cluster considers the node unreachable.
func awaitUnreachable(ctx context.Context, t *testing.T, nodeName string) {
	t.Helper()
	await(ctx, t, "node "+nodeName+" is unreachable", func(ctx context.Context) (bool, string) {
		node := &corev1.Node{}
		err := under.Get(ctx, client.ObjectKey{Name: nodeName}, node)
		unreachable := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeUnreachable })
		return err == nil && unreachable, fmt.Sprint(node.Spec.Taints, err)
	})
}

// attachedOn waits until the object is attached on exactly these nodes, and its status says so.
func attachedOn(ctx context.Context, t *testing.T, o v1alpha1.UserObject, nodes []string) {
	t.Helper()
	want := slices.Sorted(slices.Values(nodes))
	awaitFor(ctx, t, recovery, fmt.Sprintf("%s is attached on %v", o.GetName(), want), func(ctx context.Context) (bool, string) {
		c, err := conditionOf(ctx, o)
		counts := o.GetStatus().Nodes
		if err != nil || counts == nil {
			return false, fmt.Sprint(err)
		}
		programs, err := programsOf(ctx, o)
		if err != nil {
			return false, err.Error()
		}
		var on []string
		for _, p := range programs {
			if slices.ContainsFunc(p.GetStatus().Links, attached) {
				on = append(on, p.GetStatus().Node)
			}
		}
		slices.Sort(on)
		ok := c.Type == string(v1alpha1.ProgramReconcileSuccess) && int(counts.Attached) == len(want) && int(counts.Selected) == len(want) &&
			slices.Equal(on, want)
		return ok, fmt.Sprintf("%s: %s, %+v, reported by %v", c.Type, c.Message, *counts, on)
	})
	for _, name := range want {
		if under.probes.ByNode[name] == "" {
			continue // it joined later
		}
		loaded, err := loadedOn(ctx, name, o.GetUID())
		if err != nil || len(loaded) != 1 {
			t.Errorf("on node %s the daemon has %v of %s, %v", name, loaded, o.GetName(), err)
		}
	}
}
