// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registry

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// dial connects to an address. It checks the address to which a name is resolved, so that
// a registry can't use a name of its own.
func (t *Transport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: headerDeadline}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, proxy := t.proxies.Load(strings.ToLower(address)); !proxy && canonical(host) != t.host {
		dialer.Control = func(_, resolved string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(resolved)
			if err != nil {
				return fmt.Errorf("address %s: %w", resolved, err)
			}
			return allowed(at.Addr())
		}
	}
	return dialer.DialContext(ctx, network, address)
}

// allowedName checks a host to which a proxy connects. A name that can't be resolved here
// isn't a name of this machine.
func (t *Transport) allowedName(ctx context.Context, host string) error {
	if canonical(host) == t.host {
		return nil
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	for _, a := range addresses {
		if err := allowed(a); err != nil {
			return err
		}
	}
	return nil
}

func canonical(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// metadata are the addresses of clouds' metadata services that aren't link-local: those of Amazon and Google with IPv6, and
// those of Alibaba, Microsoft, and Oracle.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

// translated are the prefixes of IPv4 addresses that a gateway translates (NAT64, RFC 6052 and RFC 8215), and embedded is
// the one of those that nothing does (RFC 4291).
var (
	translated = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48")}
	embedded   = netip.MustParsePrefix("::/96")
)

// allowed returns an error for an address of this machine, one that is only valid on its links, and one of a cloud's metadata
// service. This process runs in the host's network namespace, so such an address would lead to services that are only for
// the node.
func allowed(address netip.Addr) error {
	address = address.Unmap().WithZone("")
	inner := address
	if slices.ContainsFunc(translated, func(p netip.Prefix) bool { return p.Contains(address) }) {
		b := address.As16()
		inner = netip.AddrFrom4([4]byte(b[12:]))
	}
	special := inner.IsLoopback() || inner.IsUnspecified() || inner.IsMulticast() || inner.IsLinkLocalUnicast() ||
		inner.Is4() && inner.As4()[0] == 0 || embedded.Contains(inner) || !inner.IsValid()
	switch {
	case slices.Contains(metadata, inner):
		return &refusedError{problem.RegistryAddressLocal, fmt.Sprintf("leads to %s, which is an address of a cloud's metadata service", address)}
	case special || own(inner):
		return &refusedError{problem.RegistryAddressLocal, fmt.Sprintf("leads to %s, which is an address of this machine or its links", address)}
	}
	return nil
}

// own reports whether this machine has the address, or whether that isn't known.
func own(address netip.Addr) bool {
	interfaces, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(interfaces, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == address
	})
}
