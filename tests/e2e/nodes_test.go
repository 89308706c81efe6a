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

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/probe"
	readerpod "github.com/bpfman/bpfman-operator/tests/reader"
)

func without(nodes []string, gone string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == gone })
}

// TestNodesSelected selects nodes by a label. Nodes get and lose it, join and leave.
func TestNodesSelected(t *testing.T) {
	requireThreeNodes(t)
	requireType(t, "TCX")
	const key = "e2e.bpfman.io/nodes"
	o := tcx("e2e-nodes-selected", "lo")
	o.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{key: "yes"}}
	second, third := workers()[0], workers()[1]
	label := func(ctx context.Context, t *testing.T, name string) {
		t.Helper()
		modify(ctx, t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(n *corev1.Node) { n.Labels[key] = "yes" })
	}
	unlabel := func(ctx context.Context, t *testing.T, name string) {
		t.Helper()
		modify(ctx, t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(n *corev1.Node) { delete(n.Labels, key) })
	}
	var joined string
	feature(t,
		step{"labels come and go", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			t.Cleanup(func() {
				unlabel(context.WithoutCancel(ctx), t, second)
				unlabel(context.WithoutCancel(ctx), t, third)
			})
			label(ctx, s, second)
			attachedOn(ctx, s, o, []string{second})
			label(ctx, s, third)
			attachedOn(ctx, s, o, []string{second, third})
			unlabel(ctx, s, second)
			attachedOn(ctx, s, o, []string{third})
			if loaded, err := loadedOn(ctx, second, o.GetUID()); err != nil || len(loaded) > 0 {
				s.Errorf("node %s isn't selected anymore, and has %v, %v", second, loaded, err)
			}
		}},
		step{"a node joins", func(ctx context.Context, s *testing.T) {
			requireMachines(s)
			joined = machine(ctx, s, "1", "add-node")
			label(ctx, s, joined)
			attachedOn(ctx, s, o, []string{third, joined})
		}},
		step{"and leaves", func(ctx context.Context, s *testing.T) {
			requireMachines(s)
			machine(ctx, s, joined, "remove-node")
			attachedOn(ctx, s, o, []string{third})
			awaitGone(ctx, s, &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: joined}})
		}},
	)
}

// TestNodesDrained drains a node, which keeps its programs. It deletes the object of another
// node, whose programs don't count until it is back.
func TestNodesDrained(t *testing.T) {
	requireThreeNodes(t)
	requireType(t, "TCX")
	o, later := tcx("e2e-nodes-drained", "lo"), tcx("e2e-nodes-drained-later", "lo")
	second, third := workers()[0], workers()[1]
	feature(t,
		step{"drained", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			attachedOn(ctx, s, o, under.nodes())
			t.Cleanup(func() { kubectl(context.WithoutCancel(ctx), t, nil, "uncordon", second) })
			kubectl(ctx, s, nil, "drain", second, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=50s")
			create(ctx, t, later)
			attachedOn(ctx, s, later, under.nodes())
			attachedOn(ctx, s, o, under.nodes())
		}},
		step{"deleted", func(ctx context.Context, s *testing.T) {
			requireMachines(s)
			kubectl(ctx, s, nil, "delete", "node", third)
			attachedOn(ctx, s, o, without(under.nodes(), third))
			// A kubelet registers its node when it starts.
			machine(ctx, s, third, "signal", "KILL", "kubelet")
			awaitNode(ctx, s, third)
			attachedOn(ctx, s, o, under.nodes())
			exactly(ctx, s, o, 1)
		}},
	)
}

// TestNodesKubeletDown stops the kubelet of a node. Objects don't wait for the node.
func TestNodesKubeletDown(t *testing.T) {
	requireThreeNodes(t)
	requireMachines(t)
	requireType(t, "TCX")
	o := tcx("e2e-nodes-kubelet", "lo")
	down := workers()[0]
	feature(t,
		step{"the node is given up", func(ctx context.Context, s *testing.T) {
			restore(ctx, t, down, "start", "kubelet")
			machine(ctx, s, down, "stop", "kubelet")
			awaitUnreachable(ctx, s, down)
		}},
		step{"the others aren't held up, and the status names it", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			await(ctx, s, "attached on the others", func(ctx context.Context) (bool, string) {
				c, err := conditionOf(ctx, o)
				ok := c.Type == string(v1alpha1.ProgramReconcileSuccess) && strings.Contains(c.Message, "Attached on 2 of 2 selected nodes") && strings.Contains(c.Message, down)
				return ok, fmt.Sprint(c, err)
			})
		}},
		step{"it counts again once it is back", func(ctx context.Context, s *testing.T) {
			machine(ctx, s, down, "start", "kubelet")
			awaitNode(ctx, s, down)
			attachedOn(ctx, s, o, under.nodes())
		}},
	)
}

// TestNodesAgentDown stops the agent of a node. The status names the node that it waits for.
func TestNodesAgentDown(t *testing.T) {
	requireThreeNodes(t)
	requireType(t, "TCX")
	o := tcx("e2e-nodes-agent", "lo")
	down := workers()[1]
	feature(t, step{"says so, and recovers", func(ctx context.Context, s *testing.T) {
		const away = "8s"
		done := make(chan error, 1)
		go func() {
			err := keepDown(ctx, down, node.Agent, away)
			done <- err
		}()
		await(ctx, s, "the agent is away", func(ctx context.Context) (bool, string) {
			pids, err := ask[[]int](ctx, down, "processes", node.Agent)
			return err == nil && len(pids) == 0, fmt.Sprint(pids, err)
		})
		create(ctx, t, o)
		await(ctx, s, "the status says which node is waited for", func(ctx context.Context) (bool, string) {
			c, err := conditionOf(ctx, o)
			ok := c.Type == string(v1alpha1.ProgramNotYetLoaded) && strings.HasPrefix(c.Message, "Attached on 2 of 3 selected nodes, waiting for "+down)
			return ok, fmt.Sprint(c, err)
		})
		if err := <-done; err != nil {
			s.Error(err)
		}
		attachedOn(ctx, s, o, under.nodes())
	}})
}

// TestNodesRollOut rolls out the node components. Only one node at a time is without an
// agent, and the objects stay successful.
func TestNodesRollOut(t *testing.T) {
	requireThreeNodes(t)
	requireType(t, "TCX")
	o := tcx("e2e-nodes-roll-out", "lo")
	feature(t, step{"one by one", func(ctx context.Context, s *testing.T) {
		create(ctx, t, o)
		attachedOn(ctx, s, o, under.nodes())
		before := exactly(ctx, s, o, 1)
		restoreConfig(ctx, t)
		old := get(ctx, s, nodeComponents())
		modify(ctx, s, configMap(), func(c *corev1.ConfigMap) { c.Data["bpfman.agent.log.level"] = "debug" })
		most := 0
		awaitFor(ctx, s, recovery, "the node components are rolled out", func(ctx context.Context) (bool, string) {
			d := nodeComponents()
			if err := under.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
				return false, err.Error()
			}
			pods, err := componentPods(ctx)
			if err != nil {
				return false, err.Error()
			}
			up := map[string]bool{}
			for i := range pods {
				up[pods[i].Spec.NodeName] = up[pods[i].Spec.NodeName] || probe.Ready(&pods[i]) && pods[i].DeletionTimestamp == nil
			}
			down := len(under.nodes())
			for _, isUp := range up {
				if isUp {
					down--
				}
			}
			most = max(most, down)
			if c, err := conditionOf(ctx, o); err != nil || c.Type != string(v1alpha1.ProgramReconcileSuccess) {
				s.Errorf("in the roll-out the object is %s: %s, %v", c.Type, c.Message, err)
			}
			return d.Generation > old.Generation && rolledOut(d) && down == 0, fmt.Sprintf("%+v, %v", d.Status, up)
		})
		if most != 1 {
			s.Errorf("%d nodes were without node components at a time, want 1", most)
		}
		attachedOn(ctx, s, o, under.nodes())
		if now := exactly(ctx, s, o, 1); !slices.Equal(ids(now), ids(before)) {
			s.Errorf("programs %v were reloaded: %v", ids(before), ids(now))
		}
	}})
}

func rolledOut(d *appsv1.DaemonSet) bool {
	s := d.Status
	return s.ObservedGeneration == d.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberAvailable == s.DesiredNumberScheduled
}

// TestNodesOneFails uses an interface that one node lacks. The status, the Event, and
// kubectl name the node and the reason, and show that the other nodes succeed.
func TestNodesOneFails(t *testing.T) {
	requireThreeNodes(t)
	requireType(t, "TCX")
	const iface = "e2e-some"
	o := tcx("e2e-nodes-one-fails", iface)
	lacks := workers()[0]
	const why = "the node has no interface " + iface
	feature(t,
		step{"the node that fails is named", func(ctx context.Context, s *testing.T) {
			for _, name := range without(under.nodes(), lacks) {
				addInterfaceOn(ctx, t, name, iface)
			}
			create(ctx, t, o)
			awaitFailure(ctx, s, o, "Failed on 1 node, attached on 2 of 3 selected nodes: "+lacks+": ", why)
			if counts := o.Status.Nodes; counts == nil || counts.Selected != 3 || counts.Attached != 2 || counts.Failed != 1 {
				s.Errorf("the status counts %+v", counts)
			}
			awaitEvent(ctx, s, o, corev1.EventTypeWarning, lacks, why)
		}},
		step{"kubectl says so", func(ctx context.Context, s *testing.T) {
			for command, words := range map[string][]string{
				"get tcxprogram " + o.Name + " -o wide":                 {"ReconcileError", " 2 ", " 3 "},
				"describe tcxprogram " + o.Name:                         {why, lacks},
				"get bpfprograms -l bpfman.io/ownedByProgram=" + o.Name: under.nodes(),
			} {
				out := kubectl(ctx, s, nil, strings.Fields(command)...)
				s.Logf("kubectl %s\n%s", command, out)
				for _, word := range words {
					if !strings.Contains(out, word) {
						s.Errorf("kubectl %s doesn't say %q:\n%s", command, word, out)
					}
				}
			}
			out := plugin(ctx, s, "why", "tcxprogram", o.Name)
			s.Logf("kubectl bpfman why\n%s", out)
			if !strings.Contains(out, lacks) || !strings.Contains(out, why) {
				s.Errorf("kubectl bpfman why doesn't say that node %s lacks %s:\n%s", lacks, iface, out)
			}
		}},
		step{"it heals", func(ctx context.Context, s *testing.T) {
			addInterfaceOn(ctx, t, lacks, iface)
			attachedOn(ctx, s, o, under.nodes())
		}},
	)
}

// TestNodesMaps reads maps in a DaemonSet. Each pod sees what its own node counts, and
// nothing of other nodes.
func TestNodesMaps(t *testing.T) {
	requireThreeNodes(t)
	requireType(t, "TCX")
	const space, iface = "e2e-nodes-maps", "e2e-maps"
	o := tcx("e2e-nodes-maps", iface)
	o.Spec.ByteCode, o.Spec.BpfFunctionName = image("go-tcx-counter"), "tcx_stats"
	template := reader(space, "reader", o.Name, "tcx_stats_map")
	labels := map[string]string{"name": "reader"}
	readers := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: space},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	}
	readers.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	packets := func(ctx context.Context, s *testing.T) map[string]uint64 {
		s.Helper()
		seen := map[string]uint64{}
		await(ctx, s, "each node's pod reads", func(ctx context.Context) (bool, string) {
			var pods corev1.PodList
			if err := under.List(ctx, &pods, client.InNamespace(space), client.MatchingLabels(labels)); err != nil {
				return false, err.Error()
			}
			var said []string
			for i := range pods.Items {
				log, err := logOf(ctx, &pods.Items[i])
				if n, ok := readerpod.Counts(log)["tcx_stats_map"]; err == nil && ok {
					seen[pods.Items[i].Spec.NodeName] = n
				}
				said = append(said, podState(&pods.Items[i]), log)
			}
			return len(seen) == len(under.nodes()), strings.Join(said, "; ")
		})
		return seen
	}
	feature(t, step{"each its own", func(ctx context.Context, s *testing.T) {
		addInterface(ctx, t, iface)
		namespace(ctx, t, space)
		create(ctx, t, o)
		create(ctx, t, readers)
		attachedOn(ctx, s, o, under.nodes())
		for i, sender := range under.nodes() {
			before := packets(ctx, s)
			const frames = 100
			for range frames * (i + 1) {
				if _, err := ask[any](ctx, sender, "frame", node.Peer(iface)); err != nil {
					s.Fatal(err)
				}
			}
			await(ctx, s, "the frames of "+sender+" are counted there, and nowhere else", func(ctx context.Context) (bool, string) {
				now := packets(ctx, s)
				ok := true
				for _, name := range under.nodes() {
					grown := now[name] - before[name]
					ok = ok && (name == sender) == (grown >= frames)
				}
				return ok, fmt.Sprint(before, now)
			})
		}
	}})
}

// TestNodesOperatorDies stops the node of the leading operator. Another replica, on another
// node, takes over, and the failed node blocks nothing.
func TestNodesOperatorDies(t *testing.T) {
	requireThreeNodes(t)
	requireMachines(t)
	requireType(t, "TCX")
	before, after := tcx("e2e-nodes-before", "lo"), tcx("e2e-nodes-after", "lo")
	first := under.nodes()[0]
	var dead string
	feature(t,
		step{"two replicas, on two nodes", func(ctx context.Context, s *testing.T) {
			create(ctx, t, before)
			attachedOn(ctx, s, before, under.nodes())
			t.Cleanup(func() {
				scaleOperator(context.WithoutCancel(ctx), t, 1)
				kubectl(context.WithoutCancel(ctx), t, nil, "uncordon", first)
			})
			// The machine to stop must not be that of the control plane.
			kubectl(ctx, s, nil, "drain", first, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=50s")
			scaleOperator(ctx, s, 2)
			pods, err := operatorPods(ctx)
			if err != nil || len(pods) != 2 || pods[0].Spec.NodeName == pods[1].Spec.NodeName {
				s.Fatalf("the replicas are %s, want them on two nodes, %v", podStates(pods), err)
			}
		}},
		step{"the node of the leader dies", func(ctx context.Context, s *testing.T) {
			var leader string
			await(ctx, s, "one leads", func(ctx context.Context) (bool, string) {
				var err error
				leader, dead, err = leading(ctx)
				return err == nil && dead != "", fmt.Sprint(leader, err)
			})
			restore(ctx, t, dead, "boot")
			under.restarts.ExpectNode()
			machine(ctx, s, dead, "halt")
			await(ctx, s, "the other leads", func(ctx context.Context) (bool, string) {
				now, on, err := leading(ctx)
				return err == nil && now != leader && on != dead, fmt.Sprint(now, err)
			})
		}},
		step{"work goes on", func(ctx context.Context, s *testing.T) {
			create(ctx, t, after)
			awaitUnreachable(ctx, s, dead)
			for _, o := range []*v1alpha1.TcxProgram{before, after} {
				await(ctx, s, o.Name+" is attached on the nodes that live", func(ctx context.Context) (bool, string) {
					c, err := conditionOf(ctx, o)
					ok := c.Type == string(v1alpha1.ProgramReconcileSuccess) && strings.Contains(c.Message, "Attached on 2 of 2 selected nodes") && strings.Contains(c.Message, dead)
					return ok, fmt.Sprint(c, err)
				})
			}
			s.Log(kubectl(ctx, s, nil, "get", "nodes,tcxprograms,bpfprograms,bpfnodes", "-o", "wide"))
		}},
		step{"and all is as it was once the node is back", func(ctx context.Context, s *testing.T) {
			machine(ctx, s, dead, "boot")
			awaitNode(ctx, s, dead)
			for _, o := range []*v1alpha1.TcxProgram{before, after} {
				attachedOn(ctx, s, o, under.nodes())
				exactly(ctx, s, o, 1)
			}
		}},
	)
}

func podStates(pods []corev1.Pod) string {
	var states []string
	for i := range pods {
		states = append(states, podState(&pods[i])+" on "+pods[i].Spec.NodeName)
	}
	return strings.Join(states, "; ")
}

func operatorPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := under.List(ctx, &pods, client.InNamespace(bpfmanSpace), client.MatchingLabels{"control-plane": "controller-manager"}); err != nil {
		return nil, fmt.Errorf("list the operator's pods: %w", err)
	}
	return pods.Items, nil
}

// leading returns the pod of the leading operator, and its node.
func leading(ctx context.Context) (pod, nodeName string, err error) {
	lease := &coordinationv1.Lease{}
	if err := under.Get(ctx, client.ObjectKey{Namespace: bpfmanSpace, Name: "8730d955.bpfman.io"}, lease); err != nil {
		return "", "", fmt.Errorf("read the lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil {
		return "", "", nil
	}
	pod, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	pods, err := operatorPods(ctx)
	for i := range pods {
		if pods[i].Name == pod {
			return pod, pods[i].Spec.NodeName, nil
		}
	}
	return pod, "", err
}
