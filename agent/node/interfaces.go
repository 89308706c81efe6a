// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package node collects the state of this node that attach points depend on.
package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// skipStats is RTEXT_FILTER_SKIP_STATS of the kernel (linux/rtnetlink.h): the counters are most of what it says about an
// interface, and collecting them takes most of its time.
const skipStats = 1 << 3

// Interfaces returns the network interfaces in the agent's network namespace,
// which is the host's, with their addresses.
func Interfaces() (map[string]program.Interface, error) {
	names, err := whole(linkNames)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	addresses, err := whole(linkAddresses)
	if err != nil {
		return nil, fmt.Errorf("list addresses of network interfaces: %w", err)
	}
	interfaces := make(map[string]program.Interface, len(names))
	for index, name := range names {
		interfaces[name] = program.Interface{Index: index, Addresses: addresses[index]}
	}
	return interfaces, nil
}

// linkNames returns the names of the interfaces by their indexes. [netlink.LinkList] decodes everything that the kernel says
// about each interface, which takes several times as long and as much memory.
func linkNames() (map[int]string, error) {
	names := map[int]string{}
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	err := request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWLINK, func(message []byte) bool {
		link := nl.DeserializeIfInfomsg(message)
		if name, found := attribute(message[link.Len():], unix.IFLA_IFNAME); found {
			names[int(link.Index)] = unix.ByteSliceToString(name)
		}
		return true
	})
	return names, err //nolint:wrapcheck // the caller adds context
}

// linkAddresses returns the addresses of the interfaces by their indexes.
func linkAddresses() (map[int][]netip.Addr, error) {
	addresses := map[int][]netip.Addr{}
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
	err := request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWADDR, func(message []byte) bool {
		of := nl.DeserializeIfAddrmsg(message)
		// With a peer, IFA_ADDRESS is the peer's. IPv6 without one has no IFA_LOCAL.
		value, found := attribute(message[of.Len():], unix.IFA_LOCAL)
		if !found {
			value, _ = attribute(message[of.Len():], unix.IFA_ADDRESS)
		}
		if address, valid := netip.AddrFromSlice(value); valid {
			addresses[int(of.Index)] = append(addresses[int(of.Index)], address.Unmap())
		}
		return true
	})
	return addresses, err //nolint:wrapcheck // the caller adds context
}

// attribute returns the value of the first attribute of a type (rtnetlink(7)).
func attribute(attributes []byte, wanted uint16) ([]byte, bool) {
	for len(attributes) >= unix.SizeofRtAttr {
		size, kind := int(binary.NativeEndian.Uint16(attributes)), binary.NativeEndian.Uint16(attributes[2:])
		if size < unix.SizeofRtAttr || size > len(attributes) {
			break
		}
		if kind == wanted {
			return attributes[unix.SizeofRtAttr:size], true
		}
		aligned := (size + unix.RTA_ALIGNTO - 1) &^ (unix.RTA_ALIGNTO - 1)
		attributes = attributes[min(aligned, len(attributes)):]
	}
	return nil, false
}

// whole repeats a list that a change interrupted. Such a list can lack entries
// that didn't change.
func whole[T any](list func() (T, error)) (T, error) {
	const tries = 10
	for try := 1; ; try++ {
		all, err := list()
		if try == tries || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}

// settle is the time without changes before interfaces are listed. One change
// causes several messages.
const settle = 50 * time.Millisecond

// longest is the maximum delay after a change. Interfaces are then listed
// although they keep changing, for example while many pods start.
const longest = time.Second

// WatchInterfaces calls changed when the watch starts, and after interfaces or
// addresses were added, removed, or renamed, until ctx ends. If messages of the
// kernel were lost, it calls failed and restarts the watch.
func WatchInterfaces(ctx context.Context, changed func(), failed func(error)) {
	for ctx.Err() == nil {
		if err := watchInterfaces(ctx, changed); err != nil {
			failed(fmt.Errorf("watch network interfaces: %w", err))
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func watchInterfaces(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	links, addresses := make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate)
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: func(err error) { cancel(err) }}); err != nil {
		return fmt.Errorf("subscribe to links: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addresses, ctx.Done(), netlink.AddrSubscribeOptions{ErrorCallback: func(err error) { cancel(err) }}); err != nil {
		cancel(err)
		drain(links)
		return fmt.Errorf("subscribe to addresses: %w", err)
	}
	changed() // there may have been changes before the watch
	var quiet, busy <-chan time.Time
	noticed := func() {
		quiet = time.After(settle)
		if busy == nil {
			busy = time.After(longest)
		}
	}
	names := map[int32]string{}
	for {
		select {
		case u, ok := <-links:
			if !ok {
				cancel(errors.New("the subscription to links ended"))
				links = nil
				continue
			}
			if !renamed(names, u) {
				continue
			}
			noticed()
		case _, ok := <-addresses:
			if !ok {
				cancel(errors.New("the subscription to addresses ended"))
				addresses = nil
				continue
			}
			noticed()
		case <-quiet:
			quiet, busy = nil, nil
			changed()
		case <-busy:
			quiet, busy = nil, nil
			changed()
		case <-ctx.Done():
			// The subscriptions close their channels after ctx has ended.
			go drain(links)
			go drain(addresses)
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
	}
}

// renamed updates the names of interfaces. It reports whether an interface was
// added, removed, or renamed. Other messages are about flags and counters, and
// are frequent.
func renamed(names map[int32]string, u netlink.LinkUpdate) bool {
	name, known := names[u.Index]
	if u.Header.Type == unix.RTM_DELLINK {
		delete(names, u.Index)
		return true
	}
	names[u.Index] = u.Attrs().Name
	return !known || name != u.Attrs().Name
}

func drain[T any](c <-chan T) {
	for range c {
		// Unblocks the sender, so that it can end.
	}
}
