// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// executed returns the output of a command, including standard error, on a cluster with
// some objects.
func executed(t *testing.T, objects []client.Object, arguments ...string) string {
	t.Helper()
	out, messages, err := execute(t, clusterOf(objects...), arguments...)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return out + messages
}

// inspected returns two nodes. On the first one, some names contain escape sequences for
// terminals.
func inspected() []client.Object {
	loaded := metav1.NewTime(time.Now().Add(-90 * time.Minute))
	firewall := &v1alpha1.BpfNodeOwner{Kind: "TcxNsProgram", Namespace: "acme", Name: "firewall"}
	return []client.Object{
		&v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}, Status: v1alpha1.BpfNodeStatus{Programs: []v1alpha1.BpfNodeProgram{
			{ID: 9, Name: "evil\x1b[2J", Type: "sched_cls", LoadedAt: &loaded, AttachPoints: []v1alpha1.BpfNodeAttachPoint{
				{Type: "tcx/ingress", Interface: "eth0", Position: 1},
			}, Holders: []v1alpha1.BpfNodeHolder{{Process: "a\nb\u202e", PID: 4711, Namespace: "kube-system", Pod: "cni", Container: "agent"}}},
			{ID: 12, Name: "tcx_firewall", Type: "sched_cls", Tag: "0123456789abcdef", LoadedAt: &loaded, Bpfman: true, Owner: firewall, MapIDs: []uint32{3, 4}, AttachPoints: []v1alpha1.BpfNodeAttachPoint{
				{Type: "tcx/ingress", Interface: "eth0", Position: 2, LinkID: 3},
				{Type: "tcx/ingress", Interface: "eth0", NetNs: "4026532", Namespace: "acme", Pod: "web-0", Position: 1},
				{Type: "tcx/ingress", Interface: "eth1", Position: 1},
				{Type: "tcx/ingress", Interface: "eth2", Position: 1},
			}, Holders: []v1alpha1.BpfNodeHolder{{Path: "/run/bpfman/fs/prog_12"}}},
			{ID: 13, Name: "", Type: "cgroup_device", LoadedAt: &loaded},
			{ID: 14, Name: "xdp_dispatcher", Type: "xdp", Bpfman: true, LoadedAt: &loaded, AttachPoints: []v1alpha1.BpfNodeAttachPoint{
				{Type: "xdp", Interface: "eth0", Mode: "generic", Position: 1},
			}},
			{ID: 15, Name: "xdp_pass", Type: "ext", Bpfman: true, LoadedAt: &loaded, Owner: &v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "pass"}, AttachPoints: []v1alpha1.BpfNodeAttachPoint{
				{Type: "freplace", Target: "prog0", TargetProgramID: 14, Position: 1},
			}},
		}}},
		&v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}, Status: v1alpha1.BpfNodeStatus{
			Programs: []v1alpha1.BpfNodeProgram{{ID: 3, Name: "dump_bpf_map", Type: "tracing", LoadedAt: &loaded, AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "iter", Target: "bpf_map"}}}},
			Omitted:  &v1alpha1.BpfNodeOmitted{Programs: 7},
		}},
		&v1alpha1.TcxNsProgram{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "firewall"}, Spec: v1alpha1.TcxNsProgramSpec{TcxNsProgramInfo: v1alpha1.TcxNsProgramInfo{Priority: 40}}},
		&v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "pass"}, Spec: v1alpha1.XdpProgramSpec{XdpProgramInfo: v1alpha1.XdpProgramInfo{
			Priority: 55, ProceedOn: []v1alpha1.XdpProceedOnValue{"pass", "dispatcher_return"},
		}}},
	}
}

func TestPrograms(t *testing.T) {
	for name, arguments := range map[string][]string{
		"programs.txt":           {"programs"},
		"programs-wide.txt":      {"programs", "--all", "-o", "wide"},
		"programs-filtered.txt":  {"programs", "--node", "worker-1", "--by", "others", "--type", "sched_cls,xdp"},
		"programs-sorted.txt":    {"programs", "--sort-by", "name", "--by", "bpfman"},
		"programs-node.json":     {"programs", "--node", "worker-2", "-o", "json"},
		"programs-none.txt":      {"programs", "--type", "lsm"},
		"programs-no-node.txt":   {"programs", "--node", "worker-3"},
		"programs-by-nobody.txt": {"programs", "--by", "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			got := executed(t, inspected(), arguments...)
			if strings.HasSuffix(name, ".json") { // it contains the time
				got = strings.ReplaceAll(got, inspectedAt(t, got), "LOADED")
			}
			golden.Assert(t, got, name)
		})
	}
}

// Programs that only differ in their IDs share a row, unless each one is to be listed.
func TestProgramsAlike(t *testing.T) {
	node := &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	for id := range uint32(20) {
		node.Status.Programs = append(node.Status.Programs, v1alpha1.BpfNodeProgram{ID: 100 + id, Name: "sd_fw_ingress", Type: "cgroup_skb"})
	}
	node.Status.Programs = append(node.Status.Programs, v1alpha1.BpfNodeProgram{ID: 9, Name: "other", Type: "cgroup_skb"})
	golden.Assert(t, executed(t, []client.Object{node}, "programs"), "programs-alike.txt")
	if out := executed(t, []client.Object{node}, "programs", "-o", "wide"); strings.Count(out, "sd_fw_ingress") != 20 || strings.Contains(out, "COUNT") {
		t.Errorf("got\n%s", out)
	}
}

// inspectedAt returns the time of loading in JSON.
func inspectedAt(t *testing.T, text string) string {
	t.Helper()
	_, after, _ := strings.Cut(text, `"loadedat": "`)
	at, _, found := strings.Cut(after, `"`)
	if !found {
		t.Fatalf("no time in %s", text)
	}
	return at
}

func TestProgramsWithoutInspector(t *testing.T) {
	if got := executed(t, nil, "programs"); !strings.Contains(got, "No BpfNodes found") {
		t.Errorf("got %q", got)
	}
}

func TestChain(t *testing.T) {
	golden.Assert(t, executed(t, inspected(), "chain", "--node", "worker-1"), "chain.txt")
	golden.Assert(t, executed(t, inspected(), "chain", "--node", "worker-1", "--interface", "eth1"), "chain-interface.txt")
	golden.Assert(t, executed(t, inspected(), "chain"), "chain-no-node.txt")
	twice := inspected()
	first, ok := twice[0].(*v1alpha1.BpfNode)
	if !ok {
		t.Fatalf("%T", twice[0])
	}
	first.Status.Programs = append(first.Status.Programs, v1alpha1.BpfNodeProgram{
		ID: 19, Name: "tcx_again", Type: "sched_cls", Bpfman: true, Owner: &v1alpha1.BpfNodeOwner{Kind: "TcxNsProgram", Namespace: "acme", Name: "firewall"},
		AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tcx/ingress", Interface: "eth1", Position: 2}},
	})
	golden.Assert(t, executed(t, twice, "chain", "--node", "worker-1", "--interface", "eth1"), "chain-tied.txt")
	// The first object is worker-1, and the second worker-2.
	alone := slices.Delete(inspected(), 1, 2)
	golden.Assert(t, executed(t, alone, "chain"), "chain.txt")
	if got := executed(t, nil, "chain"); !strings.Contains(got, "no node has a BpfNode") {
		t.Errorf("got %q", got)
	}
}
