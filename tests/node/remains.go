// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// nodeRoot is the node's file system, including its mounts.
const nodeRoot = "/proc/1/root"

// Directories of the node components: the daemon's state, which includes its pins, and
// the CSI plugin's socket below the kubelet's root.
const (
	stateDir  = "/run/bpfman"
	pluginDir = "plugins/csi-bpfman"
)

// Remains returns what bpfman has on the node: processes, files, pins, and volumes of
// pods. Some of these stay after bpfman is uninstalled.
func Remains(kubeletRoot string) ([]string, error) {
	var found []string
	for _, executable := range []string{Daemon, Agent, CSI, Inspector, Registrar, Operator} {
		pids, err := Processes(executable)
		if err != nil {
			return nil, err
		}
		if len(pids) > 0 {
			found = append(found, "process "+executable)
		}
	}
	for _, pattern := range []string{
		stateDir + "/*",
		daemonPins + "/prog_*",
		daemonPins + "/links/*",
		daemonPins + "/maps/*/*",
		filepath.Join(kubeletRoot, pluginDir),
		filepath.Join(kubeletRoot, pluginDir, "*"),
		filepath.Join(kubeletRoot, "plugins_registry", "*bpfman*"),
	} {
		paths, err := filepath.Glob(nodeRoot + pattern)
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", pattern, err)
		}
		for _, path := range paths {
			found = append(found, strings.TrimPrefix(path, nodeRoot))
		}
	}
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	for _, mount := range mounts {
		if strings.HasPrefix(mount, "bpf "+stateDir) || strings.HasPrefix(mount, "bpf "+kubeletRoot) {
			found = append(found, "mount of "+mount)
		}
	}
	slices.Sort(found)
	return found, nil
}

// Clean does what an administrator does on a node after bpfman is uninstalled. It
// unmounts the file system with the pins, which unloads the programs, unmounts the
// container runtime's directory, and removes the directories.
func Clean(kubeletRoot string) error {
	done := make(chan error)
	go func() {
		// The thread is in another mount namespace afterwards, and ends with this
		// function.
		runtime.LockOSThread()
		done <- unmountOnNode(daemonPins, stateDir+"/cri/*")
	}()
	if err := <-done; err != nil {
		return err
	}
	for _, dir := range []string{stateDir, filepath.Join(kubeletRoot, pluginDir)} {
		if err := os.RemoveAll(nodeRoot + dir); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
	return nil
}

func unmountOnNode(patterns ...string) (err error) {
	namespace, err := os.Open("/proc/1/ns/mnt")
	if err != nil {
		return fmt.Errorf("open the node's mount namespace: %w", err)
	}
	defer func() { err = errors.Join(err, namespace.Close()) }()
	// A thread that shares its root with other threads can't change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("part from the other threads' root: %w", err)
	}
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the node's mount namespace: %w", err)
	}
	for _, pattern := range patterns {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("look for %s: %w", pattern, err)
		}
		for _, dir := range dirs {
			if err := unix.Unmount(dir, 0); err != nil {
				return fmt.Errorf("unmount %s: %w", dir, err)
			}
		}
	}
	return nil
}
