// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package node gathers the facts of this node that attach points depend on.
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

// Interfaces lists the network interfaces of the agent's network namespace,
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

// whole lists again where a change came between: such a list may lack what has
// been there all the time.
func whole[T any](list func() ([]T, error)) ([]T, error) {
	const tries = 10
	for try := 1; ; try++ {
		all, err := list()
		if try == tries || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}

// settle is how long interfaces must have been quiet before they are looked at:
// one change brings several messages.
const settle = 50 * time.Millisecond

// longest is how long they may be restless, as while many pods start, until they
// are looked at all the same.
const longest = time.Second

// WatchInterfaces calls changed once it watches, and after interfaces or their
// addresses have come, gone or changed names, until ctx ends. Where the kernel's
// messages were lost it begins anew.
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
	changed() // whatever was listed before may have changed unseen
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
			// The subscriptions close their channels once they see the end.
			go drain(links)
			go drain(addresses)
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
	}
}

// renamed keeps the names of interfaces and tells whether a message is about
// one that is new, gone or has another name: others are about flags and
// counters, and come often.
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
		// Emptied, so that its sender can end.
	}
}
