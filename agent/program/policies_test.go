// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
)

// linked has a program of each type, whose links differ in what decides where they are attached.
const linked = `{"metadata":{"name":"app"},"spec":{"nodeSelector":{},"byteCode":{"path":"/x.o"},"programs":[
	{"name":"xdp","type":"XDP","xdp":{"links":[{"interfaceSelector":{"interfaces":["eth0","eth1"]},"priority":7},
		{"interfaceSelector":{"primaryNodeInterface":false}},
		{"interfaceSelector":{"interfaces":["eth2"]},"networkNamespaces":{"pods":{}}}]}},
	{"name":"tc","type":"TC","tc":{"links":[{"interfaceSelector":{"interfaces":["eth0"]},"direction":"Ingress","priority":8},
		{"interfaceSelector":{"interfaces":["eth1"]},"direction":"egress","priority":9}]}},
	{"name":"tcx","type":"TCX","tcx":{"links":[{"interfaceSelector":{"interfacesDiscoveryConfig":{"interfaceAutoDiscovery":true}},"direction":"ingress","priority":10},
		{"interfaceSelector":{"interfaces":["eth0"],"primaryNodeInterface":true},"direction":"Egress"}]}},
	{"name":"fentry","type":"FEntry","fentry":{"function":"do_unlinkat","links":[{"mode":"Attach"}]}},
	{"name":"fexit","type":"FExit","fexit":{"function":"do_rmdir"}},
	{"name":"kprobe","type":"KProbe","kprobe":{"links":[{"function":"a"},{"function":"b","offset":4}]}},
	{"name":"kretprobe","type":"KRetProbe","kretprobe":{"links":[{"function":"c"},{"function":"d"}]}},
	{"name":"uprobe","type":"UProbe","uprobe":{"links":[{"target":"libc","function":"f"},{"target":"/bin/sh","containers":{"pods":{}}}]}},
	{"name":"uretprobe","type":"URetProbe","uretprobe":{"links":[{"target":"libssl"}]}},
	{"name":"tracepoint","type":"TracePoint","tracepoint":{"links":[{"name":"sched/sched_switch"},{"name":"sched/sched_wakeup"}]}}]}}`

// Policies see each place where the daemon is asked to attach a program: the hooks that the object names, those of attach points
// that the node finds out, and, of programs whose hook is fixed at the Load, the function of the Load.
func TestPoliciesSeeEachAttachPoint(t *testing.T) {
	app := &v1alpha1.ClusterBpfApplication{}
	if err := json.Unmarshal([]byte(linked), app); err != nil {
		t.Fatal(err)
	}
	node := Node{
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Interfaces: map[string]Interface{
			"eth0": {Index: 2}, "eth1": {Index: 3}, "primary": {Index: 1, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		},
		Containers: []Container{
			{Namespace: "default", Pod: "web", PodUID: "u", Sandbox: "s", NetNS: "/run/netns/a", Interfaces: []string{"eth0"}},
			{Namespace: "default", Pod: "web", PodUID: "u", Sandbox: "s", NetNS: "/run/netns/a", Name: "c", ID: "c", PID: 7},
		},
	}
	owner, subject := OwnerOf("ClusterBpfApplication", app), policy.SubjectOf("ClusterBpfApplication", app)
	if len(owner.Members) != len(subject.Programs) {
		t.Fatalf("policies see %d of %d programs", len(subject.Programs), len(owner.Members))
	}
	seen := 0
	for i, m := range owner.Members {
		p := subject.Programs[i]
		if p.Name != m.LoadInfo().GetName() || !strings.EqualFold(strings.ReplaceAll(m.ProgramType, "ret", ""), string(p.Type)) {
			t.Errorf("%s is %s %s for policies", m.ID, p.Type, p.Name)
		}
		if load := m.LoadInfo().GetInfo(); load != nil {
			function := load.GetFentryLoadInfo().GetFnName() + load.GetFexitLoadInfo().GetFnName()
			if !slices.Contains(p.Hooks, policy.Hook{Type: policy.Function, Name: function}) {
				t.Errorf("%s is loaded for %s, and policies see %+v", m.ID, function, p.Hooks)
			}
			seen++
			continue
		}
		points, err := m.AttachPoints(node)
		if err != nil || m.Attached() && len(points) == 0 {
			t.Errorf("%s: %d attach points, %v", m.ID, len(points), err)
		}
		for _, point := range points {
			hook, isNamed := HookOf(point.Info), !point.Discovered && !strings.HasPrefix(point.Name, "primary")
			if hook == (policy.Hook{}) || isNamed && !slices.Contains(p.Hooks, hook) {
				t.Errorf("%s is attached to %s, and policies see %+v", m.ID, point.Name, p.Hooks)
			}
			if at := point.Hook(); at.Priority != nil && (p.Priority == nil || *p.Priority != *at.Priority) {
				t.Errorf("%s is attached with priority %d", point.Name, *at.Priority)
			}
			seen++
		}
	}
	if seen != 22 {
		t.Errorf("%d places", seen)
	}
}
