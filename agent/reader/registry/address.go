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

// allowed returns an error for an address of this machine, or one that is only valid on
// its links, such as that of a cloud's metadata service. This process runs in the host's
// network namespace, so such an address would lead to services that are only for the node.
func allowed(address netip.Addr) error {
	address = address.Unmap().WithZone("")
	special := address.IsLoopback() || address.IsUnspecified() || address.IsMulticast() || address.IsLinkLocalUnicast() ||
		address.Is4() && address.As4()[0] == 0 || !address.IsValid()
	if special || own(address) {
		return &refusedError{fmt.Sprintf("leads to %s, which is an address of this machine or its links", address)}
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
