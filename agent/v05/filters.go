// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v05

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
)

// A dispatcher of TC is a filter, which is no pin: it stays on its interface when
// its programs are gone, without effect. Which filters are v0.5's can be told
// only before v0.6 makes its own, of the same name and priority. So they are
// noted when the pins are set aside, as names of directories, and removed when
// the node's pod starts for the first time without these pins: the container
// that removes the pins has no right to the network.
const (
	noted              = "v05-filters"
	dispatcherName     = "tc_dispatcher"
	dispatcherPriority = 50
)

// note is a filter: direction, interface, handle, and the program's id.
var note = regexp.MustCompile(`^(tc-ingress|tc-egress)_(\d+)_(\d+)_(\d+)$`)

// parents are where the filters of a direction hang.
var parents = map[string]uint32{"tc-ingress": netlink.HANDLE_MIN_INGRESS, "tc-egress": netlink.HANDLE_MIN_EGRESS}

// tcRevision is the directory of a dispatcher of TC: direction, network
// namespace, interface.
var tcRevision = regexp.MustCompile(`^(tc-ingress|tc-egress)/dispatcher_(\d+)_(\d+)_\d+$`)

// noteFilters notes the filters of the dispatchers that are to be set aside.
// Those in other network namespaces go with their pods.
func noteFilters(bpffs string, found []string) error {
	network, err := inode("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("record filters of bpfman v0.5: %w", err)
	}
	for _, path := range found {
		of := tcRevision.FindStringSubmatch(path)
		if of == nil || of[2] != network {
			continue
		}
		direction, index := of[1], of[3]
		revisions, err := names(filepath.Join(bpffs, direction))
		if err != nil {
			return fmt.Errorf("record filters of bpfman v0.5: %w", err)
		}
		if slices.ContainsFunc(revisions, func(name string) bool {
			return match(revision, name) == "dispatcher_"+network+"_"+index && !slices.Contains(found, filepath.Join(direction, name))
		}) {
			continue // v0.6 has one too: nothing tells them apart
		}
		filters, err := dispatcherFilters(direction, index)
		if err != nil {
			return fmt.Errorf("record filters of bpfman v0.5: %w", err)
		}
		for _, f := range filters {
			name := fmt.Sprintf("%s_%s_%d_%d", direction, index, f.Handle, f.Id)
			if err := os.MkdirAll(filepath.Join(bpffs, noted, name), 0o755); err != nil { //nolint:gosec // as the daemon's own directories
				return fmt.Errorf("record filters of bpfman v0.5: %w", err)
			}
		}
	}
	return nil
}

// RemoveFilters removes the filters that were noted, once the pins that were set
// aside are removed, and returns how many.
func RemoveFilters(bpffs string) (int, error) {
	if _, err := os.Stat(filepath.Join(bpffs, aside)); !errors.Is(err, fs.ErrNotExist) {
		return 0, nil // their programs are attached still, or nothing can be told
	}
	notes, err := names(filepath.Join(bpffs, noted))
	if err != nil {
		return 0, fmt.Errorf("remove filters of bpfman v0.5: %w", err)
	}
	removed := 0
	for _, name := range notes {
		of := note.FindStringSubmatch(name)
		if of == nil {
			continue
		}
		filters, err := dispatcherFilters(of[1], of[2])
		if err != nil {
			return removed, fmt.Errorf("remove filters of bpfman v0.5: %w", err)
		}
		for _, f := range filters {
			if strconv.FormatUint(uint64(f.Handle), 10) != of[3] || strconv.Itoa(f.Id) != of[4] {
				continue
			}
			if err := netlink.FilterDel(f); err != nil {
				return removed, fmt.Errorf("remove filter %s of bpfman v0.5: %w", name, err)
			}
			removed++
		}
		if err := os.Remove(filepath.Join(bpffs, noted, name)); err != nil {
			return removed, fmt.Errorf("remove filters of bpfman v0.5: %w", err)
		}
	}
	if err := os.Remove(filepath.Join(bpffs, noted)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return removed, fmt.Errorf("remove filters of bpfman v0.5: %w", err)
	}
	return removed, nil
}

// dispatcherFilters lists the filters of dispatchers on an interface, none where
// the interface is gone.
func dispatcherFilters(direction, index string) ([]*netlink.BpfFilter, error) {
	number, err := strconv.Atoi(index)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", index, err)
	}
	device, err := netlink.LinkByIndex(number)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", index, err)
	}
	all, err := netlink.FilterList(device, parents[direction])
	if err != nil {
		return nil, fmt.Errorf("filters of %s: %w", device.Attrs().Name, err)
	}
	var filters []*netlink.BpfFilter
	for _, f := range all {
		if bpf, ok := f.(*netlink.BpfFilter); ok && bpf.Name == dispatcherName && bpf.Priority == dispatcherPriority {
			filters = append(filters, bpf)
		}
	}
	return filters, nil
}

// inode is the number by which v0.5 names a network namespace.
func inode(path string) (string, error) {
	stat, err := statOf(path)
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(stat.Ino, 10), nil
}
