// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// inNetwork runs a test on a thread in a new network namespace.
func inNetwork(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	prerequisite.NeedsRoot(t, "a network of its own needs CAP_SYS_ADMIN")
	daemontest.OnOwnThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("make a network namespace: %v", err)
			return
		}
		test(t)
	})
}

// do reports the error of a change to the network.
func do(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// veth returns a pair of interfaces, with this name and "peer".
func veth(name string) *netlink.Veth {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return &netlink.Veth{LinkAttrs: attrs, PeerName: "peer"}
}

func address(t *testing.T, text string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(text)
	do(t, "parse "+text, err)
	return a
}

// listed lists the interfaces with their addresses, except link-local ones, which the
// kernel adds at any time.
func listed(t *testing.T) map[string]program.Interface {
	t.Helper()
	all, err := Interfaces()
	do(t, "list", err)
	for name, i := range all {
		i.Addresses = slices.DeleteFunc(i.Addresses, netip.Addr.IsLinkLocalUnicast)
		slices.SortFunc(i.Addresses, netip.Addr.Compare)
		all[name] = i
	}
	return all
}

func TestInterfaces(t *testing.T) {
	inNetwork(t, func(t *testing.T) {
		t.Helper()
		link := veth("first")
		do(t, "add", netlink.LinkAdd(link))
		for _, a := range []string{"192.0.2.7/24", "192.0.2.8/24", "2001:db8::7/64"} {
			do(t, "add "+a, netlink.AddrAdd(link, address(t, a)))
		}
		got := listed(t)
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"first", "lo", "peer"}) {
			t.Errorf("interfaces %v", names)
		}
		want := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("2001:db8::7")}
		if i := got["first"]; i.Index != link.Index || !slices.Equal(i.Addresses, want) {
			t.Errorf("first: %+v, want index %d and %v", i, link.Index, want)
		}
		if i := got["peer"]; i.Index == 0 || i.Index == got["first"].Index || len(i.Addresses) > 0 {
			t.Errorf("peer: %+v", i)
		}

		do(t, "rename", netlink.LinkSetName(link, "renamed"))
		got = listed(t)
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"lo", "peer", "renamed"}) || got["renamed"].Index != link.Index {
			t.Errorf("interfaces %v", got)
		}

		// A new interface with the same name has another index.
		do(t, "delete", netlink.LinkDel(link))
		if names := slices.Sorted(maps.Keys(listed(t))); !slices.Equal(names, []string{"lo"}) {
			t.Errorf("interfaces %v", names)
		}
		do(t, "add", netlink.LinkAdd(veth("renamed")))
		if i := listed(t)["renamed"]; i.Index == link.Index || len(i.Addresses) > 0 {
			t.Errorf("a new one: %+v", i)
		}
	})
}

// The primary interface is found by the node's address, IPv4 or IPv6, in the kernel's
// list.
func TestPrimaryInterface(t *testing.T) {
	inNetwork(t, func(t *testing.T) {
		t.Helper()
		link := veth("first")
		do(t, "add", netlink.LinkAdd(link))
		do(t, "add IPv4", netlink.AddrAdd(link, address(t, "192.0.2.7/24")))
		second := veth("second")
		second.PeerName = "peer2"
		do(t, "add", netlink.LinkAdd(second))
		do(t, "add IPv6", netlink.AddrAdd(second, address(t, "2001:db8::7/64")))

		o := &v1alpha1.TcxProgram{}
		o.Spec.InterfaceSelector.PrimaryNodeInterface, o.Spec.Direction = new(true), "ingress"
		owner := program.OwnerOf("TcxProgram", o)
		interfaces, err := Interfaces()
		do(t, "list", err)
		for nodeAddress, want := range map[string]string{"192.0.2.7": "first ingress", "2001:db8::7": "second ingress", "192.0.2.9": ""} {
			points, err := owner.Members[0].AttachPoints(program.Node{
				Name: "node", Addresses: []netip.Addr{netip.MustParseAddr(nodeAddress)}, Interfaces: interfaces,
			})
			if (err == nil) != (want != "") || err == nil && (len(points) != 1 || points[0].Name != want) {
				t.Errorf("%s: %v, %v, want %q", nodeAddress, points, err, want)
			}
		}
	})
}

// An interrupted list is repeated a limited number of times. Other errors are returned
// immediately.
func TestWhole(t *testing.T) {
	for name, c := range map[string]struct {
		errs  []error
		calls int
		err   error
	}{
		"whole":            {nil, 1, nil},
		"interrupted once": {[]error{netlink.ErrDumpInterrupted}, 2, nil},
		"always":           {slices.Repeat([]error{netlink.ErrDumpInterrupted}, 100), 10, netlink.ErrDumpInterrupted},
		"another error":    {[]error{unix.EPERM}, 1, unix.EPERM},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			got, err := whole(func() ([]int, error) {
				calls++
				if calls <= len(c.errs) {
					return nil, c.errs[calls-1]
				}
				return []int{calls}, nil
			})
			if calls != c.calls || !errors.Is(err, c.err) || (err == nil) != slices.Equal(got, []int{calls}) {
				t.Errorf("%d calls, %v, %v", calls, got, err)
			}
		})
	}
}

// watched watches the interfaces of a new network namespace, and calls change after the watch has begun. change gets a
// connection to the namespace, which its own thread isn't in, and a channel with what the watch reports.
func watched(t *testing.T, change func(network *netlink.Handle, changed <-chan struct{})) {
	t.Helper()
	inNetwork(t, func(t *testing.T) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changed, done := make(chan struct{}), make(chan struct{})
		network, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			t.Error(err)
			return
		}
		defer network.Close()
		go func() {
			defer close(done)
			defer cancel()
			await(t, changed, "the watch to begin")
			change(network, changed)
		}()
		// Watches the network namespace of the calling thread.
		WatchInterfaces(ctx, func() {
			select {
			case changed <- struct{}{}:
			case <-ctx.Done():
			}
		}, func(err error) { t.Errorf("watch: %v", err) })
		<-done
	})
}

func TestWatchInterfaces(t *testing.T) {
	watched(t, func(network *netlink.Handle, changed <-chan struct{}) {
		link := veth("first")
		for _, step := range []struct {
			what string
			do   func() error
		}{
			{"an interface to come", func() error { return network.LinkAdd(link) }},
			{"an address to come", func() error { return network.AddrAdd(link, address(t, "192.0.2.7/24")) }},
			{"an address to go", func() error { return network.AddrDel(link, address(t, "192.0.2.7/24")) }},
			{"another name", func() error { return network.LinkSetName(link, "renamed") }},
			{"an interface to go", func() error { return network.LinkDel(link) }},
		} {
			do(t, step.what, step.do())
			await(t, changed, step.what)
		}
	})
}

// Interfaces are listed although they keep changing.
func TestWatchInterfacesThatNeverRest(t *testing.T) {
	watched(t, func(network *netlink.Handle, changed <-chan struct{}) {
		patience := time.After(20 * time.Second)
		for {
			link := veth("restless")
			do(t, "add", network.LinkAdd(link))
			do(t, "delete", network.LinkDel(link))
			select {
			case <-changed:
				return
			case <-patience:
				t.Error("nobody looked at interfaces that come and go")
				return
			default:
			}
		}
	})
}

// Messages without an effect on the selection of interfaces are ignored.
func TestRenamed(t *testing.T) {
	names := map[int32]string{}
	for _, step := range []struct {
		index int32
		kind  uint16
		name  string
		want  bool
	}{
		{1, unix.RTM_NEWLINK, "a", true},
		{1, unix.RTM_NEWLINK, "a", false},
		{2, unix.RTM_NEWLINK, "b", true},
		{1, unix.RTM_NEWLINK, "c", true},
		{2, unix.RTM_NEWLINK, "b", false},
		{1, unix.RTM_DELLINK, "c", true},
		{1, unix.RTM_NEWLINK, "c", true},
		{3, unix.RTM_DELLINK, "d", true},
	} {
		u := netlink.LinkUpdate{Header: unix.NlMsghdr{Type: step.kind}, Link: veth(step.name)}
		u.Index = step.index
		if got := renamed(names, u); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
	}
	if want := map[int32]string{1: "c", 2: "b"}; !maps.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
}

// await waits for an event. Only a failed test takes the full timeout.
func await(t *testing.T, event <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(20 * time.Second):
		t.Errorf("waited in vain for %s", what)
	}
}
