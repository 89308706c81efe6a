// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
)

// restartDelay prevents a component that can't run from using all CPU time.
const restartDelay = time.Second

// stopPoll is the interval at which to check whether a stopped component can start again.
const stopPoll = 100 * time.Millisecond

// supervisor starts the components. One loop reaps all children, including orphans, and
// notifies it of their end.
type supervisor struct {
	mutex   sync.Mutex
	waiting map[int]chan<- unix.WaitStatus
}

func newSupervisor() *supervisor {
	return &supervisor{waiting: map[int]chan<- unix.WaitStatus{}}
}

// keepRunning runs the process, and restarts it when it ends, except while its stop mark
// exists.
func (v *supervisor) keepRunning(p component.Process, s component.Settings) {
	for {
		if _, err := os.Stat(s.StopMark(p.Name)); err == nil {
			time.Sleep(stopPoll) //nolint:forbidigo // another process removes the mark
			continue
		}
		ended, err := v.start(p, s.Log(p.Name))
		if err != nil {
			log.Printf("starting %s: %v", p.Name, err)
		} else {
			status := <-ended
			log.Printf("%s ended: exit status %d, signal %d", p.Name, status.ExitStatus(), status.Signal())
		}
		time.Sleep(restartDelay) //nolint:forbidigo // there is no event to wait for
	}
}

// start starts the process. When the process ends, the channel receives its status.
func (v *supervisor) start(p component.Process, logFile string) (<-chan unix.WaitStatus, error) {
	path := p.Path
	if path == "" {
		var err error
		if path, err = exec.LookPath(p.Name); err != nil {
			return nil, fmt.Errorf("find %s: %w", p.Name, err)
		}
	}
	output, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer output.Close()
	input, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer input.Close()

	// Held during the fork, so that the child isn't reaped before it is known.
	v.mutex.Lock()
	defer v.mutex.Unlock()
	pid, err := syscall.ForkExec(path, append([]string{p.Name}, p.Args...), &syscall.ProcAttr{
		Dir:   "/",
		Env:   os.Environ(),
		Files: []uintptr{input.Fd(), output.Fd(), output.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("execute %s: %w", path, err)
	}
	ended := make(chan unix.WaitStatus, 1)
	v.waiting[pid] = ended
	return ended, nil
}

// reap reaps children forever.
func (v *supervisor) reap() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid == 0:
			<-signals
		default:
			v.mutex.Lock()
			if ended, ok := v.waiting[pid]; ok {
				ended <- status
				delete(v.waiting, pid)
			}
			v.mutex.Unlock()
		}
	}
}
