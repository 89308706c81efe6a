// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package report

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/bpffs"
	"github.com/bpfman/bpfman-operator/inspector/cgroup"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/network"
	"github.com/bpfman/bpfman-operator/inspector/pods"
	"github.com/bpfman/bpfman-operator/inspector/process"
)

const (
	hostNet, podNet = 4026531840, 4026532188
	app, sandbox    = "aaaa", "bbbb"
)

func isProgram(id uint32) kernel.Described { return kernel.Described{Program: id} }

func isLink(id, program uint32) kernel.Described { return kernel.Described{Link: id, Program: program} }

func isMap(id uint32) kernel.Described { return kernel.Described{Map: id} }

// facts returns facts of a node with an example of everything.
func facts() *Facts {
	root := uint32(0)
	program := func(id uint32, name, kind string, maps ...uint32) kernel.Program {
		return kernel.Program{ID: id, Name: name, Type: kind, Tag: "a04f5eef06a7f555", Loaded: 90 * time.Second, UID: &root, Maps: maps}
	}
	near := network.Interface{NetNS: hostNet, Index: 2, Name: "eth0"}
	inPod := network.Interface{NetNS: podNet, Index: 2, Name: "eth0"}
	return &Facts{
		KernelVersion: "6.12.0", BootID: "d3d6bf44", Boot: time.Date(2026, 11, 22, 0, 0, 0, 400_000_000, time.UTC),
		Programs: []kernel.Program{
			program(1, "sd_devices", "cgroup_device"),
			program(2, "xdp_dispatcher", "xdp", 1),
			program(3, "pass", "ext", 2, 3),
			program(4, "stats", "ext"),
			program(5, "foreign", "sched_cls"),
			program(6, "first\x1b[31m", "sched_cls"),
			program(7, "second", "sched_cls"),
			program(8, "on_kill", "tracepoint"),
			program(9, "called", "socket_filter"),
			program(10, "left", "xdp"),
			program(11, "in_cgroup", "cgroup_skb"),
			program(12, "looks_up", "sk_lookup"),
			program(13, "detached", "xdp"),
			program(14, "tc_dispatcher", "sched_cls"),
			program(15, "on_perf", "tracepoint"),
		},
		Maps: []kernel.Map{
			{ID: 1, Name: ".rodata", Type: "array", KeySize: 4, ValueSize: 124, MaxEntries: 1},
			{ID: 2, Name: "counts", Type: "percpu_hash", KeySize: 4, ValueSize: 8, MaxEntries: 64},
			{ID: 5, Name: "old", Type: "hash", KeySize: 4, ValueSize: 8, MaxEntries: 64},
			{ID: 4, Name: "calls", Type: "prog_array", KeySize: 4, ValueSize: 4, MaxEntries: 8},
		},
		Links: []kernel.Link{
			{ID: 21, Program: 2, Attachment: kernel.Attachment{Type: "xdp", Interface: 2}},
			{ID: 22, Program: 3, Attachment: kernel.Attachment{Type: "freplace", TargetProgram: 2, Target: "prog0"}},
			{ID: 23, Program: 4, Attachment: kernel.Attachment{Type: "freplace", TargetProgram: 2, Target: "prog1"}},
			{ID: 24, Program: 6, Attachment: kernel.Attachment{Type: "tcx/ingress", Interface: 2}},
			{ID: 25, Program: 7, Attachment: kernel.Attachment{Type: "tcx/ingress", Interface: 2}},
			{ID: 26, Program: 8, Attachment: kernel.Attachment{Type: "tracepoint", Target: "sys_enter_kill"}},
			{ID: 27, Program: 11, Attachment: kernel.Attachment{Type: "cgroup_inet_egress", Cgroup: 77}},
			{ID: 28, Program: 12, Attachment: kernel.Attachment{Type: "sk_lookup", NetNS: podNet}},
			{ID: 29, Program: 13, Attachment: kernel.Attachment{Type: "xdp"}},
		},
		Contained: []Contained{{Map: 4, Program: 9}},
		Hooks: []network.Hook{
			{Interface: near, Type: "xdp", Program: 2, Mode: "native"},
			{Interface: inPod, Type: "xdp", Program: 10, Mode: "generic"},
			{Interface: near, Type: "tc/egress", Program: 5, Position: 1, Priority: 7},
			{Interface: near, Type: "tc/ingress", Program: 14, Position: 1, Priority: 50},
			{Interface: inPod, Type: "tcx/ingress", Program: 6, Link: 24, Position: 1},
			{Interface: inPod, Type: "tcx/ingress", Program: 7, Link: 25, Position: 2},
			{Interface: network.Interface{NetNS: podNet}, Type: "sk_lookup", Program: 12, Position: 1},
		},
		Cgroups: map[uint64]string{77: "/kubepods.slice"},
		CgroupHooks: []cgroup.Hook{
			{Cgroup: "/system.slice/a.service", ID: 76, Type: "cgroup_device", Program: 1, Position: 1},
			{Cgroup: "/kubepods.slice", ID: 77, Type: "cgroup_inet_egress", Program: 11, Position: 1},
		},
		PerfEvents: []PerfEvent{
			{Program: 8, Attachment: kernel.Attachment{Type: "tracepoint", Target: "sys_enter_kill"}},
			{Program: 15, Attachment: kernel.Attachment{Type: "tracepoint", Target: "sched_switch"}},
		},
		Tracepoints: map[string]string{"sys_enter_kill": "syscalls"},
		Processes: []process.Process{
			{
				Identity: process.Identity{PID: 100, Start: 1}, Name: "systemd", Place: process.Place{Unit: "init.scope"},
				Open: []process.Descriptor{{FD: 3, Behind: isProgram(1)}, {FD: 4, Behind: isProgram(1)}},
			},
			{
				Identity: process.Identity{PID: 200, Start: 1}, Name: "evil\x1b]0;\xff\u202e", Place: process.Place{Container: app},
				Open: []process.Descriptor{{FD: 3, Behind: isLink(24, 6)}, {FD: 4, Behind: isProgram(6)}, {FD: 5, Behind: isMap(4)}, {FD: 6, PerfEvent: true}},
			},
			{
				Identity: process.Identity{PID: 300, Start: 1}, Name: "dockerd", Place: process.Place{Container: "cccc"},
				Open: []process.Descriptor{{FD: 3, Behind: isProgram(8)}},
			},
		},
		Pins: []bpffs.Pin{
			{Path: "/run/bpfman/fs/prog_3", Behind: isProgram(3)},
			{Path: "/run/bpfman/fs/tc-ingress/dispatcher", Behind: isProgram(14)},
			{Path: "/sys/fs/bpf/counts", Behind: isMap(2)},
			{Path: "/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/x/counts", Behind: isMap(2)},
			{Path: "/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/x/old", Behind: isMap(5)},
			{Path: "/sys/fs/bpf/link", Behind: isLink(25, 7), Place: process.Place{Container: app}},
			{Path: "/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/x/prog", Behind: isProgram(12)},
		},
		NetNS: []process.Namespace{{Inode: hostNet, PID: 1}, {Inode: podNet, PID: 150, Place: process.Place{Container: sandbox}}},
		Names: pods.Names{
			ByContainer: map[string]pods.Name{app: {Namespace: "apps", Pod: "web-0", Container: "web"}, sandbox: {Namespace: "apps", Pod: "web-0"}},
			ByPod:       map[string]pods.Name{"11111111-2222-3333-4444-555555555555": {Namespace: "apps", Pod: "reader"}},
		},
		Owners: map[uint32]*v1alpha1.BpfNodeOwner{3: {Kind: "XdpProgram", Name: "pass"}, 4: nil},
		Last: map[uint32][]v1alpha1.BpfNodeHolder{
			1:  {{Holds: "program", Process: "before", PID: 50}},
			10: {{Holds: "program", Process: "loader", PID: 60, Unit: "loader.service"}},
			99: {{Holds: "program", Process: "of none", PID: 70}},
		},
	}
}

// TestStatus compares the status with testdata/status.json. UPDATE=yes writes the file.
func TestStatus(t *testing.T) {
	got, err := json.MarshalIndent(Status(facts()), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "status.json")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(want)) != string(got) {
		t.Errorf("got %s", got)
	}
}

// A container can mount a BPF file system on a path that looks like that of another pod's volume.
func TestPathsInContainersNameNoPod(t *testing.T) {
	const path = "/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/x/prog"
	for place, want := range map[process.Place]string{{}: "reader", {Unit: "kubelet.service"}: "reader", {Container: "unknown"}: ""} {
		of := facts()
		of.Pins = []bpffs.Pin{{Path: path, Behind: isProgram(12), Place: place}}
		if got := holders(of)[12]; len(got) != 1 || got[0].Pod != want {
			t.Errorf("%+v: %+v", place, got)
		}
	}
}

// TestSameFactsSameStatus changes the order of facts, which is random for Go maps and file
// systems.
func TestSameFactsSameStatus(t *testing.T) {
	want := Status(facts())
	for range 20 {
		shuffled := facts()
		shuffle(shuffled.Links)
		shuffle(shuffled.Hooks)
		shuffle(shuffled.CgroupHooks)
		shuffle(shuffled.Processes)
		shuffle(shuffled.Pins)
		if got := Status(shuffled); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
}

func shuffle[E any](list []E) {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// TestLastHolderStays ends a process. The next status still contains it.
func TestLastHolderStays(t *testing.T) {
	f := facts()
	f.Last = Processes(Status(f))
	f.Processes = nil
	for range 2 {
		status := Status(f)
		for _, p := range status.Programs {
			if p.ID == 8 && (len(p.Holders) != 1 || !p.Holders[0].Gone || p.Holders[0].PID != 300) {
				t.Errorf("program 8 is held by %+v", p.Holders)
			}
		}
		f.Last = Processes(status)
	}
	if len(f.Last[99]) != 0 {
		t.Error("a program that isn't there is remembered")
	}
}

// many returns the status of a node with many programs, each with links, holders, and maps.
func many(programs int) *v1alpha1.BpfNodeStatus {
	f := &Facts{KernelVersion: "6.12.0", BootID: "d3d6bf44-81aa-4ac2-b7d9-677b53c52778", Boot: time.Unix(0, 0), Owners: map[uint32]*v1alpha1.BpfNodeOwner{}}
	uid := uint32(0)
	for i := range uint32(programs) {
		id := 10_000 + i
		f.Programs = append(f.Programs, kernel.Program{ID: id, Name: "a_program_of_many", Type: "sched_cls", Tag: "a04f5eef06a7f555", Loaded: time.Hour, UID: &uid, Maps: []uint32{id, id + 1, id + 2}})
		f.Maps = append(f.Maps, kernel.Map{ID: id, Name: "a_map_of_many", Type: "percpu_hash", KeySize: 4, ValueSize: 8, MaxEntries: 64})
		f.Links = append(f.Links, kernel.Link{ID: id, Program: id, Attachment: kernel.Attachment{Type: "tracepoint", Target: "syscalls/sys_enter_openat"}})
		f.Pins = append(f.Pins, bpffs.Pin{Path: "/run/bpfman/fs/prog_" + strconv.Itoa(int(id)), Behind: isProgram(id)})
		if i%2 == 0 {
			f.Owners[id] = &v1alpha1.BpfNodeOwner{Kind: "TracepointProgram", Name: "one-of-many-objects"}
		}
	}
	for pid := range 5 {
		p := process.Process{Identity: process.Identity{PID: 1000 + pid, Start: 1}, Name: "holder", Place: process.Place{Unit: "holder.service"}}
		for _, program := range f.Programs {
			p.Open = append(p.Open, process.Descriptor{Behind: isProgram(program.ID)})
		}
		f.Processes = append(f.Processes, p)
	}
	return Status(f)
}

func TestBound(t *testing.T) {
	for _, programs := range []int{0, 10, 500, 1000, 2000, 4000, 8000} {
		t.Run(strconv.Itoa(programs), func(t *testing.T) {
			whole := many(programs)
			for i := range 200 {
				whole.Conflicts = append(whole.Conflicts, v1alpha1.BpfNodeConflict{Type: v1alpha1.BpfNodeForeignXDP, Message: fmt.Sprintf("%4d %s", i, strings.Repeat("m", 200))})
			}
			before := whole.DeepCopy()
			bounded := Bound(whole, Limit)
			if !reflect.DeepEqual(whole, before) {
				t.Error("the whole status was changed")
			}
			encoded, err := json.Marshal(bounded)
			if err != nil || len(encoded) > Limit {
				t.Errorf("%d bytes, %v", len(encoded), err)
			}
			omitted := v1alpha1.BpfNodeOmitted{}
			if bounded.Omitted != nil {
				omitted = *bounded.Omitted
			}
			counted(t, whole, bounded, omitted)
			if bounded.ProgramCount != int32(programs) || bounded.MapCount != int32(programs) {
				t.Errorf("%d programs and %d maps are counted, of %d", bounded.ProgramCount, bounded.MapCount, programs)
			}
			if programs <= 500 && bounded.Omitted != nil {
				t.Errorf("%+v is omitted of %d programs", omitted, programs)
			}
			if programs == 4000 && omitted.Programs > 0 {
				t.Errorf("%d of 4,000 programs are omitted", omitted.Programs)
			}
			// Programs of other software are removed before bpfman's.
			mine := slices.DeleteFunc(slices.Clone(bounded.Programs), func(p v1alpha1.BpfNodeProgram) bool { return !p.Bpfman })
			if omitted.Programs > 0 && len(mine) < len(bounded.Programs) && len(mine) != int(whole.BpfmanCount) {
				t.Errorf("%d of %d programs of bpfman, %d in all", len(mine), whole.BpfmanCount, len(bounded.Programs))
			}
			t.Logf("%d bytes, without %+v", len(encoded), omitted)
		})
	}
}

// The conflicts of a namespace's objects don't displace those of others.
func TestBoundOfConflicts(t *testing.T) {
	whole := many(8000)
	for i := range 200 {
		owner := &v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Namespace: "tenant", Name: fmt.Sprint("x", i)}
		whole.Conflicts = append(whole.Conflicts, v1alpha1.BpfNodeConflict{Type: v1alpha1.BpfNodeForeignXDP, Owner: owner})
	}
	others := []v1alpha1.BpfNodeConflict{
		{Type: v1alpha1.BpfNodeForeignXDP, Owner: &v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "y"}}, {Type: v1alpha1.BpfNodeUnownedProgram},
	}
	whole.Conflicts = append(whole.Conflicts, others...)
	bounded := Bound(whole, Limit)
	if left := bounded.Conflicts; len(left) != maxConflicts || !reflect.DeepEqual(left[maxConflicts-2:], others) || bounded.Omitted.Conflicts != 102 {
		t.Errorf("%d conflicts are left, which end with %+v; %+v is omitted", len(left), left[len(left)-1], bounded.Omitted)
	}
}

// A pod that fills its volumes with links costs no other facts than its own.
func TestBoundOfCrowdedVolumes(t *testing.T) {
	whole := many(500)
	for i := range 5 * 2048 {
		m := &whole.Maps[i%5]
		m.Pins = append(m.Pins, fmt.Sprintf("/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/kubernetes.io~csi/maps/mount/link%d", i))
	}
	bounded := Bound(whole, Limit)
	if bounded.Omitted != nil || len(bounded.Maps) != len(whole.Maps) || !reflect.DeepEqual(bounded.Programs, whole.Programs) {
		t.Errorf("of 500 maps, %d are left; %+v is omitted", len(bounded.Maps), bounded.Omitted)
	}
	if left := len(bounded.Maps[0].Pins); left != maxPins {
		t.Errorf("%d pins are left of a crowded volume", left)
	}
}

// counted compares what is left with the numbers of omitted entries.
func counted(t *testing.T, whole, bounded *v1alpha1.BpfNodeStatus, omitted v1alpha1.BpfNodeOmitted) {
	t.Helper()
	there := map[uint32]bool{}
	holders, points := 0, 0
	for _, p := range bounded.Programs {
		there[p.ID] = true
		holders, points = holders-len(p.Holders), points-len(p.AttachPoints)
	}
	for _, p := range whole.Programs {
		if there[p.ID] {
			holders, points = holders+len(p.Holders), points+len(p.AttachPoints)
		}
	}
	missing := v1alpha1.BpfNodeOmitted{
		Programs: int32(len(whole.Programs) - len(bounded.Programs)), Maps: int32(len(whole.Maps) - len(bounded.Maps)),
		Conflicts: int32(len(whole.Conflicts) - len(bounded.Conflicts)), Holders: omitted.Holders, AttachPoints: omitted.AttachPoints,
	}
	if missing != omitted || omitted.Programs == 0 && (int(omitted.Holders) != holders || int(omitted.AttachPoints) != points) {
		t.Errorf("%+v is said to be omitted; missing are %+v, %d holders, %d attach points", omitted, missing, holders, points)
	}
}

// The kernel doesn't say in which network namespace the interface of an XDP link is. Interfaces of several pods often
// have the same index.
func TestXDPLinksOfInterfacesWithOneIndex(t *testing.T) {
	f := &Facts{NetNS: []process.Namespace{{Inode: hostNet}}, Programs: []kernel.Program{{ID: 2, Type: "xdp"}}}
	for i := range uint32(3) {
		at := network.Interface{NetNS: podNet + uint64(i), Index: 2, Name: "eth0"}
		f.Hooks = append(f.Hooks, network.Hook{Interface: at, Type: "xdp", Program: 2, Mode: "native"})
	}
	for _, id := range []uint32{21, 22} {
		f.Links = append(f.Links, kernel.Link{ID: id, Program: 2, Attachment: kernel.Attachment{Type: "xdp", Interface: 2}})
	}
	var got []string
	for _, point := range Status(f).Programs[0].AttachPoints {
		got = append(got, fmt.Sprintf("%s %d", point.NetNs, point.LinkID))
	}
	if want := []string{"4026532188 21", "4026532189 22", "4026532190 0"}; !slices.Equal(got, want) {
		t.Errorf("attached at %q, want %q", got, want)
	}
}
