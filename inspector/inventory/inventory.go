// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package inventory gathers the facts of a node's eBPF: it compares cheaply, and reads
// only what is new or has changed.
package inventory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/bpffs"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/process"
	"github.com/bpfman/bpfman-operator/inspector/report"
)

// settling is how long it takes until programs that are loaded are attached and
// held as they will be. The kernel's ids don't tell of that.
const settling = 15 * time.Second

// Inventory is a node's. It is for one goroutine.
type Inventory struct {
	proc string
	// host is a process that sees what the host sees: the first, if it may be asked.
	host int
	// samePIDs tells that the kernel takes the host's process ids from the inspector.
	samePIDs bool

	facts      report.Facts
	ids        kernel.IDs
	programs   map[uint32]kernel.Program
	maps       map[uint32]kernel.Map
	links      kernel.Links
	pins       *bpffs.Pins
	changed    time.Time
	unresolved map[string]error
	// queried are the cgroups' programs for which all cgroups have been asked.
	queried map[uint32]bool
}

// New returns the inventory of a node that is seen in its /proc, of which nothing has
// been read.
func New(proc string) (*Inventory, error) {
	inventory := &Inventory{
		proc: proc, host: 1, programs: map[uint32]kernel.Program{}, maps: map[uint32]kernel.Map{},
		pins: bpffs.NewPins(proc), unresolved: map[string]error{}, queried: map[uint32]bool{},
	}
	bootID, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return nil, fmt.Errorf("read the id of the boot: %w", err)
	}
	inventory.facts.BootID = strings.TrimSpace(string(bootID))
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, fmt.Errorf("read the kernel's version: %w", err)
	}
	inventory.facts.KernelVersion = unix.ByteSliceToString(name.Release[:])
	if inventory.facts.Boot, err = bootTime(); err != nil {
		return nil, err
	}
	return inventory, nil
}

// bootTime is to the nearest second, as the clock is set again and again.
func bootTime() (time.Time, error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, fmt.Errorf("read the time since the boot: %w", err)
	}
	return time.Now().Add(-time.Duration(up.Nano())).Round(time.Second), nil
}

// Look says what to look at besides the kernel's ids.
type Look struct {
	// Network is where programs may be attached without that ids change.
	Network bool
	// All reads everything again.
	All bool
}

// Update compares with the kernel, and reads what has changed. It tells whether
// there was anything. The error is that ids can't be read, without which nothing is
// known; other failures are those of Failures.
func (i *Inventory) Update(look Look, now time.Time) (bool, error) {
	ids, err := kernel.List()
	if err != nil {
		return false, err
	}
	come := !ids.Equal(i.ids)
	if come {
		i.changed = now
	}
	settling := now.Sub(i.changed) < settling
	moved := look.All || come || i.holdersChanged()
	if !moved && !look.Network && !settling {
		return false, nil
	}
	if come || look.All || settling {
		i.readObjects(ids)
	}
	if moved {
		i.readHolders()
	}
	i.facts.Tracepoints = i.tracepointGroups()
	i.readNetwork()
	i.readCgroups(look.All, settling)
	i.readPerfEvents()
	i.readContents()
	i.ids = ids
	return true, nil
}

// Failures are what couldn't be read at the last attempt, in no order.
func (i *Inventory) Failures() map[string]error { return i.unresolved }

// tried notes how reading something went.
func (i *Inventory) tried(what string, err error) {
	if err != nil {
		i.unresolved[what] = err
	} else {
		delete(i.unresolved, what)
	}
}

// Facts are those of the last update. Names, owners and last holders are the caller's
// to add.
func (i *Inventory) Facts() *report.Facts { return &i.facts }

func (i *Inventory) holdersChanged() bool {
	return i.pins.Changed() || slices.ContainsFunc(i.facts.Processes, func(p process.Process) bool { return !process.Unchanged(i.proc, p) })
}

// readObjects reads programs and maps that are new, and all links: their programs
// can be replaced.
func (i *Inventory) readObjects(ids kernel.IDs) {
	var failures []error
	i.facts.Programs = read(ids.Programs, i.programs, kernel.ReadProgram, &failures)
	i.facts.Maps = read(ids.Maps, i.maps, kernel.ReadMap, &failures)
	i.facts.Links = read(ids.Links, map[uint32]kernel.Link{}, i.links.Read, &failures)
	i.tried("programs, maps and links", errors.Join(failures...))
}

// read returns objects by id: those known, and others as they are read. What has gone
// meanwhile is left out, and forgotten.
func read[E any](ids []uint32, known map[uint32]E, readOne func(uint32) (E, error), failures *[]error) []E {
	all := make([]E, 0, len(ids))
	for _, id := range ids {
		object, ok := known[id]
		if !ok {
			var err error
			if object, err = readOne(id); err != nil {
				if !errors.Is(err, os.ErrNotExist) {
					*failures = append(*failures, err)
				}
				continue
			}
			known[id] = object
		}
		all = append(all, object)
	}
	if len(known) > len(ids) {
		for id := range known {
			if _, there := slices.BinarySearch(ids, id); !there {
				delete(known, id)
			}
		}
	}
	return all
}

// readHolders reads processes and pins.
func (i *Inventory) readHolders() {
	table, err := process.Scan(i.proc)
	if err == nil && table.Unreadable > 0 {
		err = fmt.Errorf("the file descriptors of %d processes aren't visible", table.Unreadable)
	}
	i.tried("processes", err)
	i.facts.Processes = table.Processes
	i.facts.NetNS = table.NetNS
	if len(table.MntNS) > 0 {
		i.host = table.MntNS[0].PID
	}
	own, ownErr := os.Readlink("/proc/self/ns/pid")
	hosts, hostsErr := os.Readlink(filepath.Join(i.proc, strconv.Itoa(i.host), "ns/pid"))
	i.samePIDs = ownErr == nil && hostsErr == nil && own == hosts
	i.tried("pins", i.pins.Scan(table.MntNS))
	i.facts.Pins = i.pins.All
}

// readPerfEvents asks for the programs of perf events that have no link. The kernel
// answers only whose PID namespace is the host's.
func (i *Inventory) readPerfEvents() {
	i.facts.PerfEvents = nil
	if !i.samePIDs {
		return
	}
	for _, p := range i.facts.Processes {
		for _, d := range p.Open {
			if !d.PerfEvent {
				continue
			}
			program, attachment, err := kernel.PerfProgram(uint32(p.PID), uint32(d.FD)) //nolint:gosec // positive
			if err == nil && program != 0 {
				i.facts.PerfEvents = append(i.facts.PerfEvents, report.PerfEvent{Program: program, Attachment: attachment})
			}
		}
	}
	slices.SortFunc(i.facts.PerfEvents, func(a, b report.PerfEvent) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	i.facts.PerfEvents = slices.Compact(i.facts.PerfEvents)
}

// readContents looks for programs in maps, if there are some that nothing else keeps.
func (i *Inventory) readContents() {
	i.facts.Contained = nil
	kept := i.kept()
	if !slices.ContainsFunc(i.facts.Programs, func(p kernel.Program) bool { return !kept[p.ID] }) {
		return
	}
	var failures []error
	for _, m := range i.facts.Maps {
		if !kernel.HasPrograms(m.Type) {
			continue
		}
		programs, err := kernel.ProgramsIn(m)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			failures = append(failures, err)
		}
		for _, program := range programs {
			i.facts.Contained = append(i.facts.Contained, report.Contained{Map: m.ID, Program: program})
		}
	}
	i.tried("maps of programs", errors.Join(failures...))
}

// kept are the programs that are held, or attached.
func (i *Inventory) kept() map[uint32]bool {
	kept := map[uint32]bool{}
	for _, l := range i.facts.Links {
		kept[l.Program] = true
	}
	for _, hook := range i.facts.Hooks {
		kept[hook.Program] = true
	}
	for _, hook := range i.facts.CgroupHooks {
		kept[hook.Program] = true
	}
	for _, pin := range i.facts.Pins {
		kept[pin.Behind.Program] = true
	}
	for _, p := range i.facts.Processes {
		for _, d := range p.Open {
			kept[d.Behind.Program] = true
		}
	}
	return kept
}

// hostFile is a path of the host's.
func (i *Inventory) hostFile(path string) string {
	return filepath.Join(i.proc, strconv.Itoa(i.host), "root", path)
}

// tracepointGroups finds the groups of links' tracepoints that aren't known: the
// kernel tells their names alone. Where tracefs isn't mounted there are none.
func (i *Inventory) tracepointGroups() map[string]string {
	groups := map[string]string{}
	var unknown []string
	for _, l := range i.facts.Links {
		if l.Type != "tracepoint" {
			continue
		}
		if group, ok := i.facts.Tracepoints[l.Target]; ok {
			groups[l.Target] = group
		} else if l.Target == filepath.Base(l.Target) {
			unknown = append(unknown, l.Target)
		}
	}
	if len(unknown) == 0 {
		return groups
	}
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		events := i.hostFile(root + "/events")
		entries, err := os.ReadDir(events)
		if err != nil {
			continue
		}
		for _, name := range unknown {
			for _, entry := range entries {
				if _, err := os.Lstat(filepath.Join(events, entry.Name(), name)); err == nil && entry.IsDir() {
					groups[name] = entry.Name()
					break
				}
			}
		}
		return groups
	}
	return groups
}
