// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package process finds in the host's /proc which processes have programs, maps and
// links of eBPF open, and what container or systemd unit each belongs to.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/kernel"
)

// Process is a process that has eBPF open.
type Process struct {
	Identity
	// Name is what the process calls itself: any bytes.
	Name string
	// Place is where it belongs.
	Place
	// Open is what it has open.
	Open []Descriptor
	// descriptors is how many it has in all; 0 where the kernel, before Linux 6.2,
	// doesn't say.
	descriptors int64
}

// Identity tells processes apart: ids are used again.
type Identity struct {
	PID int
	// Start is in clock ticks since the boot.
	Start uint64
}

// Descriptor is an open descriptor with eBPF behind it.
type Descriptor struct {
	FD int
	// Behind is what is behind it, as the kernel describes it; nothing for a perf
	// event, of which the kernel doesn't say it there.
	Behind    kernel.Described
	PerfEvent bool
}

// Namespace is a namespace and a process in it.
type Namespace struct {
	// Inode is the namespace's inode number.
	Inode uint64
	PID   int
	// Place is the process's.
	Place
}

// Table is what was found in /proc.
type Table struct {
	// Processes have eBPF open; by id.
	Processes []Process
	// NetNS and MntNS are those that processes are in, each once, the host's first.
	NetNS, MntNS []Namespace
	// Unreadable is the number of processes whose descriptors may not be seen.
	Unreadable int
}

// workers share the processes of a scan: it is system calls that take the time.
const workers = 2

// Scan reads all processes of the host's /proc. It doesn't fail on those that end
// meanwhile.
func Scan(proc string) (Table, error) {
	pids, err := numbers(proc)
	if err != nil {
		return Table{}, fmt.Errorf("list processes: %w", err)
	}
	slices.Sort(pids)
	found := make([]scanned, len(pids))
	var scans sync.WaitGroup
	for first := range workers {
		scans.Go(func() {
			for i := first; i < len(pids); i += workers {
				found[i] = scan(directory(proc, pids[i]), pids[i])
			}
		})
	}
	scans.Wait()
	var table Table
	seen := map[uint64]bool{0: true}
	for i, f := range found {
		table.NetNS = appendNamespace(table.NetNS, seen, f.netNS, proc, pids[i])
		table.MntNS = appendNamespace(table.MntNS, seen, f.mntNS, proc, pids[i])
		if f.unreadable {
			table.Unreadable++
		}
		if f.process != nil {
			table.Processes = append(table.Processes, *f.process)
		}
	}
	return table, nil
}

// directory is that of a process in /proc.
func directory(proc string, pid int) string { return filepath.Join(proc, strconv.Itoa(pid)) }

// scanned is what a scan finds of a process.
type scanned struct {
	// netNS and mntNS are inode numbers; 0 where the process has ended, or they aren't
	// to be seen, which its descriptors tell.
	netNS, mntNS uint64
	// process is nil for one that has no eBPF open.
	process    *Process
	unreadable bool
}

func scan(dir string, pid int) scanned {
	found := scanned{netNS: namespaceOf(dir, "net"), mntNS: namespaceOf(dir, "mnt")}
	open, many, err := descriptors(dir)
	found.unreadable = errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
	if len(open) == 0 || isOwn(dir, pid) {
		return found
	}
	start, err := startTime(dir)
	if err != nil {
		return found // it has ended
	}
	found.process = &Process{Identity: Identity{pid, start}, Name: name(dir), Place: placeOf(dir), Open: open, descriptors: many}
	return found
}

// isOwn tells of the inspector's own processes, which have programs and maps open while
// they read them: those of its container, by its PID namespace, or itself where that is
// the host's.
func isOwn(dir string, pid int) bool {
	own, err := readLink("/proc/self/ns/pid")
	if err != nil {
		return false
	}
	other, err := readLink(filepath.Join(dir, "ns/pid"))
	if err != nil || other != own {
		return false
	}
	// A process that sees itself in the host's /proc by its own id is of the host's namespace.
	if self, err := readLink(filepath.Join(filepath.Dir(dir), "self")); err == nil && self == strconv.Itoa(os.Getpid()) {
		return pid == os.Getpid()
	}
	return true
}

// Unchanged tells that the process still has open what it had, and not that it
// has nothing else. As long as it has as many descriptors they aren't looked at one by
// one: it may have hundreds.
func Unchanged(proc string, p Process) bool {
	dir := directory(proc, p.PID)
	start, err := startTime(dir)
	if err != nil || start != p.Start {
		return false
	}
	if p.descriptors != 0 && p.descriptors == count(dir) {
		return true
	}
	for _, d := range p.Open {
		if d.PerfEvent {
			if kind, err := readLink(filepath.Join(dir, "fd", strconv.Itoa(d.FD))); err != nil || kind != perfEvent {
				return false
			}
			continue
		}
		behind, err := kernel.Describe(filepath.Join(dir, "fdinfo", strconv.Itoa(d.FD)))
		if err != nil || behind != d.Behind {
			return false
		}
	}
	return true
}

// namespaceOf is the inode number of a process's namespace.
func namespaceOf(dir, kind string) uint64 {
	target, _ := readLink(filepath.Join(dir, "ns", kind))
	inode, _ := NamespaceInode(target, kind)
	return inode
}

// appendNamespace appends the process's namespace unless it has been seen.
func appendNamespace(namespaces []Namespace, seen map[uint64]bool, inode uint64, proc string, pid int) []Namespace {
	if seen[inode] {
		return namespaces
	}
	seen[inode] = true
	namespace := Namespace{Inode: inode, PID: pid}
	if len(namespaces) > 0 {
		namespace.Place = placeOf(directory(proc, pid))
	}
	return append(namespaces, namespace)
}

// NamespaceInode reads the name of a namespace, such as net:[4026531840].
func NamespaceInode(name, kind string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, kind+":[")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(digits, "]"), 10, 64)
	return inode, err == nil
}

// What descriptors of eBPF are links to.
const (
	anonymous = "anon_inode:"
	perfEvent = anonymous + "[perf_event]"
)

func isEBPF(target string) bool {
	kind, ok := strings.CutPrefix(target, anonymous)
	return ok && (strings.HasPrefix(kind, "bpf") || kind == "[perf_event]")
}

// descriptors reads what of eBPF a process has open, and how many descriptors it has.
func descriptors(dir string) (open []Descriptor, many int64, err error) {
	fds, err := openDirectory(filepath.Join(dir, "fd"))
	if err != nil {
		return nil, 0, err
	}
	defer unix.Close(fds)
	var stat unix.Stat_t
	if err := unix.Fstat(fds, &stat); err != nil {
		return nil, 0, err //nolint:wrapcheck // the caller tells errors apart
	}
	all, err := numbersIn(fds)
	if err != nil {
		return nil, 0, err
	}
	for _, fd := range all {
		target, err := readLinkAt(fds, strconv.Itoa(fd))
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			return nil, 0, err
		}
		if err != nil || !isEBPF(target) {
			continue
		}
		if target == perfEvent {
			open = append(open, Descriptor{FD: fd, PerfEvent: true})
			continue
		}
		behind, err := kernel.Describe(filepath.Join(dir, "fdinfo", strconv.Itoa(fd)))
		if err == nil && behind != (kernel.Described{}) {
			open = append(open, Descriptor{FD: fd, Behind: behind})
		}
	}
	slices.SortFunc(open, func(a, b Descriptor) int { return a.FD - b.FD })
	return open, stat.Size, nil
}

// count is how many descriptors a process has, of which the kernel makes the size of
// the directory.
func count(dir string) int64 {
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "fd"), &stat); err != nil {
		return 0
	}
	return stat.Size
}

// name is empty where the process has ended. The newline at the end is the kernel's.
func name(dir string) string {
	text, _ := readFile(filepath.Join(dir, "comm"))
	return string(bytes.TrimSuffix(text, []byte("\n")))
}

func startTime(dir string) (uint64, error) {
	text, err := readFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, err
	}
	return parseStart(text)
}

// parseStart reads the start time of /proc/<pid>/stat: the 20th field behind the
// name, which is in parentheses and may have any characters.
func parseStart(stat []byte) (uint64, error) {
	const field = 20
	_, fields, ok := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	words := bytes.Fields(fields)
	if !ok || len(words) < field {
		return 0, errors.New("not the stat of a process")
	}
	start, err := strconv.ParseUint(string(words[field-1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("start time of a process: %w", err)
	}
	return start, nil
}
