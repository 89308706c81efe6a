// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
)

var errNotRunning = errors.New("it doesn't run")

// Signal sends the signal to a component. If that ends the component, it is restarted
// shortly afterwards.
func Signal(s component.Settings, name string, signal syscall.Signal) error {
	process, err := find(s, name)
	if err != nil {
		return fmt.Errorf("send %s of node %s a signal: %w", name, s.Node, err)
	}
	if err := process.Signal(signal); err != nil {
		return fmt.Errorf("send %s of node %s a signal: %w", name, s.Node, err)
	}
	return nil
}

// StopComponent kills a component, even if it is frozen, and prevents its restart.
func StopComponent(ctx context.Context, s component.Settings, name string) error {
	if err := os.WriteFile(s.StopMark(name), nil, 0o600); err != nil {
		return fmt.Errorf("stop %s of node %s: %w", name, s.Node, err)
	}
	// It can have been started just before the mark existed.
	return component.Wait(ctx, func(context.Context) error {
		err := Signal(s, name, unix.SIGKILL)
		if errors.Is(err, errNotRunning) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("%s of node %s still runs", name, s.Node))
	})
}

// StartComponent allows a component to run again, and waits until it does.
func StartComponent(ctx context.Context, s component.Settings, name string) error {
	if err := os.Remove(s.StopMark(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start %s of node %s: %w", name, s.Node, err)
	}
	return component.Wait(ctx, func(context.Context) error {
		_, err := find(s, name)
		return err
	})
}

// find returns the running process of a component: the child of the init with that name.
func find(s component.Settings, name string) (*os.Process, error) {
	state := Load(s.StateDir)
	if !state.Alive() {
		return nil, fmt.Errorf("node %s doesn't run", s.Node)
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, file := range files {
		commandLine, err := os.ReadFile(file)
		if err != nil {
			continue // it ended in the meantime
		}
		if called, _, _ := bytes.Cut(commandLine, []byte{0}); string(called) != name {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		if fields, err := status(pid); err != nil || fields[1] != strconv.Itoa(state.PID) {
			continue
		}
		return os.FindProcess(pid)
	}
	return nil, fmt.Errorf("%s of node %s: %w", name, s.Node, errNotRunning)
}
