// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package report makes a BpfNode's status of what was found on a node. It is pure:
// it asks nobody, and the same facts give the same status.
package report

import (
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/bpffs"
	"github.com/bpfman/bpfman-operator/inspector/cgroup"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/network"
	"github.com/bpfman/bpfman-operator/inspector/pods"
	"github.com/bpfman/bpfman-operator/inspector/process"
)

// Facts are what was found on a node.
type Facts struct {
	KernelVersion, BootID string
	// Boot is when the node booted.
	Boot time.Time

	// Of the kernel, each by id.
	Programs []kernel.Program
	Maps     []kernel.Map
	Links    []kernel.Link
	// Contained are the programs that maps have in them.
	Contained []Contained

	// What has programs, with links and without.
	Hooks       []network.Hook
	Cgroups     map[uint64]string
	CgroupHooks []cgroup.Hook
	PerfEvents  []PerfEvent
	// Tracepoints are the groups of tracepoints, by name.
	Tracepoints map[string]string

	// Who has eBPF open or pinned.
	Processes []process.Process
	Pins      []bpffs.Pin
	// NetNS are the network namespaces; the first is the host's.
	NetNS []process.Namespace
	// Names are those of pods.
	Names pods.Names
	// Owners are of the programs that bpfman loaded, nil where there is none.
	Owners map[uint32]*v1alpha1.BpfNodeOwner
	// Last are the processes that were last seen to hold a program.
	Last map[uint32][]v1alpha1.BpfNodeHolder
}

// Contained is a program in a map.
type Contained struct{ Map, Program uint32 }

// PerfEvent is a perf event with a program that it has without a link.
type PerfEvent struct {
	Program uint32
	kernel.Attachment
}
