// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// requireMixedKernels skips the test where all nodes have the same kernel.
func requireMixedKernels(t *testing.T) {
	t.Helper()
	var nodes corev1.NodeList
	if err := under.List(t.Context(), &nodes); err != nil {
		t.Fatalf("list nodes: %v", err)
	}
	kernels := map[string]string{}
	for _, n := range nodes.Items {
		kernels[n.Status.NodeInfo.KernelVersion] = n.Name
	}
	if len(kernels) < 2 {
		prerequisite.Missing(t, fmt.Sprintf("the nodes' kernels are %v: make test-mixed-kernels", kernels), prerequisite.MixedKernels)
	}
}

// TestMixedKernels creates an XdpProgram that selects nodes with different kernels. On each node, the result is what the
// daemon itself can do there, and the status, Events, columns, and kubectl bpfman report it for that node. A node that
// doesn't support XDP doesn't prevent a pod on another node from reading the map.
func TestMixedKernels(t *testing.T) {
	requireMixedKernels(t)
	const space = "e2e-kernels"
	refusals := under.refusals["XDP"]
	able := slices.DeleteFunc(under.nodes(), func(name string) bool { _, refused := refusals[name]; return refused })
	if len(able) == 0 {
		requireType(t, "XDP")
	}
	o := xdp(metav1.ObjectMeta{Name: space}, primary())
	feature(t,
		step{"the status counts and names the nodes", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, o)
			if len(refusals) == 0 {
				attachedOn(ctx, s, o, able)
				return
			}
			words := []string{fmt.Sprintf("Failed on %d node", len(refusals)), fmt.Sprintf("attached on %d of %d selected nodes", len(able), len(under.nodes()))}
			for name := range refusals {
				words = append(words, name+": ")
			}
			awaitFailure(ctx, s, o, words...)
			if counts := o.Status.Nodes; counts == nil || int(counts.Selected) != len(under.nodes()) || int(counts.Attached) != len(able) || int(counts.Failed) != len(refusals) {
				s.Errorf("the status counts %+v", counts)
			}
			for _, name := range able {
				if strings.Contains(o.Status.Conditions[0].Message, name+": ") {
					s.Errorf("the condition reports a failure on node %s, which supports XDP: %s", name, o.Status.Conditions[0].Message)
				}
			}
		}},
		step{"each report says what its kernel does", func(ctx context.Context, s *testing.T) {
			programs, err := programsOf(ctx, o)
			if err != nil || len(programs) != len(under.nodes()) {
				s.Fatalf("%d reports, want one of each of the nodes %v, %v", len(programs), under.nodes(), err)
			}
			for _, p := range programs {
				name, condition := p.GetStatus().Node, p.GetStatus().Conditions[0]
				refusal, refused := refusals[name]
				if attached := slices.ContainsFunc(p.GetStatus().Links, attached); attached == refused {
					s.Errorf("on node %s, which refuses XDP: %v, attached is %v: %s", name, refused, attached, condition.Message)
				}
				if refused && !strings.Contains(condition.Message, wordsOf(refusal)) {
					s.Errorf("node %s reports %s: %s, want the daemon's words: %s", name, condition.Type, condition.Message, wordsOf(refusal))
				}
			}
			for name := range refusals {
				awaitEvent(ctx, s, o, corev1.EventTypeWarning, name)
			}
		}},
		step{"kubectl says so", func(ctx context.Context, s *testing.T) {
			row := kubectl(ctx, s, nil, "get", "xdpprogram", o.Name, "-o", "wide")
			reports := kubectl(ctx, s, nil, "get", "bpfprograms", "-l", v1alpha1.LabelOwnedByProgram+"="+o.Name, "-o", "wide")
			why := plugin(ctx, s, "why", "xdpprogram", o.Name)
			s.Logf("\n%s\n%s\n%s", row, reports, why)
			if fields := strings.Fields(lineWith(row, o.Name)); !slices.Contains(fields, o.Status.Conditions[0].Type) {
				s.Errorf("the object is listed as %q", fields)
			}
			for _, name := range under.nodes() {
				_, refused := refusals[name]
				if line := lineWith(reports, name); slices.Contains(strings.Fields(line), v1alpha1.BpfProgCondLoaded.Condition().Reason) == refused {
					s.Errorf("the report of node %s, which refuses XDP: %v, is listed as %q", name, refused, line)
				}
				state := map[bool]string{true: ": failed", false: ": attached"}[refused]
				if line := lineWith(why, "Node", name); !strings.HasSuffix(line, state) {
					s.Errorf("kubectl bpfman why says of node %s %q, want it to end with %q", name, line, state)
				}
			}
			// The inspector scans at intervals.
			await(ctx, s, "kubectl bpfman programs lists it where it is", func(ctx context.Context) (bool, string) {
				listed, err := tryPlugin(ctx, s, "programs", "--by", "bpfman", "-o", "wide")
				wrong := slices.ContainsFunc(under.nodes(), func(name string) bool {
					_, refused := refusals[name]
					return (lineWith(listed, name, o.Name) == "") != refused
				})
				return err == nil && !wrong, fmt.Sprint(listed, err)
			})
		}},
		step{"a pod reads the map where it is", func(ctx context.Context, s *testing.T) {
			pod := reader(space, "reader", o.Name, "xdp_stats_map")
			pod.Spec.NodeName = able[0]
			create(ctx, t, pod)
			awaitReady(ctx, s, pod)
			awaitGrowth(ctx, s, pod, "xdp_stats_map", nil)
		}},
		step{"a pod where it isn't waits, and says for what", func(ctx context.Context, s *testing.T) {
			for name := range refusals {
				pod := reader(space, "waits", o.Name, "xdp_stats_map")
				pod.Spec.NodeName = name
				create(ctx, t, pod)
				awaitEvent(ctx, s, pod, corev1.EventTypeWarning, "FailedMount", o.Name)
				return
			}
		}},
		step{"selecting those that can is success", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(o *v1alpha1.XdpProgram) {
				o.Spec.NodeSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: able},
				}}
			})
			attachedOn(ctx, s, o, able)
		}},
	)
}

// lineWith returns the first line that has all the words, or "". "Nodes" counts as "Node".
func lineWith(text string, words ...string) string {
	for line := range strings.Lines(text) {
		fields := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" ,:\n", r) })
		if slices.Contains(fields, "Nodes") {
			fields = append(fields, "Node")
		}
		if !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(fields, w) }) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
