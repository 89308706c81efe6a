// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func discover(allowed, excluded []string) v1alpha1.InterfaceSelector {
	return v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{
		InterfaceAutoDiscovery: new(true), AllowedInterfaces: allowed, ExcludeInterfaces: excluded,
	}}
}

func TestDiscoverySelects(t *testing.T) {
	there := []string{"veth1a", "lo", "eth0", "eth10", "br-lan"}
	for name, test := range map[string]struct {
		allowed, excluded []string
		want              string
		err               string
	}{
		"all but the loopback":           {excluded: []string{"lo"}, want: "br-lan eth0 eth10 veth1a"},
		"nothing excluded":               {want: "br-lan eth0 eth10 lo veth1a"},
		"by name":                        {allowed: []string{"eth0", "eth7"}, want: "eth0"},
		"a name isn't a part of another": {allowed: []string{"eth1"}, want: ""},
		"by pattern":                     {allowed: []string{"/^eth/"}, want: "eth0 eth10"},
		"a pattern matches anywhere":     {allowed: []string{"/eth/"}, want: "eth0 eth10 veth1a"},
		"both":                           {allowed: []string{" lo ", " /^br-/ "}, want: "br-lan lo"},
		"excluded rules":                 {allowed: []string{"/eth/", "lo"}, excluded: []string{"eth0", "lo", "/^v/"}, want: "eth10"},
		"a single slash is a name":       {allowed: []string{"/"}, want: ""},
		"the empty pattern is any":       {allowed: []string{"//"}, want: "br-lan eth0 eth10 lo veth1a"},
		"no pattern":                     {allowed: []string{"/[/"}, err: "pattern of allowed interfaces /[/: error parsing regexp"},
		"no pattern to exclude":          {excluded: []string{"/(/"}, err: "pattern of excluded interfaces /(/: error parsing regexp"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := discoveryOf(discover(test.allowed, test.excluded).InterfacesDiscoveryConfig)
			if err != nil {
				if test.err == "" || !strings.HasPrefix(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			if test.err != "" {
				t.Fatalf("no error, want %q", test.err)
			}
			if got := strings.Join(d.of(slices.Clone(there)), " "); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// Discovery on the host, in pods, and in pods with the host's network.
func TestDiscoveredAttachPoints(t *testing.T) {
	n := node
	n.Containers = slices.Clone(node.Containers)
	for i := range n.Containers {
		n.Containers[i].Interfaces = []string{"lo", "eth0", "net1"}
	}
	n.Containers[2].Interfaces, n.Containers[2].InterfacesErr = nil, errors.New("evil/web-0 isn't seen")
	all := discover(nil, []string{"lo"})
	off := v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{}}
	for name, test := range map[string]struct {
		info v1alpha1.TcxProgramInfo
		want []string
		err  string
	}{
		"host":           {info: v1alpha1.TcxProgramInfo{InterfaceSelector: all}, want: []string{"eth0 ingress", "eth1 ingress"}},
		"turned off":     {info: v1alpha1.TcxProgramInfo{InterfaceSelector: off}},
		"not attached":   {info: v1alpha1.TcxProgramInfo{InterfaceSelector: all, BpfProgramCommon: v1alpha1.BpfProgramCommon{Attach: new(false)}}},
		"host's network": {info: v1alpha1.TcxProgramInfo{InterfaceSelector: all, Containers: &v1alpha1.ContainerSelector{Pods: app("net")}}, want: []string{"eth0 ingress", "eth1 ingress"}},
		"pods": {
			info: v1alpha1.TcxProgramInfo{InterfaceSelector: all, Containers: &v1alpha1.ContainerSelector{Pods: app("web")}},
			want: []string{"eth0 ingress in pod acme/web-0", "net1 ingress in pod acme/web-0"},
			err:  "evil/web-0 isn't seen",
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := &v1alpha1.TcxProgram{}
			object.Spec.TcxProgramInfo = test.info
			object.Spec.Direction = "ingress"
			owner := OwnerOf("TcxProgram", object)
			points, err := owner.Members[0].AttachPoints(n)
			if got := text(err); got != test.err {
				t.Errorf("error %q, want %q", got, test.err)
			}
			var got []string
			for _, p := range points {
				got = append(got, p.Name)
				if !p.Discovered || p.Lack != nil {
					t.Errorf("%+v", p)
				}
			}
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
			wantNeeds := Needs{Interfaces: true, Containers: test.info.Containers != nil, PodInterfaces: test.info.Containers != nil}
			if name == "not attached" {
				wantNeeds = Needs{}
			}
			if needs := owner.Needs(); needs != wantNeeds {
				t.Errorf("needs %+v, want %+v", needs, wantNeeds)
			}
		})
	}
}

// An interface has the same link if it is named and if it is discovered, so
// that switching to discovery doesn't attach it again.
func TestDiscoveredLinksAreThoseOfNamedInterfaces(t *testing.T) {
	named, err := tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: interfaces("eth0"), Direction: "ingress"}, false).AttachPoints(node)
	if err != nil {
		t.Fatal(err)
	}
	found, err := tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: discover([]string{"eth0"}, nil), Direction: "ingress"}, false).AttachPoints(node)
	if err != nil || len(found) != 1 || found[0].Name != named[0].Name || found[0].Digest != named[0].Digest {
		t.Errorf("%v, %v, want %v", found, err, named)
	}
}

func TestDiscoveryIsBounded(t *testing.T) {
	n := Node{Interfaces: map[string]Interface{}}
	for i := range mostDiscovered + 3 {
		n.Interfaces[fmt.Sprintf("veth%04d", i)] = Interface{Index: i + 1}
	}
	points, err := xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: discover(nil, nil)}, false).AttachPoints(n)
	excess := (*ExcessError)(nil)
	if !errors.As(err, &excess) || excess.Found != mostDiscovered+3 || len(points) != mostDiscovered || points[mostDiscovered-1].Name != "veth1023" {
		t.Errorf("%d points, %v", len(points), err)
	}
	// There is no limit for named interfaces.
	names := slices.Collect(maps.Keys(n.Interfaces))
	if points, err := xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: interfaces(names...)}, false).AttachPoints(n); err != nil || len(points) != len(names) {
		t.Errorf("%d points, %v", len(points), err)
	}
}

// A pod with many interfaces leaves the others their share, no matter which comes first.
func TestDiscoveredInterfacesAreShared(t *testing.T) {
	named := func(n int) []string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("eth%04d", i))
		}
		return names
	}
	discovering := tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: discover(nil, nil), Containers: &v1alpha1.ContainerSelector{}, Direction: "ingress"}, false)
	for name, test := range map[string]struct{ there, want map[string]int }{
		"what others leave is taken": {
			map[string]int{"a": 2000, "b": 3, "c": 0, "d": 2}, map[string]int{"a": mostDiscovered - 5, "b": 3, "d": 2},
		},
		"two share what is left": {
			map[string]int{"a": 2000, "b": 100, "c": 1500}, map[string]int{"a": 462, "b": 100, "c": 462},
		},
		"the node is one of them": {
			map[string]int{"host": 2000, "b": 3, "c": 9}, map[string]int{"host": mostDiscovered - 12, "b": 3, "c": 9},
		},
		"the last one has its share": {
			map[string]int{"a": 1, "b": 2, "z": 5000}, map[string]int{"a": 1, "b": 2, "z": mostDiscovered - 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := Node{Interfaces: map[string]Interface{}}
			found := 0
			for pod, count := range test.there {
				c := Container{Namespace: "a", Pod: pod, PodUID: pod, Sandbox: pod, NetNS: "/run/netns/" + pod, Interfaces: named(count)}
				if pod == "host" {
					c.HostNetwork = true
					for i, name := range c.Interfaces {
						n.Interfaces[name] = Interface{Index: i + 1}
					}
				}
				n.Containers = append(n.Containers, c)
				found += count
			}
			points, err := discovering.AttachPoints(n)
			if excess := (*ExcessError)(nil); !errors.As(err, &excess) || excess.Found != found {
				t.Errorf("%v, instead of %d interfaces", err, found)
			}
			got := map[string]int{}
			for _, point := range points {
				of := cmp.Or(point.In, "host")
				if name, _, _ := strings.Cut(point.Name, " "); name != fmt.Sprintf("eth%04d", got[of]) {
					t.Errorf("%s has %s at place %d", of, name, got[of])
				}
				got[of]++
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// What is known of interfaces beyond the limit is their names.
func TestManyDiscoveredInterfacesTakeNoSpace(t *testing.T) {
	names := make([]string, 8000)
	for i := range names {
		names[i] = fmt.Sprint("eth", i)
	}
	n := Node{Interfaces: map[string]Interface{}}
	for pod := range 10 {
		name := fmt.Sprint("pod", pod)
		n.Containers = append(n.Containers, Container{Namespace: "a", Pod: name, PodUID: name, Sandbox: name, NetNS: "/run/netns/" + name, Interfaces: names})
	}
	discovering := tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: discover(nil, nil), Containers: &v1alpha1.ContainerSelector{}, Direction: "ingress"}, false)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	points, err := discovering.AttachPoints(n)
	runtime.ReadMemStats(&after)
	if allocated, most := after.TotalAlloc-before.TotalAlloc, uint64(16<<20); allocated > most || len(points) != mostDiscovered || err == nil {
		t.Errorf("%d bytes are allocated for %d attach points: %v", allocated, len(points), err)
	}
}

// Root in a pod can name interfaces with almost any bytes. Each is an attach point with a name of its own, in UTF-8, and what the
// daemon's API doesn't take isn't attached.
func TestDiscoveredInterfacesWithOddNames(t *testing.T) {
	names := map[string]bool{ // whether it is attached
		"eth0": true, "\xff": false, "\xfe": false, `\xff`: true, `"\xff"`: true, "\x1b[31m": true, "\u202e": true, "a\ufffd": true, "été": true,
	}
	n := Node{Interfaces: map[string]Interface{}, Containers: []Container{
		{Namespace: "a", Pod: "b", PodUID: "c", Sandbox: "d", NetNS: "/run/netns/e", Interfaces: slices.Collect(maps.Keys(names))},
	}}
	discovering := &v1alpha1.TcxProgramInfo{InterfaceSelector: discover(nil, nil), Containers: &v1alpha1.ContainerSelector{}, Direction: "ingress"}
	points, err := tcxOf(discovering, false).AttachPoints(n)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, point := range points {
		name := point.Info.GetTcxAttachInfo().GetIface()
		if other, is := seen[point.Name]; is {
			t.Errorf("%q and %q are both %s", name, other, point.Name)
		}
		seen[point.Name] = name
		if !utf8.ValidString(point.Name) || strings.ContainsFunc(point.Name, func(r rune) bool { return !strconv.IsPrint(r) }) {
			t.Errorf("%q", point.Name)
		}
		if (point.Lack == nil) != names[name] {
			t.Errorf("%q: %v", name, point.Lack)
		}
	}
	if len(points) != len(names) {
		t.Errorf("%d attach points of %d interfaces", len(points), len(names))
	}
}

// Programs of all types can be loaded without being attached.
func TestLoadedAndNotAttached(t *testing.T) {
	common := v1alpha1.BpfProgramCommon{BpfFunctionName: "f", Attach: new(false)}
	app := &v1alpha1.BpfApplication{}
	app.Spec.Programs = []v1alpha1.BpfApplicationProgram{
		{Type: v1alpha1.ProgTypeFentry, Fentry: &v1alpha1.FentryProgramInfo{BpfProgramCommon: common, FunctionName: "do_unlinkat"}},
		{Type: v1alpha1.ProgTypeKprobe, Kprobe: &v1alpha1.KprobeProgramInfo{BpfProgramCommon: common, FunctionName: "try_to_wake_up"}},
		{Type: v1alpha1.ProgTypeUprobe, Uprobe: &v1alpha1.UprobeProgramInfo{BpfProgramCommon: common, Target: "libc"}},
		{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &v1alpha1.TracepointProgramInfo{BpfProgramCommon: common, Names: []string{"sched/sched_switch"}}},
		{Type: v1alpha1.ProgTypeXDP, XDP: &v1alpha1.XdpProgramInfo{BpfProgramCommon: common, InterfaceSelector: primary()}},
	}
	owner := OwnerOf("BpfApplication", app)
	for _, m := range owner.Members {
		points, err := m.AttachPoints(Node{})
		if err != nil || len(points) > 0 || m.LoadInfo().GetName() != "f" {
			t.Errorf("%s: %v, %v", m.ID, points, err)
		}
	}
	if needs := owner.Needs(); needs != (Needs{}) {
		t.Errorf("needs %+v", needs)
	}
}
