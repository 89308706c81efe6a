// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Peer returns the name of the other end of an interface that AddInterface creates.
func Peer(name string) string { return name + "p" }

// AddInterface creates a pair of network interfaces. Packets that are sent on one arrive
// at the other. Every node with pods supports such pairs.
func AddInterface(name string) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: Peer(name)}); err != nil {
		return fmt.Errorf("make interface %s: %w", name, err)
	}
	for _, end := range []string{name, Peer(name)} {
		link, err := netlink.LinkByName(end)
		if err != nil {
			return fmt.Errorf("find interface %s: %w", end, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set up interface %s: %w", end, err)
		}
	}
	return nil
}

// MoveInterface moves an interface of the host to the network namespace of the only
// process that runs the executable.
func MoveInterface(name, executable string) error {
	pids, err := Processes(executable)
	if err != nil {
		return err
	}
	if len(pids) != 1 {
		return fmt.Errorf("%d processes run %s, not one: %v", len(pids), executable, pids)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if err := netlink.LinkSetNsPid(link, pids[0]); err != nil {
		return fmt.Errorf("move interface %s to the network of process %d: %w", name, pids[0], err)
	}
	return nil
}

// RemoveInterface removes such a pair, if it exists.
func RemoveInterface(name string) error {
	link, err := netlink.LinkByName(name)
	if absent := (netlink.LinkNotFoundError{}); errors.As(err, &absent) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove interface %s: %w", name, err)
	}
	return nil
}

// Knock sends a few packets to an address. They need no answer.
func Knock(ctx context.Context, address string) (err error) {
	const discard, packets = "9", 5
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(address, discard))
	if err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for range packets {
		// The address can respond that nothing listens there.
		if _, err := conn.Write([]byte("knock")); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("send to %s: %w", address, err)
		}
	}
	return nil
}

// SendFrame sends a frame on an interface.
func SendFrame(name string) (err error) {
	s, err := newSender(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return s.send()
}
