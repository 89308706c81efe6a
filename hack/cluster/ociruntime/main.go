// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command ociruntime wraps runc for a container engine on a machine that lacks capabilities, such as a sandbox.
// For a privileged container, an engine requests all capabilities, and limits and an OOM score that only
// CAP_SYS_RESOURCE can set. runc would fail. ociruntime removes from the container's configuration what this
// machine doesn't allow, and executes runc.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ociruntime:", err)
		os.Exit(1)
	}
}

// run adapts the files in the arguments, and executes runc with the arguments.
func run(args []string) error {
	granted, err := bounding()
	if err != nil {
		return err
	}
	for i, arg := range args {
		bundle, isBundle := strings.CutPrefix(arg, "--bundle=")
		process, isProcess := strings.CutPrefix(arg, "--process=")
		if i+1 < len(args) {
			switch arg {
			case "--bundle", "-b":
				bundle, isBundle = args[i+1], true
			case "--process", "-p":
				process, isProcess = args[i+1], true
			}
		}
		switch {
		case isBundle:
			err = adaptFile(filepath.Join(bundle, "config.json"), granted, func(config map[string]any) any { return config["process"] })
		case isProcess:
			err = adaptFile(process, granted, func(config map[string]any) any { return config })
		}
		if err != nil {
			return err
		}
	}
	path, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("find runc: %w", err)
	}
	if err := syscall.Exec(path, append([]string{"runc"}, args...), os.Environ()); err != nil {
		return fmt.Errorf("execute %s: %w", path, err)
	}
	return nil
}

// adaptFile adapts the process in a JSON file.
func adaptFile(file string, granted uint64, processOf func(map[string]any) any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the container's configuration: %w", err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("parse %s: %w", file, err)
	}
	process, ok := processOf(config).(map[string]any)
	if !ok {
		return nil
	}
	adapt(process, granted)
	if text, err = json.Marshal(config); err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("write the container's configuration: %w", err)
	}
	return nil
}

// adapt removes from a process what requires capabilities that aren't granted. Each bit of granted stands for a
// capability.
func adapt(process map[string]any, granted uint64) {
	if granted&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		delete(process, "rlimits")
		delete(process, "oomScoreAdj")
	}
	sets, ok := process["capabilities"].(map[string]any)
	if !ok {
		return
	}
	for set, names := range sets {
		list, ok := names.([]any)
		if !ok {
			continue
		}
		sets[set] = slices.DeleteFunc(list, func(name any) bool {
			number, known := capabilities[fmt.Sprint(name)]
			return !known || granted&(1<<number) == 0
		})
	}
}

// bounding returns the bounding set of this process's capabilities.
func bounding() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read this process's capabilities: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return 0, fmt.Errorf("parse this process's capabilities: %w", err)
			}
			return set, nil
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no CapBnd")
}

// capabilities maps the names of capabilities to their numbers in linux/capability.h.
var capabilities = func() map[string]uint {
	names := []string{
		"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
		"NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT",
		"SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE",
		"AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
		"PERFMON", "BPF", "CHECKPOINT_RESTORE",
	}
	numbers := map[string]uint{}
	for number, name := range names {
		numbers["CAP_"+name] = uint(number)
	}
	return numbers
}()
