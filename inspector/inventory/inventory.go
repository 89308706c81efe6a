// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package inventory gathers facts about the eBPF on a node. It compares the kernel's
// state with few system calls, and reads only what is new or has changed.
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

// settling is how long it takes until newly loaded programs are attached and held in
// their final state. The kernel's ids don't show that.
const settling = 15 * time.Second

// Inventory is the inventory of a node. It isn't safe for concurrent use.
type Inventory struct {
	proc string
	// host is a process that has the host's view: process 1 if it can be read.
	host int
	// samePIDs means that the inspector is in the host's PID namespace, so that the
	// kernel accepts the host's process ids from it.
	samePIDs bool

	facts      report.Facts
	ids        kernel.IDs
	programs   map[uint32]kernel.Program
	maps       map[uint32]kernel.Map
	links      kernel.Links
	pins       *bpffs.Pins
	changed    time.Time
	unresolved map[string]error
	// queried are the programs for cgroups that were looked for in all cgroups.
	queried map[uint32]bool
}

// New returns an empty inventory of the node with the given /proc.
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

// clockStep is how far the clock has to step for the time of the boot to change. Times of
// programs are computed from it, so small adjustments would change all of them.
const clockStep = 5 * time.Second

// followClock updates the time of the boot after the clock was set. Many nodes boot with a
// wrong one.
func (i *Inventory) followClock() {
	boot, err := bootTime()
	if err == nil && boot.Sub(i.facts.Boot).Abs() >= clockStep {
		i.facts.Boot = boot
	}
	i.tried("time", err)
}

// bootTime is rounded to seconds, because the clock is adjusted repeatedly.
func bootTime() (time.Time, error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, fmt.Errorf("read the time since the boot: %w", err)
	}
	return time.Now().Add(-time.Duration(up.Nano())).Round(time.Second), nil
}

// Scope says what to read in addition to the kernel's ids.
type Scope struct {
	// Network reads hooks of interfaces, where programs can be attached without a change
	// of ids.
	Network bool
	// All reads everything again.
	All bool
}

// Update compares the inventory with the kernel, and reads what has changed. It reports
// whether anything changed. It returns an error only if it can't read ids. Failures
// returns the other errors.
func (i *Inventory) Update(scope Scope, now time.Time) (bool, error) {
	ids, err := kernel.List()
	if err != nil {
		return false, err
	}
	come := !ids.Equal(i.ids)
	if come {
		i.changed = now
	}
	settling := now.Sub(i.changed) < settling
	moved := scope.All || come || i.holdersChanged()
	if !moved && !scope.Network && !settling {
		return false, nil
	}
	if come || scope.All || settling {
		i.followClock()
		i.readObjects(ids)
	}
	if moved {
		i.readHolders()
	}
	i.facts.Tracepoints = i.tracepointGroups()
	i.readNetwork()
	i.readCgroups(scope.All, settling)
	i.readPerfEvents()
	i.readContents()
	i.ids = ids
	return true, nil
}

// Failures returns what couldn't be read in the last attempt.
func (i *Inventory) Failures() map[string]error { return i.unresolved }

// tried records the result of reading something.
func (i *Inventory) tried(what string, err error) {
	if err != nil {
		i.unresolved[what] = err
	} else {
		delete(i.unresolved, what)
	}
}

// Facts returns the facts of the last update. The caller adds names, owners, and last
// holders.
func (i *Inventory) Facts() *report.Facts { return &i.facts }

func (i *Inventory) holdersChanged() bool {
	return i.pins.Changed() || slices.ContainsFunc(i.facts.Processes, func(p process.Process) bool { return !process.Unchanged(i.proc, p) })
}

// readObjects reads new programs and maps, and all links, because a link's program can
// be replaced.
func (i *Inventory) readObjects(ids kernel.IDs) {
	var failures []error
	i.facts.Programs = read(ids.Programs, i.programs, kernel.ReadProgram, &failures)
	i.facts.Maps = read(ids.Maps, i.maps, kernel.ReadMap, &failures)
	i.facts.Links = read(ids.Links, map[uint32]kernel.Link{}, i.links.Read, &failures)
	i.tried("programs, maps and links", errors.Join(failures...))
}

// read returns the objects with the given ids. It reads those that aren't known. It
// leaves out those that disappear in the meantime, and removes them from known.
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

// readHolders reads processes and pins. If it can't list the processes, those that are known
// stay.
func (i *Inventory) readHolders() {
	table, err := process.Scan(i.proc)
	if err != nil {
		i.tried("processes", err)
		return
	}
	var failures []error
	if table.Unreadable > 0 {
		failures = append(failures, fmt.Errorf("the file descriptors of %d processes aren't visible", table.Unreadable))
	}
	if table.Crowded > 0 {
		failures = append(failures, fmt.Errorf("not all file descriptors of %d processes are read, because their containers have too many", table.Crowded))
	}
	i.tried("processes", errors.Join(failures...))
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

// readPerfEvents reads the programs of perf events that have no link. The kernel only
// answers in the host's PID namespace.
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
			program, attachment, err := kernel.PerfProgram(uint32(p.PID), uint32(d.FD)) //nolint:gosec // it isn't negative
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

// readContents looks for programs in maps, if there are programs that nothing else
// keeps.
func (i *Inventory) readContents() {
	i.facts.Contained = nil
	kept := i.kept()
	if !slices.ContainsFunc(i.facts.Programs, func(p kernel.Program) bool { return !kept[p.ID] }) {
		i.tried("maps of programs", nil)
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

// kept returns the programs that are held or attached.
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

// hostFile returns a path to a file of the host.
func (i *Inventory) hostFile(path string) string {
	return filepath.Join(i.proc, strconv.Itoa(i.host), "root", path)
}

// tracepointGroups finds the unknown groups of links' tracepoints, because the kernel
// returns only the names. Without a mounted tracefs, it finds none.
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
