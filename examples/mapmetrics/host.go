// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Host translates what the kernel's numbers mean on this node: control groups, devices, symbols, and interfaces. It
// needs no capability. What the pod can't read stays a number.
type Host struct {
	// Proc is the path of /proc. Of a container's own, the files that matter show the whole node.
	Proc string
	// Cgroups is the path of the node's cgroup v2 hierarchy. A container sees only its own part of it, so the node's
	// /sys/fs/cgroup has to be mounted.
	Cgroups string

	mu         sync.Mutex
	cgroups    cache[uint64]
	devices    cache[uint64]
	interfaces cache[int]
	symbols    func() []symbol
}

// cache is a table that is read again if it lacks a key, but not more often than every minAge.
type cache[K comparable] struct {
	known map[K]string
	read  time.Time
}

const minAge = 10 * time.Second

func (c *cache[K]) get(key K, read func() map[K]string) (string, bool) {
	value, known := c.known[key]
	if !known && time.Since(c.read) > minAge {
		c.known, c.read = read(), time.Now()
		value, known = c.known[key]
	}
	return value, known
}

// cgroup returns the path of a control group, with its id in the kernel, which is the inode of its directory.
func (h *Host) cgroup(id uint64) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	path, known := h.cgroups.get(id, func() map[uint64]string {
		all := map[uint64]string{}
		_ = filepath.WalkDir(h.Cgroups, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return nil //nolint:nilerr // deleted in the meantime
			}
			var stat syscall.Stat_t
			if syscall.Stat(path, &stat) == nil {
				all[stat.Ino] = "/" + strings.TrimPrefix(strings.TrimPrefix(path, h.Cgroups), "/")
			}
			return nil
		})
		return all
	})
	if !known {
		return unknown(strconv.FormatUint(id, 10))
	}
	return path
}

// device returns the name of a block device. The kernel's number has 20 bits for the minor number.
func (h *Host) device(number uint64) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	major, minor := number>>20, number&(1<<20-1)
	name, known := h.devices.get(number, func() map[uint64]string {
		all := map[uint64]string{}
		for line := range lines(filepath.Join(h.Proc, "partitions")) {
			var major, minor, blocks uint64
			var name string
			if n, _ := fmt.Sscan(line, &major, &minor, &blocks, &name); n == 4 {
				all[major<<20|minor] = name
			}
		}
		return all
	})
	if !known {
		return fmt.Sprintf("%d:%d", major, minor)
	}
	return name
}

// interfaceName returns the name of an interface of this pod's network namespace, which is the node's only with
// hostNetwork.
func (h *Host) interfaceName(index int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	name, _ := h.interfaces.get(index, func() map[int]string {
		all := map[int]string{}
		interfaces, _ := net.Interfaces()
		for _, i := range interfaces {
			all[i.Index] = i.Name
		}
		return all
	})
	return name
}

type symbol struct {
	address uint64
	name    string
}

// symbol returns the function that contains an address. The kernel hides addresses from processes without CAP_SYSLOG.
// The result is then the address.
func (h *Host) symbol(address uint64) string {
	h.mu.Lock()
	if h.symbols == nil {
		h.symbols = sync.OnceValue(func() []symbol { return readSymbols(filepath.Join(h.Proc, "kallsyms")) })
	}
	all := h.symbols()
	h.mu.Unlock()
	at := sort.Search(len(all), func(i int) bool { return all[i].address > address })
	if at == 0 {
		return fmt.Sprintf("%#x", address)
	}
	return all[at-1].name
}

func readSymbols(path string) []symbol {
	var all []symbol
	for line := range lines(path) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.EqualFold(fields[1], "t") {
			continue
		}
		if address, err := strconv.ParseUint(fields[0], 16, 64); err == nil && address != 0 {
			all = append(all, symbol{address, fields[2]})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].address < all[j].address })
	return all
}

// lines yields the lines of a file, or none if it can't be read.
func lines(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		file, err := os.Open(path)
		if err != nil {
			return
		}
		defer file.Close()
		for s := bufio.NewScanner(file); s.Scan(); {
			if !yield(s.Text()) {
				return
			}
		}
	}
}
