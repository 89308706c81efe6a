// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command firewall edits the map of bytecode/firewall.bpf.c with the blocked addresses, in a volume of
// csi.bpfman.io. It needs no capability, only permission to write to the map's file.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/internal/mapentries"
)

const usage = `Usage: firewall [--map FILE] COMMAND

  block ADDRESS    drop packets from this IPv4 address
  allow ADDRESS    stop dropping them
  list             show the blocked addresses, and how many packets of each were dropped
  wait             do nothing until the container ends; run the other commands with kubectl exec
`

func main() {
	path := flag.String("map", "/maps/blocked", "file of the map, in the volume")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *path, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "firewall:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, path string, arguments []string) error {
	switch {
	case len(arguments) == 2 && (arguments[0] == "block" || arguments[0] == "allow"):
		address, err := parse(arguments[1]) //nolint:gosec // there are two
		if err != nil {
			return err
		}
		return edit(path, address, arguments[0] == "block")
	case len(arguments) == 1 && arguments[0] == "list":
		return list(out, path)
	case len(arguments) == 1 && arguments[0] == "wait":
		<-ctx.Done()
		return nil
	default:
		return fmt.Errorf("%q is no command\n%s", arguments, usage)
	}
}

// parse parses an address. The keys of the map have four bytes, so only IPv4 is supported.
func parse(text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, err
	}
	if !address.Is4() {
		return netip.Addr{}, fmt.Errorf("%s isn't an IPv4 address", address)
	}
	return address, nil
}

func edit(path string, address netip.Addr, block bool) error {
	blocked, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return fmt.Errorf("open map %s: %w", path, err)
	}
	defer func() { _ = blocked.Close() }()
	key := address.As4()
	if !block {
		if err := blocked.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("allow %s: %w", address, err)
		}
		return nil
	}
	// If the address is already blocked, it keeps its count.
	if err := blocked.Update(key, uint64(0), ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("block %s: %w", address, err)
	}
	return nil
}

func list(out io.Writer, path string) error {
	blocked, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open map %s: %w", path, err)
	}
	defer func() { _ = blocked.Close() }()
	type entry struct {
		address netip.Addr
		dropped uint64
	}
	var all []entry
	for e, err := range mapentries.All(blocked) {
		if err != nil {
			return fmt.Errorf("read map %s: %w", path, err)
		}
		if len(e.Key) != 4 || len(e.Values[0]) != 8 {
			return fmt.Errorf("map %s isn't the firewall's: keys of %d bytes and values of %d", path, len(e.Key), len(e.Values[0]))
		}
		all = append(all, entry{netip.AddrFrom4([4]byte(e.Key)), binary.NativeEndian.Uint64(e.Values[0])})
	}
	slices.SortFunc(all, func(a, b entry) int { return a.address.Compare(b.address) })
	for _, e := range all {
		if _, err := fmt.Fprintf(out, "%s: %d packets dropped\n", e.address, e.dropped); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}
