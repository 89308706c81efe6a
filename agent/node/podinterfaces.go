// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// PodInterfaces finds the interfaces in the network namespaces of pods. It reads
// them from /proc/<pid>/net/dev, which requires no capability. Entering a network
// namespace, or netlink requests for another one, require CAP_SYS_ADMIN or
// CAP_NET_ADMIN. CRI reports at most the interfaces that its network plugin
// created.
type PodInterfaces struct {
	// proc is the path of the host's /proc.
	proc string
	// known contains the interfaces by sandbox, as last read. They are used while
	// the pod has no running process, because the network belongs to the sandbox.
	known *lru.Cache
}

// maxSandboxes is the maximum number of sandboxes whose interfaces are known. It is
// several times the number of a node's pods.
const maxSandboxes = 4096

// NewPodInterfaces returns a PodInterfaces that reads from the host's /proc.
func NewPodInterfaces(proc string) *PodInterfaces {
	return &PodInterfaces{proc: proc, known: lru.New(maxSandboxes)}
}

// Set sets the interfaces of each container with a pod's network namespace. If
// no process of a pod was found so far, as after a restart of the agent while all
// containers of a pod on CRI-O wait to be restarted, the error is [program.ErrUnseen].
func (p *PodInterfaces) Set(containers []program.Container) {
	read, errs := map[string]bool{}, map[string]error{}
	for _, c := range containers {
		if c.HostNetwork || c.Err != nil || read[c.Sandbox] {
			continue
		}
		names, err := p.read(c)
		if err == nil {
			read[c.Sandbox] = true
			p.known.Add(c.Sandbox, names)
		} else if !errors.Is(err, errNoProcess) {
			errs[c.Sandbox] = err
		} else if errs[c.Sandbox] == nil {
			errs[c.Sandbox] = program.ErrUnseen
		}
	}
	for i := range containers {
		c := &containers[i]
		known, found := p.known.Get(c.Sandbox)
		if found {
			c.Interfaces, _ = known.([]string)
		}
		if err := errs[c.Sandbox]; !found || errors.Is(err, errManyInterfaces) && !read[c.Sandbox] {
			c.InterfacesErr = err // the pod has more than were known
		}
	}
}

// read uses the process of the sandbox if the path of the network namespace
// contains its PID. Otherwise, it uses the container's process.
func (p *PodInterfaces) read(c program.Container) ([]string, error) {
	if err := visible(p.proc); err != nil {
		return nil, fmt.Errorf("interfaces of pod %s/%s: %w", c.Namespace, c.Pod, err)
	}
	if holder := c.Holder(); holder != nil {
		if names, err := p.of(*holder); !errors.Is(err, errNoProcess) {
			return names, err
		}
	}
	if c.PID == 0 {
		return nil, errNoProcess
	}
	return p.of(program.Process{PID: c.PID, Of: c.ID})
}

// maxTable is the maximum size of /proc/<pid>/net/dev, in bytes: some 8,000 interfaces. A pod with CAP_NET_ADMIN can add any
// number of them.
const maxTable = 1 << 20

// errManyInterfaces is the error of a pod with more interfaces.
var errManyInterfaces = problem.Errorf(problem.TooManyInterfaces, "too many interfaces in the pod to discover them")

// of returns the interfaces in a process's network namespace.
func (p *PodInterfaces) of(process program.Process) ([]string, error) {
	names, err := interfacesIn(filepath.Join(p.proc, strconv.Itoa(process.PID), "net", "dev"))
	if err != nil {
		return nil, err
	}
	if err := isThere(p.proc, process); err != nil {
		return nil, err
	}
	return names, nil
}

// interfacesIn returns the names in a /proc/net/dev (proc_pid_net(5)). After two
// header lines, there is one line for each interface, with the name before the
// colon.
func interfacesIn(file string) ([]string, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, gone(err)
	}
	defer opened.Close()
	table, err := io.ReadAll(io.LimitReader(opened, maxTable+1))
	if err != nil {
		return nil, gone(err)
	}
	if len(table) > maxTable {
		return nil, errManyInterfaces
	}
	names := []string{}
	for line := range strings.Lines(string(table)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names, nil
}
