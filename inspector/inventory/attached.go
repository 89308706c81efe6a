// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/inspector/cgroup"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/network"
	"github.com/bpfman/bpfman-operator/inspector/process"
)

// readNetwork reads the hooks of interfaces, if there are programs that can be attached
// to them.
func (i *Inventory) readNetwork() {
	wanted := i.wanted()
	if wanted == (network.Wanted{}) {
		i.facts.Hooks = nil
		i.tried("network", nil)
		return
	}
	namespaces, err := i.namespaces()
	found := network.Hooks(namespaces, wanted)
	if slices.ContainsFunc(slices.Collect(maps.Values(found.Unread)), isGone) {
		// The process that stands for a namespace has ended. There can be others in it.
		i.readHolders()
		namespaces, err = i.namespaces()
		found = network.Hooks(namespaces, wanted)
	}
	i.facts.Hooks = append(found.Hooks, unseen(i.facts.Hooks, found, namespaces, err == nil)...)
	failures := []error{err}
	crowded := error(nil)
	for _, inode := range slices.Sorted(maps.Keys(found.Unread)) {
		switch unread := found.Unread[inode]; {
		case errors.Is(unread, network.ErrManyNamespaces):
			crowded = unread // once, not for each namespace
		case !isGone(unread):
			failures = append(failures, unread)
		}
	}
	failures = append(failures, crowded)
	i.tried("network", errors.Join(failures...))
}

func isGone(err error) bool { return errors.Is(err, network.ErrGone) }

// namespaces returns the network namespaces of processes, and those that only a mount keeps.
// With an error, some of the latter can be missing.
func (i *Inventory) namespaces() ([]network.Namespace, error) {
	namespaces := make([]network.Namespace, 0, len(i.facts.NetNS))
	known := map[uint64]int{}
	for n, namespace := range i.facts.NetNS {
		known[namespace.Inode] = n
		namespaces = append(namespaces, network.Namespace{
			Inode: namespace.Inode, Path: filepath.Join(i.proc, strconv.Itoa(namespace.PID), "ns/net"), Host: n == 0, Container: namespace.Container,
		})
	}
	mounts, err := process.Mounts(i.proc, i.host, "nsfs")
	for _, mount := range mounts {
		inode, ok := process.NamespaceInode(mount.Root, "net")
		if !ok {
			continue
		}
		if n, has := known[inode]; has {
			namespaces[n].Container = "" // it is that of a pod
			continue
		}
		known[inode] = len(namespaces)
		namespaces = append(namespaces, network.Namespace{Inode: inode, Path: i.hostFile(mount.Mountpoint)})
	}
	return namespaces, err
}

// unseen returns the hooks that were known before, and that can still exist: those of
// namespaces that weren't read completely, and, unless all namespaces are listed, those of
// the others. A hook that isn't found there hasn't been removed for that reason.
//
// Each program is kept once at an interface: its position, and others of its hooks, can have changed since. Of a namespace,
// which its pod could otherwise fill in many rounds, maxUnseen hooks are kept, the ones that were seen last.
func unseen(before []network.Hook, found network.Found, listed []network.Namespace, all bool) []network.Hook {
	exists := map[uint64]bool{}
	for _, namespace := range listed {
		exists[namespace.Inode] = true
	}
	known := map[place]bool{}
	for _, hook := range found.Hooks {
		known[placeOf(hook)] = true
	}
	var kept []network.Hook
	count := map[uint64]int{}
	for _, hook := range before {
		_, unread := found.Unread[hook.NetNS]
		if !unread && (all || exists[hook.NetNS]) || known[placeOf(hook)] || count[hook.NetNS] == maxUnseen {
			continue
		}
		known[placeOf(hook)] = true
		count[hook.NetNS]++
		kept = append(kept, hook)
	}
	return kept
}

// maxUnseen is the maximum number of hooks that are kept of a namespace that can't be read.
const maxUnseen = 1024

// place is what identifies a hook of an interface while others are created and deleted.
type place struct {
	network.Interface
	kind    string
	program uint32
}

func placeOf(h network.Hook) place { return place{h.Interface, h.Type, h.Program} }

// wanted returns the hooks for which there are programs.
func (i *Inventory) wanted() (wanted network.Wanted) {
	for _, program := range i.facts.Programs {
		switch program.Type {
		case "xdp":
			wanted.XDP = true
		case "sched_cls":
			wanted.TC = true
		case "flow_dissector":
			wanted.Dissector = true
		case "sk_lookup":
			wanted.Lookup = true
		}
	}
	wanted.Netkit = slices.ContainsFunc(i.facts.Links, func(l kernel.Link) bool { return strings.HasPrefix(l.Type, "netkit/") })
	return wanted
}

// readCgroups visits the cgroups if a program that can be attached to one hasn't been
// looked for, or if the path of a link's cgroup isn't known.
func (i *Inventory) readCgroups(all, settling bool) {
	types, queried := map[string]bool{}, map[uint32]bool{}
	look := false
	linked, groups := map[uint32]bool{}, map[uint64]bool{}
	for _, l := range i.facts.Links {
		if l.Cgroup == 0 {
			continue
		}
		linked[l.Program], groups[l.Cgroup] = true, true
		if _, known := i.facts.Cgroups[l.Cgroup]; !known {
			look = true
		}
	}
	for _, program := range i.facts.Programs {
		if !cgroup.Attaches(program.Type) && (program.Type != "lsm" || !linked[program.ID]) {
			continue
		}
		types[program.Type], queried[program.ID] = true, true
		look = look || all || !i.queried[program.ID] || settling && !linked[program.ID] && !i.attachedToCgroup(program.ID)
	}
	if len(types) == 0 {
		i.facts.Cgroups, i.facts.CgroupHooks = nil, nil
		i.queried = queried
		i.tried("cgroups", nil)
		return
	}
	if !look {
		i.facts.CgroupHooks = slices.DeleteFunc(i.facts.CgroupHooks, func(h cgroup.Hook) bool { return !queried[h.Program] })
		i.queried = queried
		return
	}
	wanted := make([]string, 0, len(types))
	for programType := range types {
		wanted = append(wanted, programType)
	}
	slices.Sort(wanted)
	paths, hooks, err := cgroup.Hooks(i.proc, i.host, wanted, func(id uint64) bool { return groups[id] })
	i.tried("cgroups", err)
	if err != nil && !errors.Is(err, cgroup.ErrMany) {
		return
	}
	for id := range groups {
		if paths[id] == "" { // it was removed, or isn't read; it isn't looked for again
			paths[id] = fmt.Sprintf("id %d", id)
		}
	}
	i.facts.Cgroups, i.facts.CgroupHooks = paths, hooks
	i.queried = queried
}

func (i *Inventory) attachedToCgroup(program uint32) bool {
	return slices.ContainsFunc(i.facts.CgroupHooks, func(h cgroup.Hook) bool { return h.Program == program })
}
