// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package cgroup finds the programs that are attached to cgroups, with or without links.
package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/dirents"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/process"
)

// Hook is a program at a hook of a cgroup.
type Hook struct {
	// Cgroup is the path of the cgroup, relative to the root of its file system.
	Cgroup string
	// ID is the kernel's id of the cgroup.
	ID uint64
	// Type is the type, as in BpfNodeAttachPoint.
	Type    string
	Program uint32
	// Position starts at 1. The programs of parent cgroups aren't counted, but run too.
	Position int32
}

// hooks maps types of programs to their possible attach types.
var hooks = map[string][]ebpf.AttachType{
	"cgroup_skb":     {ebpf.AttachCGroupInetIngress, ebpf.AttachCGroupInetEgress},
	"cgroup_sock":    {ebpf.AttachCGroupInetSockCreate, ebpf.AttachCgroupInetSockRelease, ebpf.AttachCGroupInet4PostBind, ebpf.AttachCGroupInet6PostBind},
	"cgroup_device":  {ebpf.AttachCGroupDevice},
	"sock_ops":       {ebpf.AttachCGroupSockOps},
	"cgroup_sysctl":  {ebpf.AttachCGroupSysctl},
	"cgroup_sockopt": {ebpf.AttachCGroupGetsockopt, ebpf.AttachCGroupSetsockopt},
	"cgroup_sock_addr": {
		ebpf.AttachCGroupInet4Bind, ebpf.AttachCGroupInet6Bind, ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect,
		ebpf.AttachCGroupUDP4Sendmsg, ebpf.AttachCGroupUDP6Sendmsg, ebpf.AttachCGroupUDP4Recvmsg, ebpf.AttachCGroupUDP6Recvmsg,
		ebpf.AttachCgroupInet4GetPeername, ebpf.AttachCgroupInet6GetPeername, ebpf.AttachCgroupInet4GetSockname, ebpf.AttachCgroupInet6GetSockname,
		ebpf.AttachCgroupUnixConnect, ebpf.AttachCgroupUnixSendmsg, ebpf.AttachCgroupUnixRecvmsg, ebpf.AttachCgroupUnixGetpeername, ebpf.AttachCgroupUnixGetsockname,
	},
	"lsm": {ebpf.AttachLSMCgroup},
}

// Attaches reports whether programs of a type are mainly attached to cgroups.
func Attaches(programType string) bool { return programType != "lsm" && hooks[programType] != nil }

// Limits, because a container that manages its own cgroups could otherwise keep the inspector reading forever.
const (
	maxDepth = 32
	// maxOfHost is the maximum number of cgroups outside of containers, and maxOfContainer that in one container.
	maxOfHost, maxOfContainer = 100_000, 512
	// maxOfContainers is the number of cgroups in all containers, after which minOfContainer are read in each of the others.
	maxOfContainers, minOfContainer = 16 << 10, 16
)

// ErrMany means that the result lacks cgroups.
var ErrMany = fmt.Errorf("some cgroups aren't read: only %d of a container, %d of all containers, %d others, and %d levels of them", maxOfContainer, maxOfContainers, maxOfHost, maxDepth)

// Hooks visits the cgroups of the host, and queries the programs of some types. It visits
// only cgroup v2, because no other cgroups have programs. host is a process that sees
// the host's cgroups. paths maps the wanted ids to paths. With ErrMany, the result lacks some.
func Hooks(proc string, host int, programTypes []string, wanted func(id uint64) bool) (paths map[uint64]string, found []Hook, err error) {
	mounts, err := process.Mounts(proc, host, "cgroup2")
	if err != nil {
		return nil, nil, err
	}
	// Prefer a mount that shows the whole hierarchy.
	slices.SortStableFunc(mounts, func(a, b *mountinfo.Info) int { return len(a.Root) - len(b.Root) })
	if len(mounts) == 0 {
		return map[uint64]string{}, nil, nil
	}
	var types []ebpf.AttachType
	for _, programType := range programTypes {
		types = append(types, hooks[programType]...)
	}
	walk := newWalk(types, wanted)
	err = walk.hierarchy(filepath.Join(proc, strconv.Itoa(host), "root", mounts[0].Mountpoint))
	return walk.paths, walk.found, err
}

type walk struct {
	types   []ebpf.AttachType
	unknown map[ebpf.AttachType]bool
	wanted  func(id uint64) bool
	paths   map[uint64]string
	found   []Hook
	// leftOfHost and leftOfContainers are how many more cgroups can be read. With crowded, some weren't.
	leftOfHost, leftOfContainers int
	crowded                      bool
}

func newWalk(types []ebpf.AttachType, wanted func(id uint64) bool) *walk {
	return &walk{
		types: types, unknown: map[ebpf.AttachType]bool{}, wanted: wanted, paths: map[uint64]string{},
		leftOfHost: maxOfHost, leftOfContainers: maxOfContainers,
	}
}

// hierarchy reads the cgroups in a directory.
func (w *walk) hierarchy(dir string) error {
	root := group{parent: unix.AT_FDCWD, name: dir, path: "/", left: &w.leftOfHost}
	if err := w.visit(root); err != nil {
		return fmt.Errorf("visit cgroups: %w", err)
	}
	if w.crowded {
		return ErrMany
	}
	return nil
}

// group is a cgroup to read.
type group struct {
	// parent is the open directory that contains name.
	parent     int
	name, path string
	depth      int
	// container is the container that it is in, or empty, and left is how many more can be read there.
	container string
	left      *int
}

// limit returns the number of cgroups to read in a container.
func (w *walk) limit() int { return max(minOfContainer, min(maxOfContainer, w.leftOfContainers)) }

// visit reads a cgroup and its children. It leaves out cgroups that disappear in the
// meantime.
func (w *walk) visit(g group) error {
	if container := process.ParseCgroup("0::" + g.path).Container; container != g.container {
		limit := w.limit()
		left := limit
		g.container, g.left = container, &left
		if container == "" { // the node's cgroups are in a container's
			g.left = &w.leftOfHost
		}
		defer func() { w.leftOfContainers -= limit - left }()
	}
	if *g.left == 0 || g.depth > maxDepth {
		w.crowded = true
		return nil
	}
	*g.left--
	fd, err := unix.Openat(g.parent, g.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", g.path, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("stat %s: %w", g.path, err)
	}
	if w.wanted(stat.Ino) {
		w.paths[stat.Ino] = g.path
	}
	if err := w.query(fd, g.path, stat.Ino); err != nil {
		return err
	}
	below, err := w.directories(fd, *g.left)
	if err != nil {
		return nil // it was removed
	}
	for _, name := range below {
		child := group{fd, name, filepath.Join(g.path, name), g.depth + 1, g.container, g.left}
		if err := w.visit(child); err != nil {
			return err
		}
	}
	return nil
}

// query gets the programs that are attached to the cgroup itself, in order.
func (w *walk) query(fd int, path string, id uint64) error {
	for _, attach := range w.types {
		if w.unknown[attach] {
			continue
		}
		result, err := link.QueryPrograms(link.QueryOptions{Target: fd, Attach: attach})
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, link.ErrNotSupported):
			w.unknown[attach] = true // this kernel doesn't know the type
			continue
		case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOENT):
			return nil // the cgroup was removed
		case err != nil:
			return fmt.Errorf("query %s of %s: %w", attach, path, err)
		}
		for i, attached := range result.Programs {
			w.found = append(w.found, Hook{
				Cgroup: path, ID: id, Type: kernel.AttachType(uint32(attach)), Program: uint32(attached.ID), Position: int32(i) + 1,
			})
		}
	}
	return nil
}

// directories returns the directories in a directory, up to a number.
func (w *walk) directories(fd, most int) ([]string, error) {
	var found []string
	err := dirents.Each(fd, func(entry dirents.Entry) bool {
		if entry.Type != unix.DT_DIR { // kernfs stores the types
			return true
		}
		if len(found) == most {
			w.crowded = true
			return false
		}
		found = append(found, entry.Name)
		return true
	})
	return found, err
}
