// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command counters prints what eBPF programs have counted, from the maps in a volume of
// csi.bpfman.io. When it starts, it prints its user and capabilities, to show that it
// needs no privileges.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bpfman/bpfman-operator/examples/counters"
)

func main() {
	dir := flag.String("maps", "/run/maps", "Directory with the pinned maps: the mount path of the volume.")
	only := flag.String("only", "", "Names of the maps to read, separated by commas. By default, all in the directory.")
	interval := flag.Duration("interval", 5*time.Second, "Time between two readings.")
	ring := flag.String("events", "", "Name of the ring buffer of the program kill_events, instead of counters. Its events are printed, and served at --listen.")
	address := flag.String("listen", ":9436", "Address at which clients get /events, for --events.")
	once := flag.Bool("once", false, "Read once and exit, with an error if a map can't be read.")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := reading(*dir)
	switch {
	case err != nil:
	case *ring != "":
		err = forward(ctx, filepath.Join(*dir, *ring), *address)
	default:
		err = run(ctx, *dir, *only, *interval, *once)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "counters:", err)
		os.Exit(1)
	}
}

// reading prints what this process is, and which maps it reads.
func reading(dir string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read own status: %w", err)
	}
	fmt.Printf("reading %s as uid %d, gid %d, %s\n", dir, os.Getuid(), os.Getgid(), effectiveCapabilities(string(status)))
	return nil
}

func run(ctx context.Context, dir, only string, interval time.Duration, once bool) error {
	if interval <= 0 {
		return fmt.Errorf("--interval is %s: must be more than 0", interval)
	}
	open := pins{}
	if once {
		return open.report(dir, only)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		// A map that can't be read now can appear later.
		if err := open.report(dir, only); err != nil {
			fmt.Fprintln(os.Stderr, "counters:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// pins are the maps that were read, by name. They stay open, and follow the program after
// a reload.
type pins map[string]*counters.Pin

// report prints the count of each map, and returns the errors of the others.
func (p pins) report(dir, only string) error {
	names, err := selected(dir, only)
	if err != nil {
		return err
	}
	// An open map stays in the kernel.
	for name, pin := range p {
		if !slices.Contains(names, name) {
			_ = pin.Close() // the map was only read, so no data can be lost
			delete(p, name)
		}
	}
	var failed []error
	for _, name := range names {
		if p[name] == nil {
			p[name] = &counters.Pin{Path: filepath.Join(dir, name)}
		}
		count, err := counters.Read(p[name])
		if err != nil {
			failed = append(failed, err)
			continue
		}
		fmt.Println(count)
	}
	return errors.Join(failed...)
}

func selected(dir, only string) ([]string, error) {
	if only != "" {
		return strings.Split(only, ","), nil
	}
	names, err := counters.Names(dir)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no map in %s", dir)
	}
	return names, err
}

// effectiveCapabilities returns a line of /proc/self/status, as "CapEff 0000000000000000".
func effectiveCapabilities(status string) string {
	for line := range strings.Lines(status) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return "CapEff " + strings.TrimSpace(set)
		}
	}
	return "CapEff unknown"
}
