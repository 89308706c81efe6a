// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package process finds the processes that have eBPF programs, maps, or links open, in the
// host's /proc, and the container or systemd unit that each belongs to.
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

// Process is a process that has eBPF objects open.
type Process struct {
	Identity
	// Name is the name that the process has set. It can contain any bytes.
	Name string
	// Place is what the process belongs to.
	Place
	// Open are its open eBPF objects, each once. It has perf events only if the inspector is in the host's PID namespace,
	// because the kernel says nothing about them elsewhere.
	Open []Descriptor
	// descriptors is the number of all its file descriptors. It is 0 if the kernel doesn't
	// report it (before Linux 6.2).
	descriptors int64
}

// Identity identifies a process. The id alone isn't enough, because the kernel reuses ids.
type Identity struct {
	PID int
	// Start is the start time, in clock ticks since the boot.
	Start uint64
}

// Descriptor is an open file descriptor of an eBPF object.
type Descriptor struct {
	FD int
	// Behind is the kernel's description of the object. It is empty for a perf event, for
	// which the kernel has none.
	Behind    kernel.Described
	PerfEvent bool
}

// Namespace is a namespace, with a process in it.
type Namespace struct {
	// Inode is the namespace's inode number.
	Inode uint64
	PID   int
	// Place is what the process belongs to.
	Place
}

// Table is the result of a scan of /proc.
type Table struct {
	// Processes are the processes that have eBPF objects open, sorted by id.
	Processes []Process
	// NetNS and MntNS are the network and mount namespaces of processes, without duplicates,
	// the host's first.
	NetNS, MntNS []Namespace
	// Unreadable is the number of processes whose file descriptors can't be read, and Crowded of those that have too many to read
	// all.
	Unreadable, Crowded int
}

// workers is the number of goroutines of a scan, which mostly waits for system calls.
const workers = 2

// Scan reads all processes in the host's /proc. It ignores processes that end in the
// meantime.
func Scan(proc string) (Table, error) {
	pids, err := numbers(proc)
	if err != nil {
		return Table{}, fmt.Errorf("list processes: %w", err)
	}
	slices.Sort(pids)
	found, perfEvents, allowed := make([]scanned, len(pids)), hasOwnPIDs(proc), newAllowance()
	var scans sync.WaitGroup
	for first := range workers {
		scans.Go(func() {
			for i := first; i < len(pids); i += workers {
				found[i] = scan(directory(proc, pids[i]), pids[i], perfEvents, allowed)
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
		if f.crowded {
			table.Crowded++
		}
		if f.process != nil {
			table.Processes = append(table.Processes, *f.process)
		}
	}
	return table, nil
}

// directory returns the directory of a process in /proc.
func directory(proc string, pid int) string { return filepath.Join(proc, strconv.Itoa(pid)) }

// scanned is what a scan found about a process.
type scanned struct {
	// netNS and mntNS are inode numbers. They are 0 if the process has ended, or if they
	// can't be read. Reading the descriptors then returns the error.
	netNS, mntNS uint64
	// process is nil if the process has no eBPF objects open.
	process             *Process
	unreadable, crowded bool
}

func scan(dir string, pid int, perfEvents bool, allowed *allowance) scanned {
	found := scanned{netNS: namespaceOf(dir, "net"), mntNS: namespaceOf(dir, "mnt")}
	open, many, err := descriptors(dir, perfEvents, allowed)
	found.crowded = errors.Is(err, errCrowded)
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

// isOwn reports whether a process is the inspector's, which has programs and maps open while
// it reads them. It identifies all processes of the inspector's container by their PID
// namespace. In the host's PID namespace, it only identifies the process itself.
func isOwn(dir string, pid int) bool {
	own, err := readLink("/proc/self/ns/pid")
	if err != nil {
		return false
	}
	other, err := readLink(filepath.Join(dir, "ns/pid"))
	if err != nil || other != own {
		return false
	}
	return !hasOwnPIDs(filepath.Dir(dir)) || pid == os.Getpid()
}

// hasOwnPIDs reports whether the inspector is in the PID namespace of a /proc: it has the same id there.
func hasOwnPIDs(proc string) bool {
	self, err := readLink(filepath.Join(proc, "self"))
	return err == nil && self == strconv.Itoa(os.Getpid())
}

// Unchanged reports whether the process still has the same eBPF objects open. It doesn't
// detect additional objects. While the number of descriptors stays the same, it doesn't check
// each of them, because there can be hundreds.
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

// namespaceOf returns the inode number of a process's namespace.
func namespaceOf(dir, kind string) uint64 {
	target, _ := readLink(filepath.Join(dir, "ns", kind))
	inode, _ := NamespaceInode(target, kind)
	return inode
}

// appendNamespace appends the namespace of a process, unless it is in seen.
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

// NamespaceInode parses the name of a namespace, such as net:[4026531840].
func NamespaceInode(name, kind string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, kind+":[")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(digits, "]"), 10, 64)
	return inode, err == nil
}

// The targets of links for the file descriptors of eBPF objects.
const (
	anonymous = "anon_inode:"
	perfEvent = anonymous + "[perf_event]"
)

func isEBPF(target string) bool {
	kind, ok := strings.CutPrefix(target, anonymous)
	return ok && (strings.HasPrefix(kind, "bpf") || kind == "[perf_event]")
}

var errCrowded = errors.New("too many file descriptors")

// descriptors returns the open eBPF objects of a process, and the number of its file
// descriptors. A process can have millions of descriptors of one object or perf event. With errCrowded, it returns those of the
// first ones.
func descriptors(dir string, perfEvents bool, allowed *allowance) (open []Descriptor, many int64, err error) {
	fds, err := openDirectory(filepath.Join(dir, "fd"))
	if err != nil {
		return nil, 0, err
	}
	defer unix.Close(fds)
	var stat unix.Stat_t
	if err := unix.Fstat(fds, &stat); err != nil {
		return nil, 0, err //nolint:wrapcheck // the caller distinguishes errors
	}
	all, crowded := listed(fds, dir, allowed)
	if crowded != nil && !errors.Is(crowded, errCrowded) {
		return nil, 0, crowded
	}
	seen := map[kernel.Described]bool{{}: true}
	for _, fd := range all {
		target, err := readLinkAt(fds, strconv.Itoa(fd))
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			return nil, 0, err
		}
		if err != nil || !isEBPF(target) {
			continue
		}
		if target == perfEvent {
			if perfEvents {
				open = append(open, Descriptor{FD: fd, PerfEvent: true})
			}
			continue
		}
		behind, err := kernel.Describe(filepath.Join(dir, "fdinfo", strconv.Itoa(fd)))
		if err == nil && !seen[behind] {
			seen[behind] = true
			open = append(open, Descriptor{FD: fd, Behind: behind})
		}
	}
	return open, stat.Size, crowded
}

// listed returns the file descriptors in an open directory, as far as they are allowed for a process.
func listed(fds int, dir string, allowed *allowance) ([]int, error) {
	var container string
	all, others, err := numbersWithin(fds, func(count int) bool {
		if count == always {
			container = placeOf(dir).Container
		}
		return count < always || allowed.take(container)
	})
	if err == nil && others {
		err = errCrowded
	}
	slices.Sort(all)
	return all, err
}

// count returns the number of a process's file descriptors. The kernel reports it as the size
// of the directory.
func count(dir string) int64 {
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "fd"), &stat); err != nil {
		return 0
	}
	return stat.Size
}

// name returns an empty string if the process has ended. It removes the newline that the
// kernel adds.
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

// parseStart parses the start time in /proc/<pid>/stat. It is the 20th field after the name,
// which is in parentheses and can contain any characters.
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
