// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package node collects the state of this node that attach points depend on.
package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// Interfaces returns the network interfaces in the agent's network namespace,
// which is the host's, with their addresses.
func Interfaces() (map[string]program.Interface, error) {
	links, err := whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	interfaces := make(map[string]program.Interface, len(links))
	names := make(map[int]string, len(links))
	for _, l := range links {
		attrs := l.Attrs()
		interfaces[attrs.Name] = program.Interface{Index: attrs.Index}
		names[attrs.Index] = attrs.Name
	}
	addresses, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of network interfaces: %w", err)
	}
	for _, a := range addresses {
		name, ok := names[a.LinkIndex]
		address, valid := netip.AddrFromSlice(a.IP)
		if !ok || !valid {
			continue
		}
		i := interfaces[name]
		i.Addresses = append(i.Addresses, address.Unmap())
		interfaces[name] = i
	}
	return interfaces, nil
}

// whole repeats a list that a change interrupted. Such a list can lack entries
// that didn't change.
func whole[T any](list func() ([]T, error)) ([]T, error) {
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
