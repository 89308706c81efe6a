// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// hostProc is a /proc with regular files.
type hostProc struct {
	t   *testing.T
	dir string
}

func newHostProc(t *testing.T) hostProc {
	t.Helper()
	p := hostProc{t, t.TempDir()}
	p.process(1, "/init.scope", "lo", "eth0")
	return p
}

func (p hostProc) process(pid int, group string, interfaces ...string) {
	p.t.Helper()
	dir := filepath.Join(p.dir, fmt.Sprint(pid))
	if err := os.MkdirAll(filepath.Join(dir, "net"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	table := "Inter-|   Receive                                                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
	for _, name := range interfaces {
		table += fmt.Sprintf("%6s: 1008 12 0 0 0 0 0 0 1008 12 0 0 0 0 0 0\n", name)
	}
	for name, content := range map[string]string{"net/dev": table, "cgroup": "12:pids:" + group + "\n0::/\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p hostProc) end(pid int) {
	p.t.Helper()
	if err := os.RemoveAll(filepath.Join(p.dir, fmt.Sprint(pid))); err != nil {
		p.t.Fatal(err)
	}
}

func TestPodInterfaces(t *testing.T) {
	proc := newHostProc(t)
	proc.process(10, "/kubepods/podu1/sandbox1", "lo", "eth0")
	proc.process(11, "/kubepods/podu1/c1", "lo", "eth0")
	proc.process(21, "/kubepods.slice/crio-c2.scope", "lo", "eth0", "net1")
	proc.process(31, "/kubepods/podu3/other", "lo", "secret0")
	pods := func() []program.Container {
		return []program.Container{
			{Pod: "containerd", Sandbox: "sandbox1", NetNS: "/proc/10/ns/net", ID: "c0"}, // it has ended
			{Pod: "containerd", Sandbox: "sandbox1", NetNS: "/proc/10/ns/net", ID: "c1", PID: 11},
			{Pod: "cri-o", Sandbox: "sandbox2", NetNS: "/var/run/netns/x", ID: "c2", PID: 21},
			{Pod: "its process is another's by now", Sandbox: "sandbox3", NetNS: "/proc/31/ns/net", ID: "c3", PID: 31},
			{Pod: "host", Sandbox: "sandbox4", HostNetwork: true, ID: "c4", PID: 1},
		}
	}
	interfaces := NewPodInterfaces(proc.dir)
	expect := func(want ...string) {
		t.Helper()
		containers := pods()
		interfaces.Set(containers)
		for i, c := range containers {
			unseen := want[i] == "" && !c.HostNetwork
			if got := strings.Join(c.Interfaces, " "); got != want[i] || errors.Is(c.InterfacesErr, program.ErrUnseen) != unseen || !unseen && c.InterfacesErr != nil {
				t.Errorf("%s: %q, %v, want %q", c.Pod, got, c.InterfacesErr, want[i])
			}
		}
	}
	expect("lo eth0", "lo eth0", "lo eth0 net1", "", "")

	// Interfaces can change while the pod runs.
	proc.process(21, "/kubepods.slice/crio-c2.scope", "lo", "tun0")
	expect("lo eth0", "lo eth0", "lo tun0", "", "")

	// While no process is running, the last known interfaces are returned.
	proc.end(10)
	expect("lo eth0", "lo eth0", "lo tun0", "", "")
	proc.end(11)
	proc.end(21)
	expect("lo eth0", "lo eth0", "lo tun0", "", "")

	// Another owner selects pods of another namespace.
	interfaces.Set([]program.Container{{Pod: "another", Sandbox: "sandbox5", ID: "c5", PID: 1}})
	interfaces.Set(nil)
	expect("lo eth0", "lo eth0", "lo tun0", "", "")
}

func TestHostsProcessesThatCannotBeSeen(t *testing.T) {
	containers := []program.Container{{Namespace: "acme", Pod: "web", Sandbox: "s", ID: "c", PID: 7}}
	NewPodInterfaces(t.TempDir()).Set(containers)
	if err := containers[0].InterfacesErr; err == nil || !strings.Contains(err.Error(), "acme/web: the host's processes aren't visible (hidepid?)") {
		t.Errorf("%v", err)
	}
}

// The kernel's table.
func TestInterfacesInTheKernelsTable(t *testing.T) {
	inNetwork(t, func(t *testing.T) {
		t.Helper()
		do(t, "add", netlink.LinkAdd(veth("first")))
		names, err := interfacesIn("/proc/thread-self/net/dev")
		do(t, "read", err)
		if slices.Sort(names); !slices.Equal(names, slices.Sorted(maps.Keys(listed(t)))) || !slices.Contains(names, "first") {
			t.Errorf("%q", names)
		}
	})
}

// A pod can add interfaces without a limit.
func TestTooManyInterfaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dev")
	for lines, want := range map[int]error{8000: nil, 800_000: errManyInterfaces} {
		var table strings.Builder
		for n := range lines {
			fmt.Fprintf(&table, "%6d: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", n)
		}
		do(t, "write", os.WriteFile(file, []byte(table.String()), 0o600))
		if names, err := interfacesIn(file); !errors.Is(err, want) || want == nil && len(names) != lines {
			t.Errorf("%d lines: %d names, %v", lines, len(names), err)
		}
	}
}

// What is known of a pod with too many interfaces isn't all of them.
func TestTooManyInterfacesInAKnownPod(t *testing.T) {
	proc := newHostProc(t)
	proc.process(10, "/kubepods/podu1/sandbox1", "lo", "eth0")
	interfaces, pod := NewPodInterfaces(proc.dir), []program.Container{{Sandbox: "sandbox1", NetNS: "/proc/10/ns/net"}}
	interfaces.Set(pod)
	do(t, "write", os.WriteFile(filepath.Join(proc.dir, "10/net/dev"), make([]byte, maxTable+1), 0o600))
	interfaces.Set(pod)
	if c := pod[0]; !errors.Is(c.InterfacesErr, errManyInterfaces) || !slices.Equal(c.Interfaces, []string{"lo", "eth0"}) {
		t.Errorf("%q, %v", c.Interfaces, c.InterfacesErr)
	}
}
