// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// simulated is a cluster without kubelets, agents, and inspectors: a kube-apiserver with what they would have written.
type simulated struct {
	client.Client

	nodes, programs int
}

// What differs on some nodes.
const (
	notReady  = 11 // its kubelet
	unknown   = 23 // it has no BpfNode
	failsOn   = 5  // the object named failing; on each 97th node
	conflicts = 7  // with a foreign program at eth0; on each 50th node
	failing   = "exec-log"
)

var purposes = []string{"flow-monitor", "ingress-firewall", "dns-trace", "syscall-audit", failing, "conn-tracker", "latency-hist", "drop-stats", "oom-watch", "tcp-retransmits"}

func nodeName(i int) string { return fmt.Sprintf("worker-%04d", i) }

func objectName(k int) string {
	if k < len(purposes) {
		return purposes[k]
	}
	return fmt.Sprintf("%s-%d", purposes[k%len(purposes)], k/len(purposes)+1)
}

func failsAt(i int) bool     { return i%97 == failsOn }
func conflictsAt(i int) bool { return i%50 == conflicts }

// simulate fills the API server.
func simulate(tb testing.TB, config *rest.Config, nodes, programs int) *simulated {
	tb.Helper()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		tb.Fatal(err)
	}
	s := &simulated{c, nodes, programs}
	writers, ctx := errgroup.WithContext(tb.Context())
	const writing = 16
	writers.SetLimit(writing)
	for k := range programs {
		writers.Go(func() error { return s.object(ctx, k) })
	}
	for i := range nodes {
		writers.Go(func() error { return s.node(ctx, i) })
	}
	must.Succeed(tb, writers.Wait())
	return s
}

// lacks is the agent's message about the failing object.
const lacks = "the bytecode has no function count_packets (did you mean count_packet?); its functions are count_packet, when loading from image registry.example.com/ebpf/exec-log:v1.0"

// object writes an object as its user and the operator do, and the reports of the failing one.
func (s *simulated) object(ctx context.Context, k int) error {
	failed := 0
	if objectName(k) == failing {
		for i := range s.nodes {
			if failsAt(i) {
				failed++
			}
		}
	}
	object := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: objectName(k)}}
	object.Spec.BpfFunctionName = "count_packets"
	object.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: fmt.Sprintf("registry.example.com/ebpf/%s:v1.%d", purposes[k%len(purposes)], k/len(purposes))}
	object.Spec.Direction = "ingress"
	object.Spec.Priority = int32(k)
	object.Spec.InterfaceSelector.PrimaryNodeInterface = new(true)
	if err := s.Create(ctx, object); err != nil {
		return fmt.Errorf("create %s: %w", object.Name, err)
	}
	condition := metav1.Condition{Type: "ReconcileSuccess", Status: metav1.ConditionTrue, Reason: "ReconcileSuccess", Message: "attached on all nodes", LastTransitionTime: metav1.Now()}
	if failed > 0 {
		object.Status.Problem = string(problem.NoSuchFunction)
		condition.Type, condition.Reason = "ReconcileError", "ReconcileError"
		condition.Message = fmt.Sprintf("Failed on %d nodes: %s: %s", failed, nodeName(failsOn), lacks)
	}
	count := int32(s.nodes)
	object.Status.Conditions = []metav1.Condition{condition}
	object.Status.ObservedGeneration = object.Generation
	object.Status.Nodes = &v1alpha1.NodeCounts{Selected: count, Attached: count - int32(failed), Failed: int32(failed)}
	if err := s.Status().Update(ctx, object); err != nil {
		return fmt.Errorf("write the status of %s: %w", object.Name, err)
	}
	if failed == 0 {
		return nil
	}
	const reported = 400 // the reports of other nodes where it is attached make no difference
	for i := range s.nodes {
		if i >= reported && !failsAt(i) {
			continue
		}
		if err := s.report(ctx, object, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *simulated) report(ctx context.Context, owner *v1alpha1.TcxProgram, i int) error {
	report := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{
		Name:   fmt.Sprintf("%s-%04d", owner.Name, i),
		Labels: map[string]string{v1alpha1.LabelOwnedByProgram: owner.Name, v1alpha1.LabelOwnerKind: "TcxProgram", corev1.LabelHostname: nodeName(i)},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TcxProgram", Name: owner.Name, UID: owner.UID, Controller: new(true),
		}},
	}, Spec: v1alpha1.BpfProgramSpec{Type: "tcx"}}
	if err := s.Create(ctx, report); err != nil {
		return fmt.Errorf("create report %s: %w", report.Name, err)
	}
	condition := metav1.Condition{Type: "Loaded", Status: metav1.ConditionTrue, Reason: "bpfmanLoaded", Message: "loaded", LastTransitionTime: metav1.Now()}
	report.Status = v1alpha1.BpfProgramStatus{Node: nodeName(i), OwnerGeneration: owner.Generation, Function: "count_packets"}
	if failsAt(i) {
		condition.Type, condition.Reason, condition.Message = "NotLoaded", "bpfmanNotLoaded", lacks
		report.Status.Problem = string(problem.NoSuchFunction)
	} else {
		report.Status.ProgramID = 104
		report.Status.Links = []v1alpha1.BpfProgramLink{{AttachPoint: "eth0 ingress", State: v1alpha1.LinkAttached, LinkID: 4}}
	}
	report.Status.Conditions = []metav1.Condition{condition}
	if err := s.Status().Update(ctx, report); err != nil {
		return fmt.Errorf("write the status of report %s: %w", report.Name, err)
	}
	return nil
}

// node writes a node as its kubelet and its inspector do.
func (s *simulated) node(ctx context.Context, i int) error {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}
	if i == notReady {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}}
	if err := s.Create(ctx, node); err != nil {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	if i == unknown {
		return nil
	}
	inventory := &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}
	if err := s.Create(ctx, inventory); err != nil {
		return fmt.Errorf("create BpfNode %s: %w", node.Name, err)
	}
	inventory.Status = s.inventory(i)
	if err := s.Status().Update(ctx, inventory); err != nil {
		return fmt.Errorf("write the status of BpfNode %s: %w", node.Name, err)
	}
	return nil
}

func (s *simulated) inventory(i int) v1alpha1.BpfNodeStatus {
	loaded := metav1.NewTime(time.Now().Add(-2 * time.Hour))
	out := v1alpha1.BpfNodeStatus{KernelVersion: "6.12.9", Programs: []v1alpha1.BpfNodeProgram{{
		ID: 31, Name: "sd_fw_egress", Type: "cgroup_skb", LoadedAt: &loaded,
		AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "cgroup_inet_egress", Target: "/system.slice/systemd-logind.service"}},
		Holders:      []v1alpha1.BpfNodeHolder{{Holds: "program", Process: "systemd", PID: 1, Unit: "init.scope"}},
	}}}
	position := int32(1)
	if conflictsAt(i) {
		out.Programs = append(out.Programs, v1alpha1.BpfNodeProgram{
			ID: 60, Name: "cil_from_netdev", Type: "sched_cls", LoadedAt: &loaded,
			AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tcx/ingress", Interface: "eth0", LinkID: 3, Position: position}},
			Holders:      []v1alpha1.BpfNodeHolder{{Holds: "link", Process: "cilium-agent", PID: 4711, Namespace: "kube-system", Pod: fmt.Sprintf("cilium-%04d", i), Container: "cilium-agent"}},
		})
		out.Conflicts = []v1alpha1.BpfNodeConflict{{
			Type: v1alpha1.BpfNodeEarlierInChain, ProgramID: 60, Owner: &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: objectName(0)},
			Message: "program 60 (cil_from_netdev) runs before program 100 at tcx/ingress eth0, and its verdict can end the chain",
		}}
		out.ConflictCount = 1
		position++
		for id := range uint32(3) { // alike
			out.Programs = append(out.Programs, v1alpha1.BpfNodeProgram{
				ID: 61 + id, Name: "exec_probe", Type: "tracepoint", LoadedAt: &loaded,
				AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tracepoint", LinkID: 61 + id, Target: "syscalls/sys_enter_execve"}},
				Holders:      []v1alpha1.BpfNodeHolder{{Holds: "link", Process: "auditor", PID: 4712, Unit: "auditor.service"}},
			})
		}
	}
	for k := range s.programs {
		if objectName(k) == failing && failsAt(i) {
			continue
		}
		id := uint32(100 + k)
		p := v1alpha1.BpfNodeProgram{
			ID: id, Name: "count_packets", Type: "sched_cls", Tag: "0123456789abcdef", LoadedAt: &loaded, MapIDs: []uint32{500 + id}, Bpfman: true,
			Owner:   &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: objectName(k)},
			Holders: []v1alpha1.BpfNodeHolder{{Holds: "program", Path: fmt.Sprint("/run/bpfman/fs/prog_", id)}, {Holds: "link", Path: fmt.Sprint("/run/bpfman/fs/links/", id)}},
		}
		switch k % 4 {
		case 0:
			p.AttachPoints = []v1alpha1.BpfNodeAttachPoint{{Type: "tcx/ingress", LinkID: id, Interface: "eth0", Position: position}}
			position++
		case 1:
			p.AttachPoints = []v1alpha1.BpfNodeAttachPoint{{Type: "tcx/egress", LinkID: id, Interface: "eth0", Position: int32(k/4 + 1)}}
		case 2: //nolint:mnd // each fourth
			p.Type, p.AttachPoints = "tracepoint", []v1alpha1.BpfNodeAttachPoint{{Type: "tracepoint", LinkID: id, Target: "syscalls/sys_enter_execve"}}
		default:
			p.Type, p.AttachPoints = "kprobe", []v1alpha1.BpfNodeAttachPoint{{Type: "kprobe", LinkID: id, Target: "tcp_v4_connect"}}
		}
		out.Programs = append(out.Programs, p)
		out.Maps = append(out.Maps, v1alpha1.BpfNodeMap{ID: 500 + id, Name: "packet_counts", Type: "percpu_array", KeySize: 4, ValueSize: 16, MaxEntries: 1, MemoryBytes: 4096, Pins: []string{fmt.Sprintf("/run/bpfman/fs/maps/%d/packet_counts", id)}})
		out.BpfmanCount++
	}
	out.ProgramCount = int32(len(out.Programs))
	out.OtherCount, out.MapCount = out.ProgramCount-out.BpfmanCount, int32(len(out.Maps))
	return out
}
