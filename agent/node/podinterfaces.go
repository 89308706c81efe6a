// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// PodInterfaces tells the interfaces in the network namespaces of pods. It reads
// them from /proc/<pid>/net/dev, which takes no capability: entering a namespace,
// or asking netlink for another's interfaces, takes CAP_SYS_ADMIN or
// CAP_NET_ADMIN, and CRI tells those alone that its network plugin made, if any.
type PodInterfaces struct {
	// Proc is where the host's /proc is seen.
	Proc string

	mu sync.Mutex
	// known is what was read last, by sandbox. It stands in where no process of
	// the pod runs: the network stays with the sandbox.
	known map[string][]string
}

// Tell sets the interfaces of each container that has a network namespace of its
// pod. Those of a pod without processes, now or before, aren't known yet, which
// isn't an error: the pod gets them told with its next process.
func (p *PodInterfaces) Tell(containers []program.Container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, errs := map[string][]string{}, map[string]error{}
	for _, c := range containers {
		if c.HostNetwork || known[c.Sandbox] != nil {
			continue
		}
		names, err := p.read(c)
		if err == nil {
			known[c.Sandbox] = names
		} else if !errors.Is(err, errNoProcess) {
			errs[c.Sandbox] = err
		}
	}
	for i := range containers {
		c := &containers[i]
		if before := p.known[c.Sandbox]; known[c.Sandbox] == nil && before != nil {
			known[c.Sandbox] = before
		}
		if c.Interfaces = known[c.Sandbox]; c.Interfaces == nil {
			c.InterfacesErr = errs[c.Sandbox]
		}
	}
	p.known = known
}

// errNoProcess tells that there is no process to look by.
var errNoProcess = errors.New("no process")

// read looks by the process that holds the sandbox, where the namespace is named
// by it, else by the container's.
func (p *PodInterfaces) read(c program.Container) ([]string, error) {
	if _, err := os.Stat(filepath.Join(p.Proc, "1")); err != nil {
		return nil, fmt.Errorf("interfaces of pod %s/%s: the host's processes aren't visible (hidepid?): %w", c.Namespace, c.Pod, err)
	}
	if holder, ok := strings.CutPrefix(c.NetNS, "/proc/"); ok {
		pid, _, _ := strings.Cut(holder, "/")
		if names, err := p.of(pid, c.Sandbox); !errors.Is(err, errNoProcess) {
			return names, err
		}
	}
	if c.PID == 0 {
		return nil, errNoProcess
	}
	return p.of(strconv.Itoa(c.PID), c.ID)
}

// of reads the interfaces that a process sees. The process must belong to the
// container or sandbox of this id, as the name of its control group says: the
// number of one that has ended may be another's by now.
func (p *PodInterfaces) of(pid, id string) ([]string, error) {
	dir := filepath.Join(p.Proc, pid)
	table, err := os.ReadFile(filepath.Join(dir, "net", "dev"))
	if err != nil {
		return nil, gone(err)
	}
	groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return nil, gone(err)
	}
	if !strings.Contains(string(groups), id) {
		return nil, errNoProcess
	}
	return interfacesIn(string(table)), nil
}

// gone is errNoProcess for what files of a process that has ended answer.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return errNoProcess
	}
	return fmt.Errorf("interfaces of a pod: %w", err)
}

// interfacesIn lists the names in /proc/net/dev (proc_pid_net(5)): two lines of
// headings, then one for each interface, its name before the colon.
func interfacesIn(table string) []string {
	names := []string{}
	for line := range strings.Lines(table) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}
