// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
)

// mount is one row of the node's mount table.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
	// optional: a kernel without it does without.
	optional bool
}

const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// systemMounts are the file systems that any Linux node has.
func systemMounts() []mount {
	return []mount{
		{"proc", "/proc", "proc", noExec, "", false},
		// Its own: /sys/class/net shows the network namespace that it was mounted in.
		{"sysfs", "/sys", "sysfs", noExec, "", false},
		{"securityfs", "/sys/kernel/security", "securityfs", noExec, "", true},
		{"debugfs", "/sys/kernel/debug", "debugfs", noExec, "", true},
		{"tracefs", "/sys/kernel/tracing", "tracefs", noExec, "", true},
		{"bpf", "/sys/fs/bpf", "bpf", noExec, "mode=700", true},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=755", false},
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5", false},
		{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777", true},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755", false},
		{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777", false},
	}
}

// dataMounts put what the node writes in quantity onto the host's disk, below
// the state directory; all else that it writes is kept in memory.
func dataMounts(s component.Settings) []mount {
	bind := func(source, target string) mount {
		return mount{source: source, target: target, flags: unix.MS_BIND}
	}
	binary := filepath.Dir(s.Kubernetes)
	return []mount{
		bind(s.StateDir, s.StateDir),
		bind(binary, binary),                             // may be on another of the host's file systems
		bind(s.Dir("containerd"), "/var/lib/containerd"), // overlayfs takes no overlayfs as its upper layer
		bind(s.Dir("kubelet"), "/var/lib/kubelet"),
		bind(s.Dir("logs", "pods"), "/var/log/pods"),
	}
}

// cgroupMounts mirror the host's hierarchies, whose roots are the node's
// cgroups by now.
func cgroupMounts(all []hierarchy) []mount {
	const root = "/sys/fs/cgroup"
	if len(all) == 1 && all[0].point == root {
		return []mount{{"cgroup2", root, "cgroup2", noExec, "", false}}
	}
	mounts := []mount{{"tmpfs", root, "tmpfs", noExec, "mode=755", false}}
	for _, h := range all {
		data := h.options
		if h.fstype == "cgroup2" {
			data = ""
		}
		mounts = append(mounts, mount{"cgroup", filepath.Join(root, filepath.Base(h.point)), h.fstype, noExec, data, false})
	}
	return mounts
}

// setUpMounts builds the node's root and makes it the caller's: the host's
// root file system below a layer in memory that takes all writes, so that
// whatever a pod does to a hostPath is done to the node only.
func setUpMounts(s component.Settings) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	// The layer must be on another file system than the one below it.
	scratch := s.Dir("mnt")
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", scratch, err)
	}
	layer := map[string]string{}
	for _, name := range []string{"upper", "work", "root"} {
		layer[name] = filepath.Join(scratch, name)
		if err := os.Mkdir(layer[name], 0o755); err != nil {
			return fmt.Errorf("making the node's root: %w", err)
		}
	}
	root := layer["root"]
	options := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", layer["upper"], layer["work"])
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting the node's root: %w", err)
	}
	mounts := systemMounts()
	mounts = append(mounts, cgroupMounts(all)...)
	mounts = append(mounts, dataMounts(s)...)
	for _, m := range mounts {
		if err := m.mount(root); err != nil {
			return err
		}
	}
	if err := enterRoot(root); err != nil {
		return err
	}
	// Bidirectional mounts of pods need the node's mounts to be shared.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("making the node's mounts shared: %w", err)
	}
	return pinSysctls()
}

// mount mounts it below the root.
func (m mount) mount(root string) error {
	target := filepath.Join(root, m.target)
	// Directories of kernel file systems are the kernel's to make.
	if err := os.MkdirAll(target, 0o755); err != nil && !m.optional {
		return fmt.Errorf("making the mount point %s: %w", m.target, err)
	}
	err := unix.Mount(m.source, target, m.fstype, m.flags, m.data)
	if err != nil && !m.optional {
		return fmt.Errorf("mounting %s on %s: %w", m.source, m.target, err)
	}
	return nil
}

// enterRoot makes the directory the root of this mount namespace and lets go
// of the old one.
func enterRoot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("entering the node's root: %w", err)
	}
	// The same directory twice stacks the old root below the new one.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing to the node's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the host's root: %w", err)
	}
	return unix.Chdir("/")
}

// sysctls are what the kubelet sets at its start, for the whole machine.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// pinSysctls shows the kubelet the values that it wants, by files mounted over
// the real ones, which it then leaves as the host has them.
func pinSysctls() error {
	for name, value := range sysctls {
		file := filepath.Join("/run/sysctl", strings.ReplaceAll(name, "/", "."))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("making the directory of %s: %w", file, err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
		err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, "")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("mounting %s: %w", file, err)
		}
	}
	return nil
}
