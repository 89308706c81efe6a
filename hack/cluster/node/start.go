// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
)

// The two stages of the node's init. Each is a hidden command of the program.
const (
	StageUnshare = "node-unshare"
	StageInit    = "node-init"
)

// pollMilliseconds is the interval at which waiting for the end of the init checks for
// cancellation.
const pollMilliseconds = 100

// Start creates the node: its cgroups, its init in new namespaces, and its cable. The init
// continues after the caller has ended. arguments make the program run StageUnshare with the
// same settings.
func Start(s component.Settings, program string, arguments []string) (*State, error) {
	if err := createCgroups(s.Cgroup); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(s.Log("node"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the node's log: %w", err)
	}
	defer log.Close()
	// The init waits for a byte from this pipe. At end of file, it exits, so that nothing
	// stays running if the caller dies before it has stored the state.
	ready, signal, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create the pipe to the node's init: %w", err)
	}
	defer signal.Close()
	command := exec.Command(program, append([]string{StageUnshare}, arguments...)...) //nolint:noctx // it outlives the caller
	command.Dir = "/"
	command.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	command.Stdin = ready
	command.Stdout = log
	command.Stderr = log
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	err = command.Start()
	ready.Close()
	if err != nil {
		return nil, fmt.Errorf("start the node's init: %w", err)
	}
	pid := command.Process.Pid
	go command.Wait() //nolint:errcheck // reap it if it ends before the caller
	state, err := observe(pid)
	if err != nil {
		return nil, fmt.Errorf("look at the node's init: %w", err)
	}
	state.Started = time.Now()
	if err := state.save(s.StateDir); err != nil {
		return nil, err
	}
	if err := joinCgroups(s.Cgroup, pid); err != nil {
		return nil, err
	}
	if err := connect(s, pid); err != nil {
		return nil, err
	}
	if _, err := signal.Write([]byte{1}); err != nil {
		return nil, fmt.Errorf("release the node's init: %w", err)
	}
	return state, nil
}

// Unshare is the first stage of the node's init. It waits until it is in its cgroups, makes
// these the root of its cgroup namespace, and executes the second stage. The caller must have
// locked its thread, because the cgroup namespace belongs to the thread.
func Unshare(program string, arguments []string) error {
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the node's cgroups and network: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("create the cgroup namespace: %w", err)
	}
	err := syscall.Exec(program, append([]string{program, StageInit}, arguments...), os.Environ())
	return fmt.Errorf("execute the node's init: %w", err)
}

// Stop stops the node, and removes what the kernel doesn't remove. It also works on a node
// that is only partly there.
func Stop(ctx context.Context, s component.Settings) error {
	if err := kill(ctx, Load(s.StateDir)); err != nil {
		return err
	}
	// Other processes can keep namespaces alive, so they must end before the interface is
	// removed.
	if err := removeCgroups(ctx, s.Cgroup); err != nil {
		return err
	}
	return disconnect(s)
}

// kill kills the node's init, and waits until it has ended, together with all processes in its
// PID namespace.
func kill(ctx context.Context, state *State) error {
	if state == nil {
		return nil
	}
	// Unlike a process id, a pidfd can't refer to another process later.
	fd, err := unix.PidfdOpen(state.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", state.PID, err)
	}
	defer unix.Close(fd)
	if !state.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill the node's init, process %d: %w", state.PID, err)
	}
	for {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, pollMilliseconds)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the node's init, process %d, to end: %w", state.PID, err)
		}
		if ended > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the node's init, process %d, to end: %w", state.PID, context.Cause(ctx))
		}
	}
}
