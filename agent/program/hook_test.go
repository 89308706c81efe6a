// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// The path of a network namespace is the node's, not the daemon's.
func TestPathsOnNode(t *testing.T) {
	for daemons, want := range map[string]string{
		"":                                   "",
		"/run/netns/a":                       "/run/netns/a",
		"/host/proc/1/root/run/netns/cni-01": "/run/netns/cni-01",
		"/host/proc/1234/ns/net":             "/proc/1234/ns/net",
	} {
		info := &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{TcxAttachInfo: &gobpfman.TCXAttachInfo{Netns: &daemons}}}
		if got := (AttachPoint{Info: info}).Hook().NetNS; got != want {
			t.Errorf("%s: %s, want %s", daemons, got, want)
		}
	}
}

// The fields of an attach point say what the daemon is told.
func TestHook(t *testing.T) {
	netns, function := "/run/netns/a", "malloc"
	for name, c := range map[string]struct {
		info *gobpfman.AttachInfo
		want *v1alpha1.BpfProgramHook
	}{
		"xdp": {
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: &gobpfman.XDPAttachInfo{
				Priority: 0, Iface: "eth0", ProceedOn: []int32{2, 31}, Netns: &netns,
			}}},
			&v1alpha1.BpfProgramHook{Interface: "eth0", NetNS: netns, Priority: new(int32(0)), ProceedOn: []string{"pass", "dispatcher_return"}},
		},
		"tc": {
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcAttachInfo{TcAttachInfo: &gobpfman.TCAttachInfo{
				Priority: 50, Iface: "eth0", Direction: "egress", ProceedOn: []int32{-1, 3},
			}}},
			&v1alpha1.BpfProgramHook{Interface: "eth0", Direction: "egress", Priority: new(int32(50)), ProceedOn: []string{"unspec", "pipe"}},
		},
		"tcx": {
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{TcxAttachInfo: &gobpfman.TCXAttachInfo{Priority: 50, Iface: "eth0", Direction: "ingress"}}},
			&v1alpha1.BpfProgramHook{Interface: "eth0", Direction: "ingress", Priority: new(int32(50))},
		},
		"tracepoint": {
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TracepointAttachInfo{TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: "a/b"}}},
			&v1alpha1.BpfProgramHook{Tracepoint: "a/b"},
		},
		"kprobe": {
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_KprobeAttachInfo{KprobeAttachInfo: &gobpfman.KprobeAttachInfo{FnName: "f", Offset: 8}}},
			&v1alpha1.BpfProgramHook{Function: "f", Offset: 8},
		},
		"uprobe": {
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_UprobeAttachInfo{UprobeAttachInfo: &gobpfman.UprobeAttachInfo{
				FnName: &function, Offset: 8, Target: "libc", Pid: new(int32(1)), ContainerPid: new(int32(2)),
			}}},
			&v1alpha1.BpfProgramHook{Function: function, Offset: 8, Target: "libc", PID: new(int32(1)), ContainerPID: new(int32(2))},
		},
		"fentry": {
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FentryAttachInfo{FentryAttachInfo: &gobpfman.FentryAttachInfo{}}},
			&v1alpha1.BpfProgramHook{Function: "fentry"}, // the name of the attach point
		},
		"fexit": {
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FexitAttachInfo{FexitAttachInfo: &gobpfman.FexitAttachInfo{}}},
			&v1alpha1.BpfProgramHook{Function: "fexit"},
		},
		"interfaces of a pod that is refused": {},
	} {
		if got := (AttachPoint{Name: name, Info: c.info}).Hook(); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %s", name, cmp.Diff(c.want, got))
		}
	}
}
