// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package network

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// However many network namespaces containers create, the host's is read, and of each container some are.
func TestAContainerLeavesOthersTheirNamespaces(t *testing.T) {
	var namespaces []Namespace
	inode := uint64(0)
	add := func(container string, count int) {
		for range count {
			inode++
			namespaces = append(namespaces, Namespace{Inode: inode, Container: container, Host: inode == 1})
		}
	}
	add("", 1)
	for n := range 30 {
		add(fmt.Sprint("greedy-", n), 500)
	}
	for n := range 200 {
		add(fmt.Sprint("sandbox-", n), 1)
	}
	add("", 50) // mounts
	admitted, others := admit(namespaces)
	if len(admitted) != 51+maxNamespaces || len(admitted)+len(others) != len(namespaces) {
		t.Errorf("%d are read, and %d aren't", len(admitted), len(others))
	}
	for _, namespace := range admitted[:51] {
		if namespace.Container != "" {
			t.Errorf("%+v is before those of the host", namespace)
		}
	}
	of := map[string]int{}
	for _, namespace := range admitted {
		of[namespace.Container]++
	}
	for n := range 200 {
		if name := fmt.Sprint("sandbox-", n); of[name] != 1 {
			t.Errorf("that of %s isn't read", name)
		}
	}
	if of["greedy-0"] > maxOfContainer || of["greedy-0"] < 20 || of["greedy-29"] < 20 {
		t.Errorf("of a container with many, %d are read, and of another one, %d", of["greedy-0"], of["greedy-29"])
	}
	found := Hooks(slices.Repeat([]Namespace{{Inode: 1, Path: "/none", Container: "greedy"}}, 1+maxOfContainer), Wanted{XDP: true})
	if !errors.Is(found.Unread[1], ErrGone) {
		t.Errorf("%v", found.Unread)
	}
}

// Of a pod with many interfaces and filters, the first ones are read. The others say nothing about where they are.
func TestCrowdedNamespace(t *testing.T) {
	namespace := ownNetwork(t)
	const many = 20
	want := filtersOnPairs(t, many)
	for i := range want {
		want[i].NetNS = namespace.Inode
	}
	look := func(limit int) (found look, err error) {
		defer borrowThread()()
		found, _, err = read(namespace, Wanted{XDP: true, TC: true}, limit)
		return found, err
	}
	all, err := look(1000)
	if err != nil || len(all.interfaces) != 2*many+1 || !slices.Equal(all.hooks, want) {
		t.Errorf("%d interfaces, %+v, want %+v: %v", len(all.interfaces), all.hooks, want, err)
	}
	some, err := look(10)
	if !errors.Is(err, errCrowded) || len(some.interfaces) != 10 || some.entries > 3*10 {
		t.Errorf("%d interfaces, %d entries: %v", len(some.interfaces), some.entries, err)
	}
	if len(some.hooks) == 0 || !slices.Equal(some.hooks, want[:len(some.hooks)]) {
		t.Errorf("the first interfaces have %+v", some.hooks)
	}
}

// filtersOnPairs creates interfaces with filters in the current network namespace, and returns those with programs.
func filtersOnPairs(t *testing.T, many int) (want []Hook) {
	t.Helper()
	program, id := classifierProgram(t)
	for n := range many {
		index := addPair(t, n)
		at := Interface{Index: uint32(index), Name: fmt.Sprint("eth", n)}
		for _, add := range []func() error{
			func() error { return netlink.QdiscAdd(clsact(index)) },
			func() error {
				return netlink.FilterAdd(&netlink.U32{FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Priority: 1, Protocol: unix.ETH_P_ALL}})
			},
			func() error { return netlink.FilterAdd(classifier(index, program, netlink.HANDLE_MIN_EGRESS, 7)) },
			func() error { return netlink.FilterAdd(classifier(index, program, netlink.HANDLE_MIN_INGRESS, 9)) },
			func() error { return netlink.FilterAdd(classifier(index, program, netlink.HANDLE_MIN_INGRESS, 3)) },
		} {
			if err := add(); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want,
			Hook{Interface: at, Type: "tc/ingress", Program: id, Position: 1, Priority: 3},
			Hook{Interface: at, Type: "tc/ingress", Program: id, Position: 2, Priority: 9},
			Hook{Interface: at, Type: "tc/egress", Program: id, Position: 1, Priority: 7})
	}
	return want
}

// ownNetwork gives the thread a network namespace of its own. It is never unlocked, so that it ends with the namespace.
func ownNetwork(t *testing.T) Namespace {
	t.Helper()
	prerequisite.NeedsRoot(t, "a network of its own needs CAP_SYS_ADMIN")
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	namespace := Namespace{Path: fmt.Sprintf("/proc/self/fd/%d", file.Fd())}
	var stat unix.Stat_t
	if err := unix.Stat(namespace.Path, &stat); err != nil {
		t.Fatal(err)
	}
	namespace.Inode = stat.Ino
	return namespace
}

// addPair creates two interfaces, and returns the index of the first one, eth<n>.
func addPair(t *testing.T, n int) (index int) {
	t.Helper()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("eth", n)}, PeerName: fmt.Sprint("peer", n)}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(pair.Name)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}

func classifierProgram(t *testing.T) (*ebpf.Program, uint32) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	info, err := program.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return program, uint32(id)
}

func clsact(index int) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

func classifier(index int, program *ebpf.Program, parent uint32, priority uint16) netlink.Filter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Priority: priority, Protocol: unix.ETH_P_ALL}, Fd: program.FD(), Name: "f", DirectAction: true,
	}
}
