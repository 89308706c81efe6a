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
	// optional means that the node works without it.
	optional bool
}

const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// systemMounts returns the file systems that every Linux node has.
func systemMounts() []mount {
	return []mount{
		{"proc", "/proc", "proc", noExec, "", false},
		// The node needs its own sysfs, because /sys/class/net shows the network
		// namespace in which it was mounted.
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

// dataMounts mount directories below the state directory, on the host's disk, for large
// data. The node's other files are in memory.
func dataMounts(s component.Settings) []mount {
	bind := func(source, target string) mount {
		return mount{source: source, target: target, flags: unix.MS_BIND}
	}
	binaries := filepath.Dir(s.Kubernetes)
	mounts := []mount{
		bind(s.StateDir, s.StateDir),
		bind(binaries, binaries),                         // they can be on another file system of the host
		bind(s.Dir("containerd"), "/var/lib/containerd"), // an upper layer of overlayfs can't be on overlayfs
		bind(s.Dir("kubelet"), "/var/lib/kubelet"),
		bind(s.Dir("bpfman"), "/var/lib/bpfman"), // the store of bytecode survives a reboot
		bind(s.Dir("logs", "pods"), "/var/log/pods"),
	}
	if s.Containerd != "" {
		mounts = append(mounts, bind(s.Containerd, s.Containerd))
	}
	return mounts
}

// cgroupMounts mounts the same hierarchies as the host. Their roots are already the
// node's cgroups.
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

// setUpMounts builds the node's root, and makes it the root of this process. It consists
// of the host's root file system and a writable layer in memory, so pods that write to a
// hostPath only affect the node.
func setUpMounts(s component.Settings) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	// The layer must be on another file system than the lower one.
	scratch := s.Dir("mnt")
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", scratch, err)
	}
	layer := map[string]string{}
	for _, name := range []string{"upper", "work", "root"} {
		layer[name] = filepath.Join(scratch, name)
		if err := os.Mkdir(layer[name], 0o755); err != nil {
			return fmt.Errorf("create the node's root: %w", err)
		}
	}
	root := layer["root"]
	options := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", layer["upper"], layer["work"])
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount the node's root: %w", err)
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
	// Pods with bidirectional mounts require that the node's mounts are shared.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make the node's mounts shared: %w", err)
	}
	return pinSysctls()
}

// mount mounts it below the root.
func (m mount) mount(root string) error {
	target := filepath.Join(root, m.target)
	// In kernel file systems, only the kernel creates directories.
	if err := os.MkdirAll(target, 0o755); err != nil && !m.optional {
		return fmt.Errorf("create the mount point %s: %w", m.target, err)
	}
	err := unix.Mount(m.source, target, m.fstype, m.flags, m.data)
	if err != nil && !m.optional {
		return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
	}
	return nil
}

// enterRoot makes the directory the root of this mount namespace, and unmounts the old
// root.
func enterRoot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter the node's root: %w", err)
	}
	// With the same directory twice, the old root is stacked below the new one.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change to the node's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the host's root: %w", err)
	}
	return unix.Chdir("/")
}

// sysctls are the values that the kubelet sets for the whole machine when it starts.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// pinSysctls mounts files with the kubelet's values over the sysctls, so that the
// kubelet doesn't change those of the host.
func pinSysctls() error {
	for name, value := range sysctls {
		file := filepath.Join("/run/sysctl", strings.ReplaceAll(name, "/", "."))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("create the directory of %s: %w", file, err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
		err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, "")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("mount %s: %w", file, err)
		}
	}
	return nil
}
