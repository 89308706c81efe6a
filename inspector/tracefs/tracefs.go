// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package tracefs reads what programs print with bpf_printk, independently of other
// readers.
//
// The kernel delivers each line in its trace_pipe to only one reader. Therefore, each
// reader here has its own trace instance, with a separate buffer. This requires Linux
// 5.10 or later, where a print is an event (bpf_trace:bpf_trace_printk).
package tracefs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// prefix is the prefix of the names of the inspector's instances. The time of their
// creation follows.
const prefix = "bpfman-inspector-"

// youth is how long the setup of an instance can take. Until then, it isn't in use.
const youth = time.Minute

// Instance is a trace instance that records what programs print, with the kernel's
// stack, which identifies the program.
type Instance struct {
	root *os.Root // tracefs
	name string
	pipe *os.File
	fd   int // the descriptor of pipe; reads through os.File would wait in the runtime's poller
}

// New creates an instance. It mounts tracefs privately, so the node's tracefs doesn't
// have to be mounted, or shared with the container. This requires CAP_SYS_ADMIN. New
// removes the instances of processes that were killed.
func New() (_ *Instance, err error) {
	root, err := mount()
	if err != nil {
		return nil, err
	}
	i := &Instance{root: root, name: "instances/" + prefix + strconv.FormatInt(time.Now().UnixNano(), 36)}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.Close())
		}
	}()
	removeUnused(root)
	if err := root.Mkdir(i.name, 0o700); err != nil {
		return nil, fmt.Errorf("create a trace instance: %w", err)
	}
	if i.pipe, err = root.OpenFile(i.name+"/trace_pipe", os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	i.fd = int(i.pipe.Fd())
	if err := unix.SetNonblock(i.fd, true); err != nil { // File.Fd can have disabled it
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	for _, setting := range []struct{ file, value string }{
		{"options/stacktrace", "1"},
		{"options/sym-addr", "1"},
		{"events/bpf_trace/bpf_trace_printk/enable", "1"},
	} {
		if err := i.set(setting.file, setting.value); err != nil {
			return nil, err
		}
	}
	return i, nil
}

func (i *Instance) set(file, value string) error {
	f, err := i.root.OpenFile(i.name+"/"+file, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("set up the trace: %w", err)
	}
	_, err = f.WriteString(value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set %s of the trace to %s: %w", file, value, err)
	}
	return nil
}

// Close removes the instance.
func (i *Instance) Close() error {
	var errs []error
	if i.pipe != nil {
		errs = append(errs, i.pipe.Close())
	}
	if err := i.root.Remove(i.name); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("remove the trace instance: %w", err))
	}
	return errors.Join(append(errs, i.root.Close())...)
}

// removeUnused removes instances that no process has open. The kernel refuses to remove
// the others.
func removeUnused(root *os.Root) {
	dir, err := root.Open("instances")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		made, isOurs := strings.CutPrefix(name, prefix)
		if at, err := strconv.ParseInt(made, 36, 64); isOurs && err == nil && time.Since(time.Unix(0, at)) > youth {
			_ = root.Remove("instances/" + name)
		}
	}
}

// mount returns the root of a tracefs that isn't mounted on any path.
func mount() (*os.Root, error) {
	fs, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open tracefs: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("configure tracefs: %w", err)
	}
	mounted, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount tracefs: %w", err)
	}
	defer unix.Close(mounted)
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(mounted))
	if err != nil {
		return nil, fmt.Errorf("open the root of tracefs: %w", err)
	}
	return root, nil
}

// pace is how long Read waits for more text.
const pace = 100 * time.Millisecond

// Read reads the available text. If there is none, it waits for a moment, and returns 0.
func (i *Instance) Read(ctx context.Context, buffer []byte) (int, error) {
	n, err := unix.Read(i.fd, buffer)
	switch {
	case n > 0:
		return n, nil
	case err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
		return 0, fmt.Errorf("read the trace: %w", err)
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(pace):
		return 0, nil
	}
}
