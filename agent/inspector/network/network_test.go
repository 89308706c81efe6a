// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package network

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
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
	for range 300 {
		if _, err := Hooks([]Namespace{{Inode: 1, Path: fmt.Sprintf("/proc/self/fd/%d", namespace.Fd())}}, Wanted{XDP: true}); err != nil {
			t.Error(err)
			break
		}
	}
	close(ended)
	changes.Wait()
}
