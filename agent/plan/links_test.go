// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plan

import (
	"slices"
	"testing"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// everywhere returns an application with one link, which discovers the interfaces of the node and of all pods.
func everywhere() program.Owner {
	path := "/flows.o"
	app := &v1alpha1.ClusterBpfApplication{}
	app.Name, app.UID = "flows", "uid-1"
	app.Spec.ByteCode.Path = &path
	app.Spec.Programs = []v1alpha1.ClusterBpfApplicationProgram{{
		Name: "flows", Type: v1alpha1.ApplicationTCX, TCX: &v1alpha1.TcxLinks{Links: []v1alpha1.TcxLink{{
			Direction: "Ingress", NetworkLink: v1alpha1.NetworkLink{InterfaceSelector: v1alpha1.LinkInterfaces{
				InterfacesDiscoveryConfig: &v1alpha1.LinkDiscovery{InterfaceAutoDiscovery: new(true), ExcludeInterfaces: []string{"lo"}},
			}},
		}}},
	}}
	return program.OwnerOf("ClusterBpfApplication", app)
}

// Pods with the network of the node have its interfaces, which the same link discovers on the node.
func TestLinkThatDiscoversEverywhere(t *testing.T) {
	node := program.Node{
		Name:       "node",
		Interfaces: map[string]program.Interface{"lo": {Index: 1}, "eth0": {Index: 2}},
		Containers: []program.Container{
			{Namespace: "a", Pod: "web", PodUID: "1", Name: "c", ID: "c1", PID: 7, Sandbox: "s1", NetNS: "/proc/7/ns/net", Interfaces: []string{"lo", "eth0"}},
			{Namespace: "b", Pod: "proxy", PodUID: "2", Name: "c", ID: "c2", PID: 8, Sandbox: "s2", HostNetwork: true},
		},
	}
	p := Want(everywhere(), node, nil)
	if len(p.Loads) != 1 || len(p.Loads[0].Functions) != 1 || len(p.Loads[0].Programs) != 2 {
		t.Fatalf("loads %+v", p.Loads)
	}
	for i, want := range [][]string{{"eth0 ingress"}, {"eth0 ingress in pod a/web"}} {
		var names []string
		for _, point := range p.Loads[0].Programs[i].Points {
			names = append(names, point.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("program %d is attached to %q, want %q", i, names, want)
		}
	}
	attached := 0
	for _, step := range p.Diff(nil) {
		if step.Op == OpAttach {
			attached++
		}
	}
	if attached != 2 {
		t.Errorf("%d links, want 2", attached)
	}
}

// A program of any type is loaded without links, also without the fields that only attaching needs.
func TestProgramsWithoutLinks(t *testing.T) {
	path := "/flows.o"
	app := &v1alpha1.ClusterBpfApplication{}
	app.Spec.ByteCode.Path = &path
	app.Spec.Programs = []v1alpha1.ClusterBpfApplicationProgram{
		{Name: "xdp", Type: v1alpha1.ApplicationXDP, XDP: &v1alpha1.XdpLinks{}},
		{Name: "tc", Type: v1alpha1.ApplicationTC, TC: &v1alpha1.TcLinks{}},
		{Name: "tcx", Type: v1alpha1.ApplicationTCX, TCX: &v1alpha1.TcxLinks{}},
		{Name: "fentry", Type: v1alpha1.ApplicationFEntry, FEntry: &v1alpha1.FunctionLinks{Function: "schedule"}},
		{Name: "fexit", Type: v1alpha1.ApplicationFExit, FExit: &v1alpha1.FunctionLinks{Function: "schedule"}},
		{Name: "kprobe", Type: v1alpha1.ApplicationKProbe, KProbe: &v1alpha1.KprobeLinks{}},
		{Name: "kretprobe", Type: v1alpha1.ApplicationKRetProbe, KRetProbe: &v1alpha1.KretprobeLinks{}},
		{Name: "uprobe", Type: v1alpha1.ApplicationUProbe, UProbe: &v1alpha1.UprobeLinks{}},
		{Name: "uretprobe", Type: v1alpha1.ApplicationURetProbe, URetProbe: &v1alpha1.UprobeLinks{}},
		{Name: "tracepoint", Type: v1alpha1.ApplicationTracePoint, TracePoint: &v1alpha1.TracepointLinks{}},
	}
	p := Want(program.OwnerOf("ClusterBpfApplication", app), program.Node{}, nil)
	if len(p.Blocked) > 0 || len(p.Loads) != 1 || len(p.Loads[0].Programs) != len(app.Spec.Programs) {
		t.Fatalf("blocked %+v, loads %+v", p.Blocked, p.Loads)
	}
	for _, wanted := range p.Loads[0].Programs {
		if len(wanted.Points) > 0 || wanted.Problem != nil || wanted.Attached() {
			t.Errorf("%s: %+v", wanted.ID, wanted)
		}
	}
}
