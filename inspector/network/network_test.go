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
	ended := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
			}
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
		if found := Hooks([]Namespace{{Inode: stat.Ino, Path: path}}, Wanted{XDP: true}); len(found.Unread) > 0 {
			t.Error(found.Unread)
			break
		}
	}
	close(ended)
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
