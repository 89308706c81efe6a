// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package node inspects a node from within: its processes, its mounts, its interfaces,
// and the bpfman daemon. It needs root, and the node's process and network namespaces,
// which a privileged pod with hostPID and hostNetwork has. It needs no directories of
// the node.
package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
)

// The executables of the node components. Processes also finds the daemon in Go, goDaemon, by the name of the one in Rust.
const (
	Daemon    = "bpfman-rpc"
	Agent     = "bpfman-agent"
	CSI       = "bpfman-csi"
	Inspector = "bpfman-inspector"
	Registrar = "csi-node-driver-registrar"
	Operator  = "bpfman-operator"

	goDaemon = "bpfman"
)

// daemonSocket is the path of the daemon's socket in its container.
const daemonSocket = "/run/bpfman-sock/bpfman.sock"

// Beside is an environment variable. A process that has it doesn't belong to bpfman on the
// node: a benchmark has started it for a comparison.
const Beside = "BPFMAN_BENCH_BESIDE"

// Processes returns the processes that run an executable with that name, or a program of
// Kubernetes' multi-call binary. It leaves out those that have the variable Beside.
func Processes(executable string) ([]int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, link := range links {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", link, err)
		}
		if programName(pid) != executable || beside(pid) {
			continue // it ended in the meantime, or is a kernel thread or another process
		}
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

func beside(pid int) bool {
	environment, err := os.ReadFile(filepath.Join(procOf(pid), "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+Beside+"="))
}

// Process describes how a process was started.
type Process struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
}

// Started describes how each process that runs the executable was started.
func Started(executable string) ([]Process, error) {
	pids, err := Processes(executable)
	if err != nil {
		return nil, err
	}
	words := func(pid int, file string) ([]string, error) {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
		if err != nil {
			return nil, fmt.Errorf("how %s was started: %w", executable, err)
		}
		return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), nil
	}
	processes := make([]Process, 0, len(pids))
	for _, pid := range pids {
		args, err := words(pid, "cmdline")
		if err != nil {
			return nil, err
		}
		env, err := words(pid, "environ")
		if err != nil {
			return nil, err
		}
		processes = append(processes, Process{args, env})
	}
	return processes, nil
}

// ReadAs reads a file as seen by the process that runs the executable.
func ReadAs(executable, path string) (string, error) {
	seen, err := seenAs(executable, path)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		return "", fmt.Errorf("read %s as %s: %w", path, executable, err)
	}
	return string(text), nil
}

// RemoveAs removes a file as seen by the process that runs the executable.
func RemoveAs(executable, path string) error {
	seen, err := seenAs(executable, path)
	if err != nil {
		return err
	}
	if err := os.Remove(seen); err != nil {
		return fmt.Errorf("remove %s as %s: %w", path, executable, err)
	}
	return nil
}

// Below lists the files below a directory as seen by the process that runs the
// executable, the one that was changed last at the end.
func Below(executable, dir string) ([]string, error) {
	seen, err := seenAs(executable, dir)
	if err != nil {
		return nil, err
	}
	changed := map[string]time.Time{}
	err = filepath.WalkDir(seen, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("stat %s: %w", path, err)
		}
		changed[filepath.Join(dir, strings.TrimPrefix(path, seen))] = info.ModTime()
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s as %s: %w", dir, executable, err)
	}
	return slices.SortedFunc(maps.Keys(changed), func(a, b string) int {
		return cmp.Or(changed[a].Compare(changed[b]), cmp.Compare(a, b))
	}), nil
}

// seenAs returns the path for this process to what the process that runs the executable
// sees at path.
func seenAs(executable, path string) (string, error) {
	pids, err := Processes(executable)
	if err != nil {
		return "", err
	}
	if len(pids) != 1 {
		return "", fmt.Errorf("%d processes run %s, want one", len(pids), executable)
	}
	return filepath.Join("/proc", strconv.Itoa(pids[0]), "root", path), nil
}

// Kill kills the processes that run the executable.
func Kill(executable string) error { return Signal(executable, unix.SIGKILL) }

// KeepDown kills the processes that run the executable, and those that replace them,
// until the context ends.
func KeepDown(ctx context.Context, executable string) error {
	const interval = 10 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := Signal(executable, unix.SIGKILL); err != nil && !errors.Is(err, errNotRunning) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// File is a file as seen by a pod.
type File struct {
	Name string `json:"name"`
	// Mode is in octal.
	Mode string `json:"mode"`
	GID  uint32 `json:"gid"`
}

// PodFiles lists a directory as seen by the first process in a pod's containers. It
// identifies the process by its mounts, whose paths contain the pod's UID.
func PodFiles(podUID, dir string) ([]File, error) {
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, table := range tables {
		mounts, err := os.ReadFile(table)
		root := filepath.Join(filepath.Dir(table), "root")
		if err != nil || !bytes.Contains(mounts, []byte("/pods/"+podUID+"/etc-hosts")) {
			continue // it ended in the meantime, or belongs to another pod
		}
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			continue // the node's own processes also have these mounts
		}
		files := make([]File, 0, len(entries))
		for _, entry := range entries {
			var stat unix.Stat_t
			if err := unix.Stat(filepath.Join(root, dir, entry.Name()), &stat); err != nil {
				return nil, fmt.Errorf("stat %s in pod %s: %w", entry.Name(), podUID, err)
			}
			files = append(files, File{Name: entry.Name(), Mode: strconv.FormatUint(uint64(stat.Mode&0o7777), 8), GID: stat.Gid})
		}
		return files, nil
	}
	return nil, fmt.Errorf("no process of pod %s has a directory %s", podUID, dir)
}

// Mounts returns the node's mounts of BPF file systems and of volumes of the CSI plugin,
// with the type and the mount point in one line.
func Mounts() ([]string, error) {
	table, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the node's mount table: %w", err)
	}
	var mounts []string
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		separator := slices.Index(fields, "-")
		if separator < 0 || separator+1 >= len(fields) {
			return nil, fmt.Errorf("mount table has a line of another format: %q", line)
		}
		kind, point := fields[separator+1], fields[4]
		if kind == "bpf" || strings.Contains(point, "kubernetes.io~csi") {
			mounts = append(mounts, kind+" "+point)
		}
	}
	slices.Sort(mounts)
	return mounts, nil
}

// DialDaemon connects to the node's daemon, through the root of its container. That path
// is short enough for the address of a socket, and doesn't depend on the kubelet.
func DialDaemon() (*grpc.ClientConn, error) {
	pids, err := Processes(Daemon)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		socket := filepath.Join("/proc", strconv.Itoa(pid), "root", daemonSocket)
		if _, err := os.Stat(socket); err != nil {
			continue
		}
		return bpfman.Dial(socket)
	}
	return nil, fmt.Errorf("no process among %v runs %s with a socket at %s", pids, Daemon, daemonSocket)
}
