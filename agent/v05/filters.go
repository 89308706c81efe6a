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

// A TC dispatcher is a filter, not a pin. After its programs are removed, it
// stays on the interface, without effect. v0.6 creates filters with the same name
// and priority, so v0.5's filters can only be recognized before. They are
// recorded when the pins are set aside, as names of directories. They are removed
// when the node's pod first starts without these pins, because the container that
// removes the pins has no network capabilities.
const (
	noted              = "v05-filters"
	dispatcherName     = "tc_dispatcher"
	dispatcherPriority = 50
)

// note matches the record of a filter: direction, interface, handle, and the
// program's ID.
var note = regexp.MustCompile(`^(tc-ingress|tc-egress)_(\d+)_(\d+)_(\d+)$`)

// parents contains the parent handle of the filters of each direction.
var parents = map[string]uint32{"tc-ingress": netlink.HANDLE_MIN_INGRESS, "tc-egress": netlink.HANDLE_MIN_EGRESS}

// tcRevision matches the directory of a TC dispatcher: direction, network
// namespace, interface.
var tcRevision = regexp.MustCompile(`^(tc-ingress|tc-egress)/dispatcher_(\d+)_(\d+)_\d+$`)

// noteFilters records the filters of the dispatchers to be set aside. Filters in
// other network namespaces are removed with their pods.
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
			continue // v0.6 has one too, and they can't be distinguished
		}
		filters, err := dispatcherFilters(direction, index)
		if err != nil {
			return fmt.Errorf("record filters of bpfman v0.5: %w", err)
		}
		for _, f := range filters {
			name := fmt.Sprintf("%s_%s_%d_%d", direction, index, f.Handle, f.Id)
			if err := os.MkdirAll(filepath.Join(bpffs, noted, name), 0o755); err != nil { //nolint:gosec // the mode of the daemon's directories
				return fmt.Errorf("record filters of bpfman v0.5: %w", err)
			}
		}
	}
	return nil
}

// RemoveFilters removes the recorded filters after the pins that were set aside
// have been removed. It returns how many it removed.
func RemoveFilters(bpffs string) (int, error) {
	if _, err := os.Stat(filepath.Join(bpffs, aside)); !errors.Is(err, fs.ErrNotExist) {
		return 0, nil // their programs are still attached, or this is unknown
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

// dispatcherFilters returns the filters of dispatchers on an interface. It
// returns none if the interface doesn't exist.
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

// inode returns the inode number of a network namespace, which v0.5 uses as its
// name.
func inode(path string) (string, error) {
	stat, err := statOf(path)
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(stat.Ino, 10), nil
}
