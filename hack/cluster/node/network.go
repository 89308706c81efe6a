// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
)

// nodeInterface is the node's end of the cable to the host.
const nodeInterface = "eth0"

// connect lays the cable from the host to the node's network namespace, and
// sets up the host's end. The kernel removes it with the namespace.
func connect(s component.Settings, pid int) error {
	if s.Uplink != "" {
		return give(s.Uplink, pid)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = s.Interface
	veth := &netlink.Veth{LinkAttrs: attributes, PeerName: nodeInterface, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("making the interface %s: %w", s.Interface, err)
	}
	if err := configure(s.Interface, s.HostIP, s.HostIP6); err != nil {
		return err
	}
	link, err := netlink.LinkByName(s.Interface)
	if err != nil {
		return fmt.Errorf("finding the interface %s: %w", s.Interface, err)
	}
	// The host reaches pods and services too; both routes end with the interface.
	for _, network := range []netip.Prefix{s.Pods, s.Services} {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(network), Gw: s.IP.Addr().AsSlice()}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("adding the route to %s: %w", network, err)
		}
	}
	return nil
}

// give moves this machine's interface to the node.
func give(uplink string, pid int) error {
	link, err := netlink.LinkByName(uplink)
	if err != nil {
		return fmt.Errorf("finding the interface %s: %w", uplink, err)
	}
	// It must be down to be renamed.
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("setting the interface %s down: %w", uplink, err)
	}
	if err := netlink.LinkSetName(link, nodeInterface); err != nil {
		return fmt.Errorf("renaming the interface %s: %w", uplink, err)
	}
	if err := netlink.LinkSetNsPid(link, pid); err != nil {
		return fmt.Errorf("giving the interface %s to the node: %w", uplink, err)
	}
	return nil
}

// layNodeCable makes the control plane's end of the cable to its node: a tap, which the
// virtual machine's hypervisor opens. It runs inside the control plane's namespaces.
func layNodeCable(s component.Settings) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = component.NodeInterface
	tap := &netlink.Tuntap{LinkAttrs: attributes, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("making the interface %s: %w", component.NodeInterface, err)
	}
	if err := configure(component.NodeInterface, s.NodeCable(), netip.Prefix{}); err != nil {
		return err
	}
	route := &netlink.Route{Dst: ipNet(s.Pods), Gw: s.NodeIP.AsSlice()}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("adding the route to %s: %w", s.Pods, err)
	}
	return nil
}

// disconnect removes the cable where the kernel hasn't yet.
func disconnect(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding the interface %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the interface %s: %w", name, err)
	}
	return nil
}

// setUpNetwork configures the node's own end; it runs inside the node.
func setUpNetwork(s component.Settings) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("setting the loopback interface up: %w", err)
	}
	if err := configure(nodeInterface, s.IP, s.IP6); err != nil {
		return err
	}
	// The host forwards nothing; the default routes are what marks the
	// primary interface.
	for _, gateway := range []netip.Addr{s.HostIP.Addr(), s.HostIP6.Addr()} {
		if !gateway.IsValid() {
			continue
		}
		if err := netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}); err != nil && gateway.Is4() {
			return fmt.Errorf("adding the default route by %s: %w", gateway, err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("enabling forwarding: %w", err)
	}
	if s.Part == component.ControlPlane {
		return layNodeCable(s)
	}
	return nil
}

// configure gives the interface its addresses and sets it up. A host without
// IPv6 does without the second.
func configure(name string, ip4, ip6 netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding the interface %s: %w", name, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(ip4)}); err != nil {
		return fmt.Errorf("giving the interface %s its address: %w", name, err)
	}
	if ip6.IsValid() {
		_ = netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(ip6), Flags: unix.IFA_F_NODAD})
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting the interface %s up: %w", name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
