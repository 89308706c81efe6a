// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package report creates a BpfNode's status from the facts that were found on a node. It
// has no side effects, and the same facts result in the same status.
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

// Facts are the facts that were found on a node.
type Facts struct {
	KernelVersion, BootID string
	// Daemon is which bpfman daemon the node runs, or "" if that is unknown.
	Daemon string
	// Boot is the time when the node booted.
	Boot time.Time

	// Objects in the kernel, each sorted by id.
	Programs []kernel.Program
	Maps     []kernel.Map
	Links    []kernel.Link
	// Contained are the programs in maps.
	Contained []Contained

	// Hooks with programs, with and without links.
	Hooks       []network.Hook
	Cgroups     map[uint64]string
	CgroupHooks []cgroup.Hook
	PerfEvents  []PerfEvent
	// Tracepoints contains the groups of tracepoints, by name.
	Tracepoints map[string]string

	// Holders of eBPF objects: processes that have them open, and pins.
	Processes []process.Process
	Pins      []bpffs.Pin
	// NetNS are the network namespaces. The first is the host's.
	NetNS []process.Namespace
	// Names are the names of pods and containers.
	Names pods.Names
	// Owners are the owners of the programs that bpfman loaded, or nil if a program has
	// none.
	Owners map[uint32]*v1alpha1.BpfNodeOwner
	// Last are the last known processes that held a program.
	Last map[uint32][]v1alpha1.BpfNodeHolder
}

// Contained is a program in a map.
type Contained struct{ Map, Program uint32 }

// PerfEvent is a perf event with a program that is attached without a link.
type PerfEvent struct {
	Program uint32
	kernel.Attachment
}
