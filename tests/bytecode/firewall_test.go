// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	ebpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// TestFirewallWithoutLinkHeader sends a packet through an interface whose packets begin with the IP header, as those of
// tunnels and WireGuard.
func TestFirewallWithoutLinkHeader(t *testing.T) {
	prerequisite.NeedsRoot(t, "a network of its own needs CAP_SYS_ADMIN")
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		prerequisite.Missing(t, err.Error(), prerequisite.Tun)
	}
	runtime.LockOSThread() // never unlocked, so that the thread ends with its network namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if objects, _ := filepath.Glob(filepath.Join(objectDir, "*.o")); len(objects) == 0 {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
	firewall, err := ebpf.LoadCollection(filepath.Join(objectDir, "firewall.o"))
	if err != nil {
		t.Fatal(err)
	}
	defer firewall.Close()
	tunnel := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tunnel"}, Mode: netlink.TUNTAP_MODE_TUN, Flags: netlink.TUNTAP_NO_PI, Queues: 1}
	if err := netlink.LinkAdd(tunnel); err != nil {
		t.Fatalf("make a tunnel: %v", err)
	}
	defer tunnel.Fds[0].Close()
	if err := netlink.LinkSetUp(tunnel); err != nil {
		t.Fatal(err)
	}
	attached, err := ebpflink.AttachTCX(ebpflink.TCXOptions{Program: firewall.Programs["firewall"], Attach: ebpf.AttachTCXIngress, Interface: tunnel.Index})
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()

	blocked, source := firewall.Maps["blocked"], netip.MustParseAddr("192.0.2.7").As4()
	if err := blocked.Put(source, uint64(0)); err != nil {
		t.Fatal(err)
	}
	packet := append([]byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, source[:]...)
	if _, err := tunnel.Fds[0].Write(append(packet, 198, 51, 100, 1)); err != nil {
		t.Fatal(err)
	}
	var dropped uint64
	if err := blocked.Lookup(source, &dropped); err != nil || dropped != 1 {
		t.Errorf("%d packets of one were dropped, %v", dropped, err)
	}
}
