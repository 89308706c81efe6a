// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/userobject"
)

func TestEveryKindHasARow(t *testing.T) {
	for _, kind := range v1alpha1.UserKinds {
		if strings.HasSuffix(kind.Name, "Application") {
			continue
		}
		owner := OwnerOf(kind.Name, kind.New())
		if len(owner.Members) != 1 || !strings.HasPrefix(strings.ToLower(kind.Name), owner.Members[0].Type) {
			t.Errorf("%s: %v", kind.Name, owner.Members)
		}
	}
}

// Upstream's fault 4: Kretprobe and Uretprobe members are read from the wrong
// configuration. If that is missing, the agent panics.
func TestUpstreamFault04ApplicationMembersOfEachType(t *testing.T) {
	app := &v1alpha1.BpfApplication{}
	app.Spec.Programs = []v1alpha1.BpfApplicationProgram{
		{Type: v1alpha1.ProgTypeXDP, XDP: &v1alpha1.XdpProgramInfo{BpfProgramCommon: named("f0")}},
		{Type: v1alpha1.ProgTypeTC, TC: &v1alpha1.TcProgramInfo{BpfProgramCommon: named("f1"), Direction: "ingress"}},
		{Type: v1alpha1.ProgTypeTCX, TCX: &v1alpha1.TcxProgramInfo{BpfProgramCommon: named("f2"), Direction: "egress"}},
		{Type: v1alpha1.ProgTypeFentry, Fentry: &v1alpha1.FentryProgramInfo{BpfProgramCommon: named("f3"), FunctionName: "do_unlinkat"}},
		{Type: v1alpha1.ProgTypeFexit, Fexit: &v1alpha1.FexitProgramInfo{BpfProgramCommon: named("f4"), FunctionName: "do_unlinkat"}},
		{Type: v1alpha1.ProgTypeKprobe, Kprobe: &v1alpha1.KprobeProgramInfo{BpfProgramCommon: named("f5"), FunctionName: "try_to_wake_up"}},
		{Type: v1alpha1.ProgTypeKretprobe, Kretprobe: &v1alpha1.KprobeProgramInfo{BpfProgramCommon: named("f6"), FunctionName: "try_to_wake_up"}},
		{Type: v1alpha1.ProgTypeUprobe, Uprobe: &v1alpha1.UprobeProgramInfo{BpfProgramCommon: named("f7"), FunctionName: "main.getCount", Target: "/go-target"}},
		{Type: v1alpha1.ProgTypeUretprobe, Uretprobe: &v1alpha1.UprobeProgramInfo{BpfProgramCommon: named("f8"), FunctionName: "malloc", Target: "libc"}},
		{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &v1alpha1.TracepointProgramInfo{BpfProgramCommon: named("f9")}},
		{Type: v1alpha1.ProgTypeLSM, LSM: &v1alpha1.LsmProgramInfo{BpfProgramCommon: named("f10"), HookName: "file_open"}},
	}
	owner := OwnerOf("BpfApplication", app)
	var ids []string
	for _, m := range owner.Members {
		if m.Type != "application" {
			t.Errorf("%s has type %q", m.ID, m.Type)
		}
		ids = append(ids, m.ID)
	}
	want := []string{
		"xdp-f0", "tc-ingress-f1", "tcx-egress-f2", "fentry-do-unlinkat-f3", "fexit-do-unlinkat-f4", "kprobe-try-to-wake-up-f5",
		"kretprobe-try-to-wake-up-f6", "uprobe-main.getcount-f7", "uretprobe-malloc-f8", "tracepoint-f9", "lsm-file-open-f10",
	}
	if !slices.Equal(ids, want) {
		t.Errorf("ids %v, want %v", ids, want)
	}

	for i := range app.Spec.Programs {
		app.Spec.Programs[i] = v1alpha1.BpfApplicationProgram{Type: app.Spec.Programs[i].Type}
	}
	app.Spec.Programs[1].Type = ""
	owner = OwnerOf("BpfApplication", app)
	if len(owner.Members) != len(app.Spec.Programs) {
		t.Fatalf("members %v", owner.Members)
	}
	for i, want := range []string{`spec.programs[0] has no configuration for its type "XDP"`, "spec.programs[1] has no type"} {
		if got := owner.Members[i].Incomplete(); !strings.HasPrefix(text(got), want) {
			t.Errorf("member %d: %v, want %q", i, got, want)
		}
	}
}

// Incomplete objects, which upstream's schema permits and which can't work, are
// reported before any attempt to load them.
func TestIncomplete(t *testing.T) {
	common := v1alpha1.BpfProgramCommon{BpfFunctionName: "f"}
	for name, test := range map[string]struct {
		kind Spec
		want string
	}{
		"no function":            {tracepointOf(&v1alpha1.TracepointProgramInfo{Names: []string{"a/b"}}), "bpffunctionname is empty"},
		"xdp without function":   {xdpOf(&v1alpha1.XdpProgramInfo{}, false), "bpffunctionname is empty"},
		"fentry of nothing":      {fentryOf(&v1alpha1.FentryProgramInfo{BpfProgramCommon: common}), "func_name is empty"},
		"fexit of nothing":       {fexitOf(&v1alpha1.FexitProgramInfo{BpfProgramCommon: common}), "func_name is empty"},
		"LSM without hook":       {lsmOf(&v1alpha1.LsmProgramInfo{BpfProgramCommon: common}), "hook_name is empty"},
		"kprobe of nothing":      {kprobeOf("kprobe", &v1alpha1.KprobeProgramInfo{BpfProgramCommon: common}), "func_name is empty"},
		"uprobe without target":  {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{BpfProgramCommon: common}, false), "target is empty"},
		"uprobe without symbol":  {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{BpfProgramCommon: common, Target: "libc"}, false), ""},
		"kretprobe with offset":  {kprobeOf("kretprobe", &v1alpha1.KprobeProgramInfo{BpfProgramCommon: common, FunctionName: "g", Offset: 4}), ""},
		"tracepoint, none named": {tracepointOf(&v1alpha1.TracepointProgramInfo{BpfProgramCommon: common}), ""},
	} {
		if got := test.kind.Incomplete(); text(got) != test.want {
			t.Errorf("%s: %v, want %q", name, got, test.want)
		}
	}
}

// Upstream only checks the presence of primarynodeinterface, and uses the image if
// there is a path as well.
func TestChoices(t *testing.T) {
	path, no := "/x.o", false
	o := &v1alpha1.XdpProgram{}
	o.Spec.BpfFunctionName = "f"
	o.Spec.ByteCode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "quay.io/a/b"}, Path: &path}
	o.Spec.InterfaceSelector.PrimaryNodeInterface = &no
	owner := OwnerOf("XdpProgram", o)
	want := []problem.Note{
		{Reason: problem.TwoBytecodes, Text: "bytecode has both an image and a path: the image is used"},
		{Reason: problem.FieldWithoutEffect, Text: "primarynodeinterface: false also selects the primary interface"},
	}
	if got := owner.Choices(owner.Members[0]); !slices.Equal(got, want) {
		t.Errorf("choices %q", got)
	}
	o.Spec.ByteCode.Path = nil
	*o.Spec.InterfaceSelector.PrimaryNodeInterface = true
	if owner = OwnerOf("XdpProgram", o); len(owner.Choices(owner.Members[0])) > 0 {
		t.Errorf("choices %q", owner.Choices(owner.Members[0]))
	}
}

// Upstream's fault 16: members with the same ID overwrite one object.
func TestUpstreamFault16MembersOfOneIDStayApart(t *testing.T) {
	app := &v1alpha1.BpfApplication{}
	for range 3 {
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{
			Type: v1alpha1.ProgTypeXDP, XDP: &v1alpha1.XdpProgramInfo{BpfProgramCommon: named("stats")},
		})
	}
	owner := OwnerOf("BpfApplication", app)
	for i, want := range []string{"xdp-stats", "xdp-stats-2", "xdp-stats-3"} {
		if owner.Members[i].ID != want {
			t.Errorf("member %d has id %q, want %q", i, owner.Members[i].ID, want)
		}
	}
}

func named(function string) v1alpha1.BpfProgramCommon {
	return v1alpha1.BpfProgramCommon{BpfFunctionName: function}
}

func interfaces(names ...string) v1alpha1.InterfaceSelector {
	return v1alpha1.InterfaceSelector{Interfaces: &names}
}

func primary() v1alpha1.InterfaceSelector {
	yes := true
	return v1alpha1.InterfaceSelector{PrimaryNodeInterface: &yes}
}

var node = Node{
	Name:      "n1",
	Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")},
	Interfaces: map[string]Interface{
		"lo":   {Index: 1, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		"eth0": {Index: 2, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}},
		"eth1": {Index: 3, Addresses: []netip.Addr{netip.MustParseAddr("fd00::7")}},
	},
	Containers: []Container{
		{Namespace: "acme", Pod: "web-0", PodUID: "u1", PodLabels: map[string]string{"app": "web"}, Sandbox: "s1", NetNS: "/proc/10/ns/net", Name: "web", ID: "c1", PID: 11},
		{Namespace: "acme", Pod: "web-0", PodUID: "u1", PodLabels: map[string]string{"app": "web"}, Sandbox: "s1", NetNS: "/proc/10/ns/net", Name: "log", ID: "c2", PID: 12},
		{Namespace: "evil", Pod: "web-0", PodUID: "u2", PodLabels: map[string]string{"app": "web"}, Sandbox: "s2", NetNS: "/var/run/netns/n2", Name: "web", ID: "c3", PID: 21},
		{Namespace: "acme", Pod: "net-a", PodUID: "u3", PodLabels: map[string]string{"app": "net"}, HostNetwork: true, Sandbox: "s3", Name: "net", ID: "c4", PID: 31},
		{Namespace: "acme", Pod: "net-b", PodUID: "u4", PodLabels: map[string]string{"app": "net"}, HostNetwork: true, Sandbox: "s4", Name: "net", ID: "c5", PID: 41},
	},
}

func app(label string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{"app": label}}
}

// What the daemon finds by a PID has the process that the container runtime named.
func TestProcessesOfAttachPoints(t *testing.T) {
	n := node
	n.UprobeNamespaces = []string{"*"}
	interfaces := v1alpha1.InterfaceSelector{Interfaces: &[]string{"eth0"}}
	for name, c := range map[string]struct {
		spec Spec
		want []Process
	}{
		"on interfaces in pods":    {xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: interfaces, Containers: &v1alpha1.ContainerSelector{Pods: app("web")}}, false), []Process{{10, "s1", "acme"}, {}}},
		"on interfaces of a node":  {xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: interfaces}, false), []Process{{}}},
		"in containers":            {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "/bin/web", Containers: &v1alpha1.ContainerSelector{Pods: app("web")}}, false), []Process{{11, "c1", "acme"}, {12, "c2", "acme"}, {21, "c3", "evil"}}},
		"in a file of the node":    {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "/bin/web"}, false), []Process{{}}},
		"on the network of a node": {xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: interfaces, Containers: &v1alpha1.ContainerSelector{Pods: app("net")}}, false), []Process{{}}},
	} {
		points, err := c.spec.AttachPoints(n)
		if err != nil || len(points) != len(c.want) {
			t.Fatalf("%s: %v, %v", name, points, err)
		}
		for i, p := range points {
			if got := ptr.Deref(p.Process, Process{}); got != c.want[i] {
				t.Errorf("%s, %s: %v, want %v", name, p.Name, got, c.want[i])
			}
		}
	}
}

// What isn't attached in a container, and stays for the cluster-scoped kind.
func TestUprobesThatSeeMoreThanTheContainer(t *testing.T) {
	hostPID := node
	hostPID.UprobeNamespaces, hostPID.Containers = []string{"*"}, slices.Clone(node.Containers)
	for i := range hostPID.Containers {
		hostPID.Containers[i].HostPID = true
	}
	pid := &v1alpha1.UprobeNsProgramInfo{Target: "/bin/web", Pid: 1}
	for name, test := range map[string]struct {
		kind Spec
		want string
	}{
		"hostPID":                   {tenant("acme", &v1alpha1.UprobeNsProgramInfo{Target: "/proc/1/root/bin/sh"}), "(hostPID)"},
		"a process":                 {tenant("acme", pid), "remove pid"},
		"cluster-scoped, hostPID":   {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "/bin/web", Containers: &v1alpha1.ContainerSelector{Namespace: "acme"}}, false), ""},
		"cluster-scoped, a process": {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "/bin/web", Pid: 1, Containers: &v1alpha1.ContainerSelector{}}, false), "remove pid"},
	} {
		points, err := test.kind.AttachPoints(hostPID)
		if err != nil || len(points) == 0 {
			t.Fatalf("%s: %+v, %v", name, points, err)
		}
		for _, p := range points {
			if !strings.Contains(text(p.Lack), test.want) || (p.Lack == nil) != (test.want == "") || p.Withdrawn != (test.want != "") {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

// The daemon reads the target of a uprobe outside of containers. It reaches the node's files through the root of a process.
func TestUprobeTargetsThatBlock(t *testing.T) {
	for target, blocks := range map[string]bool{
		"libc": false, "/usr/bin/app": false, "/run/app": false, "/run/bpfman-of-others/app": false, "/proc": true, "/dev/zero": true,
		"/run/bpfman/fs/maps/7/b": true, "//var/run/./bpfman/x/../fs/maps/7/b": true, "/sys/fs/bpf/m": true, "/proc/kmsg": true,
		"/proc/1/root/usr/bin/app": false, "/host/proc/1/root/usr/bin/app": false, "/proc/12/exe": false, "/host/proc/12/map_files/1-2": false,
		"/proc/1/root/run/bpfman/fs/maps/7/b": true, "/proc/1/root/../run/bpfman/fs/maps/7/b": true, "/proc/1/root/../../dev/zero": true,
		"/host/proc/self/task/1/cwd/run/bpfman/x": true, "/proc/1/root/proc/1/root/sys/fs/bpf/m": true, "/proc/1/root/proc/1/exe": false,
		"/proc/1/fd/3": true, "/proc/1/fd/../root/bin/app": false, "/proc/1/root/host/proc/kmsg": true,
	} {
		points, err := uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: target, FunctionName: "main"}, false).AttachPoints(node)
		if err != nil || len(points) != 1 {
			t.Fatalf("%s: %+v, %v", target, points, err)
		}
		if p := points[0]; (p.Lack != nil) != blocks || p.Withdrawn != blocks || blocks && !strings.Contains(text(p.Lack), "target "+target+" is not a regular file") {
			t.Errorf("%s: lacks %v, withdrawn: %t", target, p.Lack, p.Withdrawn)
		}
	}
}

// A uprobe of a namespace runs for processes of other namespaces, so it is only attached where that is allowed.
func TestUprobesOfNamespaces(t *testing.T) {
	for _, test := range []struct {
		allowed []string
		want    bool
	}{{nil, false}, {[]string{"beta", "acme"}, true}, {[]string{"acm"}, false}, {[]string{"*"}, true}} {
		n := node
		n.UprobeNamespaces = test.allowed
		for member, kind := range map[string]Spec{
			"namespaced":     tenant("acme", &v1alpha1.UprobeNsProgramInfo{Target: "/bin/web", FunctionName: "main"}),
			"cluster-scoped": uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "/bin/web", FunctionName: "main", Containers: &v1alpha1.ContainerSelector{Namespace: "acme"}}, false),
		} {
			points, err := kind.AttachPoints(n)
			if err != nil || len(points) == 0 {
				t.Fatalf("%+v, %v", points, err)
			}
			for _, p := range points {
				want := test.want || member == "cluster-scoped"
				if attached := p.Lack == nil && !p.Withdrawn; attached != want || !want && !strings.Contains(text(p.Lack), "bpfman.uprobe.namespaces") {
					t.Errorf("%s, allowed %q: %+v", member, test.allowed, p)
				}
			}
		}
	}
}

// A namespaced program isn't attached to the interfaces of the node through a pod that uses the node's network.
func TestNamespacedProgramsStayOffTheNodesNetwork(t *testing.T) {
	yes := true
	everywhere := node
	everywhere.Containers = slices.Clone(node.Containers)
	for i := range everywhere.Containers {
		everywhere.Containers[i].PodLabels = app("web").MatchLabels
	}
	for name, interfaces := range map[string]v1alpha1.InterfaceSelector{
		"by name": interfaces("eth0"), "the primary interface": {PrimaryNodeInterface: &yes}, "discovered": discover(nil, nil),
	} {
		pods := v1alpha1.ContainerNsSelector{Pods: app("web")}
		for hook, kind := range map[string]Spec{
			"xdp": tenant("acme", &v1alpha1.XdpNsProgramInfo{InterfaceSelector: interfaces, Containers: &pods}),
			"tc":  tenant("acme", &v1alpha1.TcNsProgramInfo{InterfaceSelector: interfaces, Containers: &pods, Direction: "ingress"}),
			"tcx": tenant("acme", &v1alpha1.TcxNsProgramInfo{InterfaceSelector: interfaces, Containers: &pods, Direction: "ingress"}),
		} {
			points, err := kind.AttachPoints(everywhere)
			if err != nil {
				t.Fatal(err)
			}
			refused := 0
			for _, p := range points {
				switch {
				case p.Name == "interfaces in pod acme/net-a" && strings.Contains(text(p.Lack), "hostNetwork") && p.Info == nil:
					refused++
				case !strings.HasSuffix(p.Name, " in pod acme/web-0"):
					t.Errorf("%s %s: %s, %v", hook, name, p.Name, p.Lack)
				}
			}
			if refused != 1 {
				t.Errorf("%s %s: refused %d times: %+v", hook, name, refused, points)
			}
		}
	}
}

func TestAttachPoints(t *testing.T) {
	log := []string{"log"}
	for name, test := range map[string]struct {
		kind Spec
		node Node
		want map[string]string // the daemon's argument by the name of the point
		err  string
	}{
		"interfaces, one of them twice and one absent": {
			kind: xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: interfaces("eth1", "eth0", "eth9", "eth0"), Priority: 50, ProceedOn: []v1alpha1.XdpProceedOnValue{"pass", "dispatcher_return", "pass"}}, false),
			node: node,
			want: map[string]string{
				"eth0": `xdp_attach_info:{priority:50 iface:"eth0" proceed_on:2 proceed_on:31}`,
				"eth1": `xdp_attach_info:{priority:50 iface:"eth1" proceed_on:2 proceed_on:31}`,
				"eth9": `xdp_attach_info:{priority:50 iface:"eth9" proceed_on:2 proceed_on:31}`,
			},
		},
		"the primary interface": {
			kind: tcOf(&v1alpha1.TcProgramInfo{InterfaceSelector: primary(), Direction: "egress", Priority: 1, ProceedOn: []v1alpha1.TcProceedOnValue{"unspec", "pipe"}}, false),
			node: node,
			want: map[string]string{"eth0 egress": `tc_attach_info:{priority:1 iface:"eth0" direction:"egress" proceed_on:-1 proceed_on:3}`},
		},
		"the primary interface by the second address": {
			kind: tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: primary(), Direction: "ingress"}, false),
			node: Node{Addresses: node.Addresses, Interfaces: map[string]Interface{"eth1": node.Interfaces["eth1"]}},
			want: map[string]string{"eth1 ingress": `tcx_attach_info:{iface:"eth1" direction:"ingress"}`},
		},
		"no primary interface": {
			kind: tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: primary(), Direction: "ingress"}, false),
			node: Node{Name: "n1", Addresses: node.Addresses[:1]},
			err:  "no interface of node n1 has one of its internal addresses [10.0.0.7]",
		},
		"pods of every namespace, once each": {
			kind: tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: interfaces("eth0"), Direction: "ingress", Containers: &v1alpha1.ContainerSelector{Pods: app("web")}}, false),
			node: node,
			want: map[string]string{
				"eth0 ingress in pod acme/web-0": `tcx_attach_info:{iface:"eth0" direction:"ingress" netns:"/host/proc/10/ns/net"}`,
				"eth0 ingress in pod evil/web-0": `tcx_attach_info:{iface:"eth0" direction:"ingress" netns:"/host/proc/1/root/run/netns/n2"}`,
			},
		},
		"pods of the own namespace only": {
			kind: tenant("acme", &v1alpha1.XdpNsProgramInfo{InterfaceSelector: interfaces("eth0"), Containers: &v1alpha1.ContainerNsSelector{Pods: app("web")}}),
			node: node,
			want: map[string]string{"eth0 in pod acme/web-0": `xdp_attach_info:{iface:"eth0" netns:"/host/proc/10/ns/net"}`},
		},
		"pods on the host's network, once": {
			kind: tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: interfaces("eth0"), Direction: "ingress", Containers: &v1alpha1.ContainerSelector{Namespace: "acme", Pods: app("net")}}, false),
			node: node,
			want: map[string]string{"eth0 ingress": `tcx_attach_info:{iface:"eth0" direction:"ingress"}`},
		},
		"a container by name": {
			kind: tenant("acme", &v1alpha1.UprobeNsProgramInfo{Target: "/bin/web", FunctionName: "main", Containers: &v1alpha1.ContainerNsSelector{Pods: metav1.LabelSelector{}, ContainerNames: &log}}),
			node: node,
			want: map[string]string{"main in /bin/web of container acme/web-0/log": `uprobe_attach_info:{fn_name:"main" target:"/bin/web" container_pid:12}`},
		},
		"no runtime": {
			kind: uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "libc", Containers: &v1alpha1.ContainerSelector{}}, false),
			node: Node{ContainersErr: errors.New("no container runtime listens")},
			err:  "no container runtime listens",
		},
		"upstream's fault 7, the pid of a uprobe": {
			kind: uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "libc", FunctionName: "malloc", Offset: 16, Pid: 4711}, false),
			want: map[string]string{"malloc+0x10 in libc of process 4711": `uprobe_attach_info:{fn_name:"malloc" offset:16 target:"libc" pid:4711}`},
		},
		"a uprobe by offset alone": {
			kind: uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "/bin/x", Offset: 4096}, false),
			want: map[string]string{"/bin/x+0x1000": `uprobe_attach_info:{offset:4096 target:"/bin/x"}`},
		},
		"a kprobe": {
			kind: kprobeOf("kprobe", &v1alpha1.KprobeProgramInfo{FunctionName: "try_to_wake_up", Offset: 8}),
			want: map[string]string{"try_to_wake_up+0x8": `kprobe_attach_info:{fn_name:"try_to_wake_up" offset:8}`},
		},
		"tracepoints": {
			kind: tracepointOf(&v1alpha1.TracepointProgramInfo{Names: []string{"syscalls/sys_enter_kill", "sched/sched_switch", "sched/sched_switch"}}),
			want: map[string]string{
				"sched/sched_switch":      `tracepoint_attach_info:{tracepoint:"sched/sched_switch"}`,
				"syscalls/sys_enter_kill": `tracepoint_attach_info:{tracepoint:"syscalls/sys_enter_kill"}`,
			},
		},
		"fentry": {kind: fentryOf(&v1alpha1.FentryProgramInfo{FunctionName: "do_unlinkat"}), want: map[string]string{"do_unlinkat": "fentry_attach_info:{}"}},
		"fexit":  {kind: fexitOf(&v1alpha1.FexitProgramInfo{FunctionName: "do_unlinkat"}), want: map[string]string{"do_unlinkat": "fexit_attach_info:{}"}},
		"LSM":    {kind: lsmOf(&v1alpha1.LsmProgramInfo{HookName: "file_open"}), want: map[string]string{"file_open": "lsm_attach_info:{}"}},
	} {
		t.Run(name, func(t *testing.T) {
			points, err := test.kind.AttachPoints(test.node)
			if got := text(err); got != test.err {
				t.Fatalf("error %q, want %q", got, test.err)
			}
			got := map[string]string{}
			for _, p := range points {
				// The text format contains spaces at random.
				got[p.Name] = strings.Join(strings.Fields(p.Info.String()), " ")
			}
			if len(got) != len(points) {
				t.Errorf("names of attach points are not unique: %v", points)
			}
			for name, info := range test.want {
				if got[name] != info {
					t.Errorf("%q: got %s, want %s", name, got[name], info)
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("not wanted: %v", got)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Changed digests would attach all links again when the agent is upgraded.
func TestDigestsStay(t *testing.T) {
	for want, kind := range map[string]Spec{
		"8e36afbdc4ecf5e6": xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: interfaces("eth0"), Priority: 50, ProceedOn: []v1alpha1.XdpProceedOnValue{"pass"}}, false),
		"299b6dace98d8994": tracepointOf(&v1alpha1.TracepointProgramInfo{Names: []string{"syscalls/sys_enter_kill"}}),
	} {
		points, err := kind.AttachPoints(node)
		if err != nil || len(points) != 1 || points[0].Digest != want {
			t.Errorf("%v, %v, want digest %s", points, err, want)
		}
	}
}

// Upstream's fault 10: after a restart of a container, or if an interface is created
// again, the link to the previous one is kept.
func TestUpstreamFault10ANewInstanceIsANewLink(t *testing.T) {
	selector := &v1alpha1.ContainerSelector{Pods: app("web")}
	for name, test := range map[string]struct {
		kind   Spec
		change func(*Node)
		same   bool
	}{
		"interface came anew":           {tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: interfaces("eth0")}, false), func(n *Node) { n.Interfaces["eth0"] = Interface{Index: 99} }, false},
		"address changed":               {tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: interfaces("eth0")}, false), func(n *Node) { n.Interfaces["eth0"] = Interface{Index: 2} }, true},
		"container restarted, uprobe":   {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "x", Containers: selector}, false), func(n *Node) { n.Containers[0].ID, n.Containers[0].PID = "new", 99 }, false},
		"container restarted, same net": {tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: interfaces("eth0"), Containers: selector}, false), func(n *Node) { n.Containers[1].ID, n.Containers[1].PID = "new", 99 }, true},
		"containers ended, same net":    {tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: interfaces("eth0"), Containers: selector}, false), func(n *Node) { n.Containers[0].PID, n.Containers[1].PID = 0, 0 }, true},
		"sandbox made anew":             {tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: interfaces("eth0"), Containers: selector}, false), func(n *Node) { n.Containers[0].Sandbox, n.Containers[1].Sandbox = "new", "new" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := test.kind.AttachPoints(node)
			if err != nil {
				t.Fatal(err)
			}
			changed := Node{Interfaces: map[string]Interface{"eth0": node.Interfaces["eth0"]}, Containers: slices.Clone(node.Containers)}
			test.change(&changed)
			after, err := test.kind.AttachPoints(changed)
			if err != nil {
				t.Fatal(err)
			}
			if before[0].Name != after[0].Name || (before[0].Digest == after[0].Digest) != test.same {
				t.Errorf("before %v, after %v, same link wanted: %v", before[0], after[0], test.same)
			}
		})
	}
}

// Functions are attached in running containers only. The network of a pod stays after
// its containers have ended.
func TestContainersThatHaveEnded(t *testing.T) {
	ended := Node{Containers: slices.Clone(node.Containers)}
	for i := range ended.Containers {
		ended.Containers[i].PID = 0
	}
	selector := &v1alpha1.ContainerSelector{Pods: app("web")}
	for name, test := range map[string]struct {
		kind Spec
		want int
	}{
		"uprobe": {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "x", Containers: selector}, false), 0},
		"XDP":    {xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: interfaces("eth0"), Containers: selector}, false), 2},
	} {
		if points, err := test.kind.AttachPoints(ended); err != nil || len(points) != test.want {
			t.Errorf("%s: %v, %v, want %d", name, points, err, test.want)
		}
	}
}

func TestPodWhoseNetworkIsNotTold(t *testing.T) {
	untold := Node{Containers: []Container{{Namespace: "acme", Pod: "web-0", Sandbox: "s1", PodLabels: map[string]string{"app": "web"}, Name: "web", ID: "c1", PID: 11}}}
	kind := xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: interfaces("eth0"), Containers: &v1alpha1.ContainerSelector{Pods: app("web")}}, false)
	points, err := kind.AttachPoints(untold)
	if err != nil || len(points) != 1 || !strings.Contains(text(points[0].Lack), "network namespace") {
		t.Errorf("%v, %v", points, err)
	}
}

// Upstream's fault 7: the pid of a uprobe is never sent.
func TestUpstreamFault07UprobesOfOneProcess(t *testing.T) {
	for name, kind := range map[string]Spec{
		"cluster-scoped": uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Target: "x", Pid: 7}, false),
		"namespaced":     tenant(node.Containers[0].Namespace, &v1alpha1.UprobeNsProgramInfo{Target: "x", Pid: 7, Containers: &v1alpha1.ContainerNsSelector{}}),
	} {
		points, err := kind.AttachPoints(node)
		if err != nil || len(points) == 0 {
			t.Fatalf("%s: %v, %v", name, points, err)
		}
		for _, p := range points {
			if p.Info.GetUprobeAttachInfo().GetPid() != 7 {
				t.Errorf("%s: %v", name, p.Info)
			}
		}
	}
}

// Why a program has nothing to attach to on a node.
func TestIdle(t *testing.T) {
	pods := &v1alpha1.ContainerSelector{Pods: app("web")}
	found := v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: new(true), AllowedInterfaces: []string{"net9"}}}
	web := Node{Interfaces: map[string]Interface{"eth0": {}}, Containers: []Container{{Pod: "web", PodLabels: map[string]string{"app": "web"}, Interfaces: []string{"eth0"}}}}
	for name, test := range map[string]struct {
		kind Spec
		node Node
		want v1alpha1.BpfProgramConditionType
	}{
		"no container":               {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Containers: pods}, false), Node{}, v1alpha1.BpfProgCondNoContainersOnNode},
		"no running container":       {uprobeOf("uprobe", &v1alpha1.UprobeProgramInfo{Containers: pods}, false), web, v1alpha1.BpfProgCondNoContainersOnNode},
		"no pod":                     {tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: interfaces("eth0"), Containers: pods}, false), Node{}, v1alpha1.BpfProgCondNoContainersOnNode},
		"no pod to discover in":      {tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: found, Containers: pods}, false), Node{}, v1alpha1.BpfProgCondNoContainersOnNode},
		"no interface in a pod":      {tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: found, Containers: pods}, false), web, v1alpha1.BpfProgCondNoInterfacesOnNode},
		"no interface of the host":   {xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: found}, false), web, v1alpha1.BpfProgCondNoInterfacesOnNode},
		"discovery is off":           {xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{}}}, false), web, v1alpha1.BpfProgCondNoInterfacesOnNode},
		"only loaded":                {unattached{tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: found}, false)}, web, ""},
		"a program without a target": {tracepointOf(&v1alpha1.TracepointProgramInfo{}), web, ""},
	} {
		if points, err := test.kind.AttachPoints(test.node); err != nil || len(points) != 0 {
			t.Errorf("%s: %v, %v", name, points, err)
		}
		if got := Idle(test.kind, test.node); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Nothing is attached to a hook whose name has a problem, in objects of any age. An interface in a
// pod isn't looked up by its name, so nothing else refuses eth0:x-test there.
func TestOddNames(t *testing.T) {
	common := v1alpha1.BpfProgramCommon{BpfFunctionName: "f"}
	pods := &v1alpha1.ContainerNsSelector{}
	n := Node{Containers: []Container{{Namespace: "team", Pod: "p", PodUID: "u", Name: "c", PID: 7, NetNS: "/proc/7/ns/net"}}, UprobeNamespaces: []string{"team"}}
	for what, kind := range map[string]Spec{
		"interface": tenant("team", &v1alpha1.TcxNsProgramInfo{
			BpfProgramCommon: common, InterfaceSelector: v1alpha1.InterfaceSelector{Interfaces: &[]string{"eth0", "eth0:x-test", "a name of seventeen"}}, Containers: pods,
		}),
		"target":     tenant("team", &v1alpha1.UprobeNsProgramInfo{BpfProgramCommon: common, Target: "/bin/sh\x00", Containers: pods}),
		"function":   kprobeOf("kprobe", &v1alpha1.KprobeProgramInfo{BpfProgramCommon: common, FunctionName: "f\x00"}),
		"tracepoint": tracepointOf(&v1alpha1.TracepointProgramInfo{BpfProgramCommon: common, Names: []string{"a/b", "a/../b"}}),
	} {
		points, err := kind.AttachPoints(n)
		if err != nil || len(points) == 0 {
			t.Fatalf("%s: %v, %v", what, points, err)
		}
		for _, p := range points {
			odd := HookOf(p.Info).Problem() != ""
			if name := HookOf(p.Info).Name; odd == (name == "eth0" || name == "a/b") || (p.Lack != nil) != odd || p.Withdrawn != odd {
				t.Errorf("%s: %q lacks %v, withdrawn: %t", what, p.Name, p.Lack, p.Withdrawn)
			}
		}
	}
}

// What policies compare is literally what the daemon gets, for each kind.
func TestPoliciesSeeWhatTheDaemonGets(t *testing.T) {
	const odd = " a/../B:c.isra.0\x00"
	for _, kind := range v1alpha1.UserKinds {
		o := kind.New()
		content := map[string]any{"spec": map[string]any{
			"bpffunctionname": "f", "func_name": odd, "hook_name": odd, "target": odd, "names": []any{odd}, "interfaceselector": map[string]any{"interfaces": []any{odd}},
		}}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, o); err != nil {
			t.Fatal(err)
		}
		owner := OwnerOf(kind.Name, o)
		if len(owner.Members) == 0 {
			continue // an application, whose members are the same types
		}
		hooks := policy.SubjectOf(kind.Name, o).Programs[0].Hooks
		points, err := owner.Members[0].AttachPoints(Node{Containers: []Container{{PID: 1, NetNS: "/x"}}})
		if err != nil || len(hooks) != 1 || len(points) != 1 {
			t.Fatalf("%s: hooks %v, points %v, %v", kind.Name, hooks, points, err)
		}
		info := owner.Members[0].LoadInfo().GetInfo()
		got := HookOf(points[0].Info)
		if got.Type == "" {
			got = policy.Hook{Type: policy.Function, Name: info.GetFentryLoadInfo().GetFnName() + info.GetFexitLoadInfo().GetFnName()}
		}
		if hook := info.GetLsmLoadInfo().GetHookName(); hook != "" {
			got.Name = v1alpha1.LSMFunctionPrefix + hook
		}
		if got != hooks[0] || strings.TrimPrefix(got.Name, v1alpha1.LSMFunctionPrefix) != odd {
			t.Errorf("%s: the policy sees %+v, the daemon %+v", kind.Name, hooks[0], got)
		}
	}
}

// tenant returns the program of a namespaced object.
func tenant(namespace string, info any) Spec {
	o := &v1alpha1.BpfNsApplication{}
	o.Namespace, o.Spec.Programs = namespace, make([]v1alpha1.BpfNsApplicationProgram, 1)
	switch p := &o.Spec.Programs[0]; i := info.(type) {
	case *v1alpha1.XdpNsProgramInfo:
		p.Type, p.XDP = v1alpha1.ProgTypeXDP, i
	case *v1alpha1.TcNsProgramInfo:
		p.Type, p.TC = v1alpha1.ProgTypeTC, i
	case *v1alpha1.TcxNsProgramInfo:
		p.Type, p.TCX = v1alpha1.ProgTypeTCX, i
	case *v1alpha1.UprobeNsProgramInfo:
		p.Type, p.Uprobe = v1alpha1.ProgTypeUprobe, i
	}
	return specOf(userobject.Programs(o)[0], 0)
}
