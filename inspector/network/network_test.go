// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// On a node with many pods, one starts or ends during many of the lists of interfaces. The kernel says that such a list
// was interrupted.
func TestHooksWhileInterfacesComeAndGo(t *testing.T) {
	prerequisite.NeedsRoot(t, "a network of its own needs CAP_SYS_ADMIN")
	// Never unlocked, so that the thread ends with its network namespace.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE) // for the other thread, in this one's network
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	pair := func(name string) *netlink.Veth {
		return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}
	}
	for i := range 100 {
		if err := handle.LinkAdd(pair(fmt.Sprintf("pod%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	// A few changes for each scan: on a busy machine, every list would otherwise be interrupted.
	next := make(chan struct{}, 1)
	var changes sync.WaitGroup
	changes.Go(func() {
		for range next {
			if err := handle.LinkAdd(pair("new")); err != nil {
				t.Error(err)
				return
			}
			if link, err := handle.LinkByName("new"); err != nil || handle.LinkDel(link) != nil {
				t.Errorf("remove an interface: %v", err)
				return
			}
		}
	})
	path := fmt.Sprintf("/proc/self/fd/%d", namespace.Fd())
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		select {
		case next <- struct{}{}:
		default:
		}
		if found := Hooks([]Namespace{{Inode: stat.Ino, Path: path}}, Wanted{XDP: true}); len(found.Unread) > 0 {
			t.Error(found.Unread)
			break
		}
	}
	close(next)
	changes.Wait()
}

// The kernel can give the id of a process that ended to one in another namespace.
func TestHooksOfAnotherNamespace(t *testing.T) {
	prerequisite.NeedsRoot(t, "entering a network namespace needs CAP_SYS_ADMIN")
	for name, path := range map[string]string{"a reused id": "/proc/self/ns/net", "no process": "/proc/self/ns/none"} {
		found := Hooks([]Namespace{{Inode: 1, Path: path}}, Wanted{XDP: true, TC: true})
		if len(found.Hooks) > 0 || !errors.Is(found.Unread[1], ErrGone) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// A thread that stayed in a pod's namespace would keep it.
func TestThreadsReturnToTheirNamespace(t *testing.T) {
	prerequisite.NeedsRoot(t, "a network of its own needs CAP_SYS_ADMIN")
	before := threadNamespaces(t)
	sleep := exec.CommandContext(t.Context(), "sleep", "infinity")
	sleep.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	path := fmt.Sprintf("/proc/%d/ns/net", sleep.Process.Pid)
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	if found := Hooks([]Namespace{{Inode: stat.Ino, Path: path}}, Wanted{XDP: true}); len(found.Unread) > 0 {
		t.Fatal(found.Unread)
	}
	for namespace := range threadNamespaces(t) {
		if !before[namespace] {
			t.Errorf("a thread is in %s", namespace)
		}
	}
}

// threadNamespaces returns the network namespaces of this process's threads.
func threadNamespaces(t *testing.T) map[string]bool {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, thread := range threads {
		if namespace, err := os.Readlink(thread); err == nil {
			found[namespace] = true
		}
	}
	return found
}

// A pod can have any number of interfaces. Each is read from the message about it, and nothing of the message is kept.
func TestMessagesAreNotKept(t *testing.T) {
	buffer := make([]byte, 256)
	l := look{netns: 7, wanted: Wanted{XDP: true}}
	for index, name := range []string{1: "eth1", 2: "eth2", 3: "eth3"} {
		if name == "" {
			continue
		}
		about := nl.NewIfInfomsg(unix.AF_UNSPEC)
		about.Index = int32(index)
		xdp := nl.NewRtAttr(unix.IFLA_XDP, nil)
		xdp.AddRtAttr(unix.IFLA_XDP_SKB_PROG_ID, nl.Uint32Attr(uint32(10+index)))
		message := slices.Concat(about.Serialize(), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)).Serialize(), xdp.Serialize())
		if err := l.link(buffer[:copy(buffer, message)]); err != nil {
			t.Fatal(err)
		}
	}
	clear(buffer)
	want := []Interface{{7, 1, "eth1"}, {7, 2, "eth2"}, {7, 3, "eth3"}}
	if !slices.Equal(l.interfaces, want) {
		t.Errorf("%+v", l.interfaces)
	}
	for i, hook := range l.hooks {
		if hook != (Hook{Interface: want[i], Type: "xdp", Program: want[i].Index + 10, Mode: "generic"}) {
			t.Errorf("%+v", hook)
		}
	}
	if len(l.hooks) != len(want) || l.link(buffer[:3]) != nil {
		t.Errorf("%d hooks", len(l.hooks))
	}
}

// The filters of a queueing discipline, which choose a queue, aren't in the chain of the hook for outgoing packets. The kernel
// runs them later, no matter which result ended the chain, unless the packet is dropped or sent elsewhere.
func TestFiltersOfAQueueingDiscipline(t *testing.T) {
	namespace := ownNetwork(t)
	program, id := classifierProgram(t) // its result, TC_ACT_OK, ends a chain
	queueing, queueingID := classifierProgram(t)
	index := addPair(t, 0)
	for _, add := range []func() error{
		func() error {
			return netlink.QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}))
		},
		func() error { return netlink.FilterAdd(classifier(index, queueing, netlink.MakeHandle(1, 0), 5)) },
		func() error { return netlink.QdiscAdd(clsact(index)) },
		func() error { return netlink.FilterAdd(classifier(index, program, netlink.HANDLE_MIN_EGRESS, 7)) },
		func() error { return netlink.FilterAdd(classifier(index, program, netlink.HANDLE_MIN_EGRESS, 9)) },
	} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	found := Hooks([]Namespace{namespace}, Wanted{TC: true})
	at := Interface{NetNS: namespace.Inode, Index: uint32(index), Name: "eth0"}
	want := []Hook{
		{Interface: at, Type: "tc/qdisc", Program: queueingID, Position: 1, Priority: 5},
		{Interface: at, Type: "tc/egress", Program: id, Position: 1, Priority: 7},
		{Interface: at, Type: "tc/egress", Program: id, Position: 2, Priority: 9},
	}
	if !slices.Equal(found.Hooks, want) || len(found.Unread) > 0 {
		t.Errorf("%+v, want %+v", found, want)
	}
	if !runsForPackets(t, queueing, index) {
		t.Error("the chain of the hook ends that of the queueing discipline")
	}
}

// runsForPackets reports whether a program runs for packets that are sent.
func runsForPackets(t *testing.T, program *ebpf.Program, index int) bool {
	t.Helper()
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer counting.Close()
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	setUp(t, index)
	if err := unix.Sendto(socket, make([]byte, 64), 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		t.Fatal(err)
	}
	stats, err := program.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats.RunCount > 0
}

// setUp sets an interface and its peer up, and waits until the kernel uses its queue.
func setUp(t *testing.T, index int) {
	t.Helper()
	changes, done := make(chan netlink.LinkUpdate, 100), make(chan struct{})
	defer close(done)
	if err := netlink.LinkSubscribe(changes, done); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []netlink.Link{link, &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: link.Attrs().ParentIndex}}} {
		if err := netlink.LinkSetUp(end); err != nil {
			t.Fatal(err)
		}
	}
	for change := range changes {
		if change.Attrs().Index == index && change.Attrs().OperState == netlink.OperUp {
			return
		}
	}
}
