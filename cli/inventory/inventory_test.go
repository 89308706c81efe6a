// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestWhose(t *testing.T) {
	for want, p := range map[string]v1alpha1.BpfNodeProgram{
		"XdpNsProgram acme/firewall": {Bpfman: true, Owner: &v1alpha1.BpfNodeOwner{Kind: "XdpNsProgram", Namespace: "acme", Name: "firewall"}},
		"XdpProgram firewall":        {Bpfman: true, Owner: &v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "firewall"}},
		"bpfman":                     {Bpfman: true, Holders: []v1alpha1.BpfNodeHolder{{Path: "/run/bpfman/fs/x"}}},
		"":                           {},
		"pod kube-system/cilium-x (agent)": {Holders: []v1alpha1.BpfNodeHolder{
			{Path: "/sys/fs/bpf/tc"}, {Process: "cilium", PID: 7, Namespace: "kube-system", Pod: "cilium-x", Container: "agent"},
		}},
		"systemd-networkd.service": {Holders: []v1alpha1.BpfNodeHolder{{Process: "systemd-network", PID: 1, Unit: "systemd-networkd.service"}}},
		"bpftool[12], gone":        {Holders: []v1alpha1.BpfNodeHolder{{Path: "/sys/fs/bpf/x"}, {Process: "bpftool", PID: 12, Gone: true}}},
		"/sys/fs/bpf/x":            {Holders: []v1alpha1.BpfNodeHolder{{Path: "/sys/fs/bpf/x"}}},
	} {
		if got := OwnerOf(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAttached(t *testing.T) {
	for _, c := range []struct {
		program v1alpha1.BpfNodeProgram
		want    []string
	}{
		{v1alpha1.BpfNodeProgram{Type: "kprobe"}, []string{"unknown: by a perf event"}},
		{v1alpha1.BpfNodeProgram{Type: "kprobe", Bpfman: true}, nil},
		{v1alpha1.BpfNodeProgram{Type: "xdp"}, nil},
		{v1alpha1.BpfNodeProgram{Type: "tracepoint", AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tracepoint", Target: "syscalls/sys_enter_kill"}}}, []string{"tracepoint syscalls/sys_enter_kill"}},
	} {
		if got := (Program{BpfNodeProgram: c.program, Unknown: unknown(c.program)}).Attached(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.program, got, c.want)
		}
	}
}

func TestWhere(t *testing.T) {
	for want, a := range map[string]v1alpha1.BpfNodeAttachPoint{
		"tcx/ingress eth0":             {Type: "tcx/ingress", Interface: "eth0", Position: 2},
		"xdp(generic) eth0":            {Type: "xdp", Interface: "eth0", Mode: "generic"},
		"xdp eth0":                     {Type: "xdp", Interface: "eth0", Mode: "native"},
		"tc/egress acme/web:eth0":      {Type: "tc/egress", Interface: "eth0", NetNs: "12", Namespace: "acme", Pod: "web"},
		"tc/egress net:[12]:eth0":      {Type: "tc/egress", Interface: "eth0", NetNs: "12"},
		"kprobe try_to_wake_up":        {Type: "kprobe", Target: "try_to_wake_up"},
		"freplace prog0 of program 31": {Type: "freplace", Target: "prog0", TargetProgramID: 31},
		"sk_lookup":                    {Type: "sk_lookup"},
	} {
		if got := Where(a); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An LSM program that denies an operation keeps others at the hook from running. Which ones isn't known.
func TestChainOfLSM(t *testing.T) {
	at := []v1alpha1.BpfNodeAttachPoint{{Type: "lsm", Target: "bpf_lsm_file_open"}}
	asked := func(v1alpha1.BpfNodeOwner, string) Settings { return Settings{} }
	links := Chains(v1alpha1.BpfNodeStatus{Programs: []v1alpha1.BpfNodeProgram{{ID: 1, AttachPoints: at}, {ID: 2, AttachPoints: at}}}, asked)
	if len(links) != 2 {
		t.Fatalf("%+v", links)
	}
	for _, l := range links {
		if l.All || !slices.Equal(l.ProceedOn, []string{"0"}) || len(l.Skips) > 0 || l.Position != 0 {
			t.Errorf("%+v", l)
		}
	}
}

// The filters of a queueing discipline run after those of the hook, and no result of these ends their chain.
func TestChainOfAQueueingDiscipline(t *testing.T) {
	at := func(id uint32, hook string) v1alpha1.BpfNodeProgram {
		return v1alpha1.BpfNodeProgram{ID: id, AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: hook, Interface: "eth0", Position: 1}}}
	}
	asked := func(v1alpha1.BpfNodeOwner, string) Settings { return Settings{} }
	links := Chains(v1alpha1.BpfNodeStatus{Programs: []v1alpha1.BpfNodeProgram{at(3, "tc/qdisc"), at(4, "netkit/peer"), at(2, "tc/egress"), at(1, "tcx/egress")}}, asked)
	for i, skips := range [][]uint32{{2}, nil, nil, nil} {
		if links[i].ID != uint32(i+1) || !slices.Equal(links[i].Skips, skips) {
			t.Errorf("%+v, want %d, which skips %v", links[i], i+1, skips)
		}
	}
}

// A node with a dispatcher of two programs, a TCX chain, and tracepoints.
var node = v1alpha1.BpfNodeStatus{Programs: []v1alpha1.BpfNodeProgram{
	{ID: 20, Name: "second", Type: "ext", Bpfman: true, Owner: &v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "b"}, AttachPoints: []v1alpha1.BpfNodeAttachPoint{
		{Type: "freplace", TargetProgramID: 30, Target: "prog1", Position: 2},
	}},
	{ID: 21, Name: "first", Type: "ext", Bpfman: true, Owner: &v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "a"}, AttachPoints: []v1alpha1.BpfNodeAttachPoint{
		{Type: "freplace", TargetProgramID: 30, Target: "prog0", Position: 1},
	}},
	{ID: 30, Name: "xdp_dispatcher", Type: "xdp", Bpfman: true, AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "xdp", Interface: "eth0", Position: 1}}},
	{ID: 40, Name: "ours", Type: "sched_cls", Bpfman: true, Owner: &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "c"}, AttachPoints: []v1alpha1.BpfNodeAttachPoint{
		{Type: "tcx/ingress", Interface: "eth0", Position: 2}, {Type: "tcx/ingress", Interface: "eth1", Position: 1},
	}},
	{ID: 41, Name: "theirs", Type: "sched_cls", AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tcx/ingress", Interface: "eth0", Position: 1}}},
	{ID: 42, Name: "filter", Type: "sched_cls", AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tc/ingress", Interface: "eth0", Position: 1, Priority: 49152}}},
	{ID: 43, Name: "trace", Type: "tracepoint", AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tracepoint", Target: "syscalls/sys_enter_kill"}}},
}}

func TestChains(t *testing.T) {
	asked := func(owner v1alpha1.BpfNodeOwner, function string) Settings {
		if owner.Name == "a" && function == "first" {
			return Settings{Priority: ptr.To[int32](50), ProceedOn: []string{"pass"}}
		}
		return Settings{}
	}
	want := []Link{
		{Hook: "xdp eth0", Type: "xdp", Interface: "eth0", Position: 1, ID: 30, Name: "xdp_dispatcher", Whose: "bpfman"},
		{Hook: "xdp eth0", Type: "xdp", Interface: "eth0", Position: 1, Slot: 1, Priority: ptr.To[int32](50), ProceedOn: []string{"pass"}, ID: 21, Name: "first", Whose: "XdpProgram a", Ours: true, Skips: []uint32{20}},
		{Hook: "xdp eth0", Type: "xdp", Interface: "eth0", Position: 1, Slot: 2, ID: 20, Name: "second", Whose: "XdpProgram b", Ours: true},
		{Hook: "tcx/ingress eth0", Type: "tcx/ingress", Interface: "eth0", Position: 1, ProceedOn: []string{"next"}, ID: 41, Name: "theirs", Skips: []uint32{40, 42}},
		{Hook: "tcx/ingress eth0", Type: "tcx/ingress", Interface: "eth0", Position: 2, ProceedOn: []string{"next"}, ID: 40, Name: "ours", Whose: "TcxProgram c", Ours: true, Skips: []uint32{42}},
		{Hook: "tc/ingress eth0", Type: "tc/ingress", Interface: "eth0", Position: 1, Priority: ptr.To[int32](49152), ProceedOn: []string{"unspec"}, ID: 42, Name: "filter"},
		{Hook: "tcx/ingress eth1", Type: "tcx/ingress", Interface: "eth1", Position: 1, ProceedOn: []string{"next"}, ID: 40, Name: "ours", Whose: "TcxProgram c", Ours: true},
		{Hook: "tracepoint syscalls/sys_enter_kill", Type: "tracepoint", All: true, ID: 43, Name: "trace"},
	}
	got := Chains(node, asked)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("missing %+v", want[i])
		case i >= len(want):
			t.Errorf("too many: %+v", got[i])
		case !reflect.DeepEqual(got[i], want[i]):
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}

func TestSettingsOf(t *testing.T) {
	tcx := &v1alpha1.TcxProgram{Spec: v1alpha1.TcxProgramSpec{TcxProgramInfo: v1alpha1.TcxProgramInfo{Priority: 7}}}
	xdp := &v1alpha1.BpfApplication{Spec: v1alpha1.BpfApplicationSpec{Programs: []v1alpha1.BpfApplicationProgram{
		{Type: "TCX", TCX: &v1alpha1.TcxProgramInfo{BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: "other"}, Priority: 1}},
		{Type: "XDP", XDP: &v1alpha1.XdpProgramInfo{
			BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: "stats"}, Priority: 9, ProceedOn: []v1alpha1.XdpProceedOnValue{"drop"},
		}},
	}}}
	if got := SettingsOf(tcx, "any"); got.Priority == nil || *got.Priority != 7 || got.ProceedOn != nil {
		t.Errorf("of a program: %+v", got)
	}
	if got := SettingsOf(xdp, "stats"); got.Priority == nil || *got.Priority != 9 || !reflect.DeepEqual(got.ProceedOn, []string{"drop"}) {
		t.Errorf("of an application's member: %+v", got)
	}
	for _, got := range []Settings{SettingsOf(xdp, "absent"), SettingsOf(nil, "any"), SettingsOf(&v1alpha1.KprobeProgram{}, "any")} {
		if !reflect.DeepEqual(got, Settings{}) {
			t.Errorf("got %+v", got)
		}
	}
}

// The kernel keeps 15 characters of a name. Only the daemon's pins tell the rest.
func TestMapsHaveWholeNames(t *testing.T) {
	const kernels = "connection_stat"
	volume := "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/maps/mount/" + kernels + "us"
	node := &v1alpha1.BpfNode{Status: v1alpha1.BpfNodeStatus{Maps: []v1alpha1.BpfNodeMap{
		{ID: 1, Name: kernels, Pins: []string{"/run/bpfman/fs/maps/7/connection_states", volume}},
		{ID: 2, Name: kernels, Pins: []string{"/run/bpfman/fs/maps/7/connection_statistics"}},
		{ID: 3, Name: kernels, Pins: []string{volume}},
		{ID: 4, Name: "other", Pins: []string{"/run/bpfman/fs/maps/7/unlike"}},
	}}}
	var names []string
	for _, m := range Maps(node, nil) {
		names = append(names, m.Name)
	}
	if want := []string{"connection_states", "connection_statistics", kernels, "other"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// The pod is only known if the programs with a map are attached nowhere else.
func TestOnlyPlace(t *testing.T) {
	t.Parallel()
	at := func(pods ...string) []v1alpha1.BpfNodeAttachPoint {
		var points []v1alpha1.BpfNodeAttachPoint
		for _, pod := range pods {
			namespace, name, _ := strings.Cut(pod, "/")
			points = append(points, v1alpha1.BpfNodeAttachPoint{Type: "tcx/ingress", Namespace: namespace, Pod: name})
		}
		return points
	}
	uprobe := []v1alpha1.BpfNodeProgram{{ID: 1, MapIDs: []uint32{7}, Bpfman: true, AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "uprobe", Target: "/lib/libc.so.6+0x10"}}}}
	report := func(node string, points ...string) v1alpha1.ProgramObject {
		of := &v1alpha1.BpfProgram{Status: v1alpha1.BpfProgramStatus{Node: node, ProgramID: 1}}
		of.Status.Links = append(of.Status.Links, v1alpha1.BpfProgramLink{AttachPoint: "malloc in libc of container a/gone/app", State: v1alpha1.LinkNotAttached})
		for _, point := range points {
			of.Status.Links = append(of.Status.Links, v1alpha1.BpfProgramLink{AttachPoint: point, State: v1alpha1.LinkAttached})
		}
		return of
	}
	const dispatcher = 9
	through := []v1alpha1.BpfNodeAttachPoint{{Type: "freplace", TargetProgramID: dispatcher}}
	for name, c := range map[string]struct {
		programs []v1alpha1.BpfNodeProgram
		want     string
		reports  []v1alpha1.ProgramObject
	}{
		"one container":                 {uprobe, "a/p/app", []v1alpha1.ProgramObject{report("n", "malloc in libc of container a/p/app"), report("m", "malloc in libc of container a/q/app")}},
		"two containers of a pod":       {uprobe, "a/p", []v1alpha1.ProgramObject{report("n", "malloc in libc of container a/p/app", "malloc in libc of container a/p/side")}},
		"two pods with containers":      {uprobe, "/", []v1alpha1.ProgramObject{report("n", "malloc in libc of container a/p/app", "malloc in libc of container a/q/app")}},
		"a file of the node":            {uprobe, "/", []v1alpha1.ProgramObject{report("n", "malloc in libc")}},
		"a container and an interface":  {uprobe, "a/p", []v1alpha1.ProgramObject{report("n", "eth0 ingress in pod a/p", "malloc in libc of container a/p/app")}},
		"a container, without a report": {uprobe, "/", []v1alpha1.ProgramObject{report("m", "malloc in libc of container a/p/app")}},
		"no program":                    {programs: nil, want: "/"},
		"not attached":                  {[]v1alpha1.BpfNodeProgram{{ID: 1, MapIDs: []uint32{7}, Bpfman: true}}, "/", nil},
		"one pod":                       {[]v1alpha1.BpfNodeProgram{{ID: 1, MapIDs: []uint32{7}, AttachPoints: at("a/p")}}, "a/p", nil},
		"twice in a pod":                {[]v1alpha1.BpfNodeProgram{{ID: 1, MapIDs: []uint32{7}, AttachPoints: at("a/p", "a/p")}}, "a/p", nil},
		"two pods":                      {[]v1alpha1.BpfNodeProgram{{ID: 1, MapIDs: []uint32{7}, AttachPoints: at("a/p", "a/q")}}, "/", nil},
		"two namespaces":                {[]v1alpha1.BpfNodeProgram{{ID: 1, MapIDs: []uint32{7}, AttachPoints: at("a/p", "b/p")}}, "/", nil},
		"a pod and the node":            {[]v1alpha1.BpfNodeProgram{{ID: 1, MapIDs: []uint32{7}, AttachPoints: at("a/p", "/")}}, "/", nil},
		"two programs": {[]v1alpha1.BpfNodeProgram{
			{ID: 1, MapIDs: []uint32{7}, AttachPoints: at("a/p")}, {ID: 2, MapIDs: []uint32{7}, AttachPoints: at("a/q")},
		}, "/", nil},
		"another map": {[]v1alpha1.BpfNodeProgram{
			{ID: 1, MapIDs: []uint32{7}, AttachPoints: at("a/p")}, {ID: 2, MapIDs: []uint32{8}, AttachPoints: at("a/q")},
		}, "a/p", nil},
		"through a dispatcher": {[]v1alpha1.BpfNodeProgram{
			{ID: 1, MapIDs: []uint32{7}, Bpfman: true, Owner: &v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "x"}, AttachPoints: through},
			{ID: dispatcher, Bpfman: true, AttachPoints: at("a/p")},
		}, "a/p", nil},
		"by a perf event": {[]v1alpha1.BpfNodeProgram{
			{ID: 1, MapIDs: []uint32{7}, AttachPoints: at("a/p")}, {ID: 2, MapIDs: []uint32{7}, Type: "kprobe"},
		}, "/", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1alpha1.BpfNodeStatus{Programs: c.programs}}
			if got := OnlyPlace(node, 7, c.reports).String(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
