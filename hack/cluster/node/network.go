// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
)

const (
	// nodeInterface is the node's end of its cable.
	nodeInterface = "eth0"
	// The cluster's network has a bridge. The host's cable ends in a port of it.
	bridge   = "bridge"
	hostPort = "host"
)

// MakeNetwork creates the network between the host and the nodes, unless it exists. It is
// a bridge in a separate network namespace, so that the host's packet filters, such as
// Docker's, don't affect packets between nodes.
func MakeNetwork(s component.Settings) error {
	there, err := networkIsThere(s)
	if err != nil || there {
		return err
	}
	if err := os.WriteFile(s.Network(), nil, 0o600); err != nil {
		return fmt.Errorf("create the file of the cluster's network: %w", err)
	}
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create the namespace of the cluster's network: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", s.Network(), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep the namespace of the cluster's network: %w", err)
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name = bridge
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
			return fmt.Errorf("create the bridge of the cluster's network: %w", err)
		}
		return setUp(bridge)
	})
	if err != nil {
		return err
	}
	return connectHost(s)
}

// RemoveNetwork removes the network, or what is left of it.
func RemoveNetwork(s component.Settings) error {
	// The other end can already be removed, or can have never existed.
	if err := removeLink(s.HostInterface); err != nil {
		return err
	}
	there, err := networkIsThere(s)
	if err != nil || !there {
		return err
	}
	if err := unix.Unmount(s.Network(), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("release the cluster's network: %w", err)
	}
	return nil
}

func networkIsThere(s component.Settings) (bool, error) {
	var stat unix.Statfs_t
	err := unix.Statfs(s.Network(), &stat)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the cluster's network: %w", err)
	}
	return stat.Type == unix.NSFS_MAGIC, nil
}

// onThread runs a function that changes the namespaces of its thread. The thread ends
// with the function.
func onThread(run func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends
		done <- run()
	}()
	return <-done
}

// inNetwork runs the function in the network namespace of the cluster's network.
func inNetwork(s component.Settings, run func() error) error {
	return onThread(func() error {
		network, err := netns.GetFromPath(s.Network())
		if err != nil {
			return fmt.Errorf("open the cluster's network: %w", err)
		}
		defer network.Close()
		if err := netns.Set(network); err != nil {
			return fmt.Errorf("enter the cluster's network: %w", err)
		}
		return run()
	})
}

// connectHost creates the cable from the host to the cluster's network.
func connectHost(s component.Settings) error {
	network, err := netns.GetFromPath(s.Network())
	if err != nil {
		return fmt.Errorf("open the cluster's network: %w", err)
	}
	defer network.Close()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = s.HostInterface
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: hostPort, PeerNamespace: netlink.NsFd(network)}); err != nil {
		return fmt.Errorf("create the interface %s: %w", s.HostInterface, err)
	}
	if err := inNetwork(s, func() error { return plugIn(hostPort) }); err != nil {
		return err
	}
	if err := configure(s.HostInterface, s.HostIP, s.HostIP6); err != nil {
		return err
	}
	// The host also reaches services. All routes disappear with the interface.
	if err := addRoute(s.Services, s.API); err != nil {
		return err
	}
	for _, way := range s.Ways() {
		if err := addRoute(way.Pods, way.Node); err != nil {
			return err
		}
	}
	return nil
}

// connect creates the cable from the cluster's network to the node's network namespace.
// The kernel removes it together with the namespace.
func connect(s component.Settings, pid int) error {
	if s.Uplink != "" {
		return give(s.Uplink, pid)
	}
	return inNetwork(s, func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = s.Port
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: nodeInterface, PeerNamespace: netlink.NsPid(pid)}); err != nil {
			return fmt.Errorf("create the port %s: %w", s.Port, err)
		}
		return plugIn(s.Port)
	})
}

// ConnectTap makes the node's port a tap interface, which the hypervisor of the node's
// virtual machine opens.
func ConnectTap(s component.Settings) error {
	return inNetwork(s, func() error {
		if err := removeLink(s.Port); err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name = s.Port
		if err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attributes, Mode: netlink.TUNTAP_MODE_TAP}); err != nil {
			return fmt.Errorf("create the tap %s: %w", s.Port, err)
		}
		return plugIn(s.Port)
	})
}

// disconnect removes the node's cable, if the kernel hasn't done so yet.
func disconnect(s component.Settings) error {
	there, err := networkIsThere(s)
	if err != nil || !there {
		return err
	}
	return inNetwork(s, func() error { return removeLink(s.Port) })
}

// plugIn makes the interface a port of the bridge.
func plugIn(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find the port %s: %w", name, err)
	}
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find the bridge of the cluster's network: %w", err)
	}
	if err := netlink.LinkSetMaster(link, master); err != nil {
		return fmt.Errorf("make %s a port: %w", name, err)
	}
	return setUp(name)
}

// give moves an interface of this machine to the node.
func give(uplink string, pid int) error {
	link, err := netlink.LinkByName(uplink)
	if err != nil {
		return fmt.Errorf("find the interface %s: %w", uplink, err)
	}
	// An interface must be down to be renamed.
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("set the interface %s down: %w", uplink, err)
	}
	if err := netlink.LinkSetName(link, nodeInterface); err != nil {
		return fmt.Errorf("rename the interface %s: %w", uplink, err)
	}
	if err := netlink.LinkSetNsPid(link, pid); err != nil {
		return fmt.Errorf("give the interface %s to the node: %w", uplink, err)
	}
	return nil
}

// removeLink removes the interface, if it exists.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the interface %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the interface %s: %w", name, err)
	}
	return nil
}

// setUpNetwork configures the node's end of the cable. It runs inside the node.
func setUpNetwork(s component.Settings) error {
	if err := setUp("lo"); err != nil {
		return err
	}
	if err := configure(nodeInterface, s.IP, s.IP6); err != nil {
		return err
	}
	// The host doesn't forward packets. The default routes only mark the primary
	// interface.
	for _, gateway := range []netip.Addr{s.HostIP.Addr(), s.HostIP6.Addr()} {
		if err := netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}); err != nil && gateway.Is4() {
			return fmt.Errorf("add the default route by %s: %w", gateway, err)
		}
	}
	for _, way := range s.Ways() {
		if way.Pods == s.Pods {
			continue
		}
		if err := addRoute(way.Pods, way.Node); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("enable forwarding: %w", err)
	}
	return nil
}

// configure sets the addresses of the interface, and sets it up. On a host without IPv6,
// it skips the IPv6 address.
func configure(name string, ip4, ip6 netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find the interface %s: %w", name, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(ip4)}); err != nil {
		return fmt.Errorf("give the interface %s its address: %w", name, err)
	}
	_ = netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(ip6), Flags: unix.IFA_F_NODAD})
	return setUp(name)
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find the interface %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set the interface %s up: %w", name, err)
	}
	return nil
}

func addRoute(to netip.Prefix, by netip.Addr) error {
	if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: by.AsSlice()}); err != nil {
		return fmt.Errorf("add the route to %s: %w", to, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
