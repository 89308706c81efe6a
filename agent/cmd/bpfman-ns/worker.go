// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bpfman/bpfman-operator/internal/uprobe"
)

const (
	// workerName is the worker's argv[0]. The next argument is the container, and those of the helper follow.
	workerName = "bpfman-ns-worker"
	// timeLimit is how long a worker has. The agent waits longer for the daemon.
	timeLimit = 10 * time.Second
	// killed is how long a worker can take to end after SIGKILL.
	killed = time.Second
	// The maximum numbers of workers that don't end, of a container, of the containers of a namespace, and of the node. So one
	// tenant can't have all.
	maxOfContainer = 2
	maxOfNamespace = 8
	maxAbandoned   = 32
	// maxText is the maximum length of a worker's error, in bytes.
	maxText = 4096
)

// supervise runs a worker with the helper's arguments. The file systems of a container can leave a worker waiting in the kernel,
// where not even SIGKILL ends it. The daemon waits for its helper, and for everybody who has its output, so the worker is
// another process with other output.
func supervise(arguments []string) error {
	in := uprobe.Announced(uprobe.Dir)
	waiting, err := abandoned("/proc", os.Getpid())
	if err != nil {
		return err
	}
	if err := refuse(in, waiting); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program of the worker: %w", err)
	}
	worker := exec.Command(self) //nolint:noctx // it is this program, and run ends it
	worker.Args = append([]string{workerName, in.String()}, arguments...)
	return run(worker, timeLimit)
}

// refuse returns an error if too many workers wait, with the containers that they are for.
func refuse(in uprobe.Container, waiting []uprobe.Container) error {
	ofContainer, ofNamespace := 0, 0
	for _, other := range waiting {
		if other.Namespace == in.Namespace {
			ofNamespace++
		}
		if other == in {
			ofContainer++
		}
	}
	switch {
	case ofContainer >= maxOfContainer:
		return fmt.Errorf("%d earlier attempts still wait for a file system of the container that doesn't answer: delete the pod, or restart the node", ofContainer)
	case ofNamespace >= maxOfNamespace:
		return fmt.Errorf("%d earlier attempts still wait for file systems of containers of the namespace that don't answer: delete those pods, or restart the node", ofNamespace)
	case len(waiting) >= maxAbandoned:
		return fmt.Errorf("%d earlier attempts still wait for file systems of containers that don't answer: delete those pods, or restart the node", len(waiting))
	}
	return nil
}

// run runs a worker, and returns what it wrote to its standard error if it fails. After the time limit, it kills the worker, and
// doesn't wait for it to end.
func run(worker *exec.Cmd, limit time.Duration) error {
	said, says, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the worker's output: %w", err)
	}
	defer said.Close()
	worker.Stderr = says
	err = worker.Start()
	_ = says.Close()
	if err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- worker.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(limit):
		_ = worker.Process.Kill()
		select {
		case err = <-ended:
			if err != nil {
				return fmt.Errorf("not done after %s: %w", limit, err)
			}
		case <-time.After(killed):
			return fmt.Errorf("not done after %s, and a file system of the container keeps it from ending", limit)
		}
	}
	if err == nil {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(said, maxText))
	if reason := strings.TrimSpace(string(text)); reason != "" {
		return errors.New(reason)
	}
	return fmt.Errorf("the worker failed: %w", err)
}

// abandoned returns the containers of the other processes of this program in a proc file system. The daemon runs one helper at
// a time, so these are workers that don't end.
func abandoned(proc string, self int) (of []uprobe.Container, err error) {
	own, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(self), "comm"))
	if err != nil {
		return nil, fmt.Errorf("read the name of this process: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, name := range names {
		process := filepath.Dir(name)
		comm, err := os.ReadFile(name)
		if err != nil || string(comm) != string(own) || filepath.Base(process) == strconv.Itoa(self) {
			continue // it has ended, or is another program
		}
		stat, err := os.ReadFile(filepath.Join(process, "stat"))
		// After the name in parentheses, there is the state. The daemon doesn't remove zombies of abandoned workers.
		if _, state, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(state, "Z") {
			of = append(of, containerOf(process))
		}
	}
	return of, nil
}

// containerOf returns the container of the worker with a directory in a proc file system.
func containerOf(process string) uprobe.Container {
	line, _ := os.ReadFile(filepath.Join(process, "cmdline")) // then it is of no known container
	arguments := strings.Split(string(line), "\x00")
	if len(arguments) < 2 || arguments[0] != workerName { //nolint:mnd // the name and the container
		return uprobe.Container{}
	}
	return uprobe.ParseContainer(arguments[1])
}
