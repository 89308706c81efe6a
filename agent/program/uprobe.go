// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"cmp"
	"strconv"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/userobject"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// uprobe is a program that runs at the entry of a function in a user-space
// binary or library or, as a uretprobe, when it returns. It runs for all
// processes, for one process, or for selected containers. The section in the
// object distinguishes uprobes and uretprobes.
type uprobe struct {
	function
	member     string // uprobe or uretprobe, as in an application
	symbol     string
	offset     uint64
	target     string
	pid        *int32
	containers *containerSelector
	// returns means that the object says that it is a uretprobe.
	returns bool
}

// ReturnProbe implements [ReturnProbe].
func (u uprobe) ReturnProbe() string {
	return returnProbe("uretprobe", u.returns || u.member == "uretprobe")
}

func uprobeOf(member string, i *v1alpha1.UprobeProgramInfo, namespaced bool) Spec {
	return uprobe{
		functionOf(gobpfman.BpfmanProgramType_UPROBE, i.BpfProgramCommon), member, i.FunctionName, i.Offset, i.Target, pidOf(i.Pid), containersOf(i.Containers, namespaced), i.RetProbe,
	}
}

// pidOf returns nil for all processes if pid is 0, because upstream's Go types
// can't omit the field.
func pidOf(pid int32) *int32 {
	if pid == 0 {
		return nil
	}
	return &pid
}

func (u uprobe) Incomplete() error {
	return cmp.Or(u.function.Incomplete(), u.unlessLoadedOnly("target", u.target)) //nolint:wrapcheck // both are this package's
}

func (u uprobe) ID() string { return userobject.MemberID(u.member, u.symbol, u.name) }

func (u uprobe) Needs() Needs { return Needs{Containers: u.containers != nil} }

func (u uprobe) AttachPoints(n Node) ([]AttachPoint, error) {
	name := u.symbol + plus(u.offset) + " in " + u.target
	if u.symbol == "" {
		name = u.target + plus(u.offset)
	}
	if u.pid != nil {
		name += " of process " + strconv.Itoa(int(*u.pid))
	}
	if u.containers == nil {
		point := newAttachPoint(name, u.info(nil), "")
		if point.Lack == nil && targetMayBlock(u.target) {
			point.Lack = problem.Errorf(problem.FileNotRegular, "target %s is not a regular file: the daemon would never finish reading it", u.target)
		}
		point.Withdrawn = point.Lack != nil
		return []AttachPoint{point}, nil
	}

	containers, err := u.containers.running(n)
	var points []AttachPoint
	for _, c := range containers {
		pid := int32(c.PID) //nolint:gosec // PIDs are smaller than 2^22
		point := newAttachPoint(name+v1alpha1.OfContainer+c.path(), u.info(&pid), c.ID)
		point.Process, point.In = &Process{PID: c.PID, Of: c.ID, Namespace: c.Namespace}, c.ID
		point.Lack = cmp.Or(point.Lack, u.refusal(n, c))
		point.Withdrawn = point.Lack != nil
		points = append(points, point)
	}
	return points, err
}

// refusal returns why the uprobe can't be attached in a container, or nil. The kernel puts a
// uprobe on the file, and containers of one image share its files. With the PID namespace of
// the node, a target such as /proc/1/root/bin/sh is a file of another container.
//
// A pid can't limit a uprobe to a container's processes: the kernel looks it up in the PID
// namespace of the daemon.
func (u uprobe) refusal(n Node, c Container) error {
	switch {
	case u.pid != nil:
		return problem.Errorf(problem.UprobeForProcess, "bpfman v0.6 can't limit a uprobe in a container to a process: remove pid")
	case u.containers.tenant && c.HostPID:
		return problem.Errorf(problem.HostPID, "the pod uses the PID namespace of the node (hostPID), where namespaced uprobes aren't attached")
	case u.containers.tenant && !n.allowsUprobes(u.containers.Namespace):
		return problem.Errorf(problem.UprobeNotAllowed, "a uprobe runs for every process of the node with this file, also in other namespaces, "+
			"and bpfman.uprobe.namespaces of the ConfigMap bpfman-config doesn't have this namespace")
	}
	return nil
}

// choices returns messages about when the uprobe runs.
func (u uprobe) choices() []problem.Note {
	var out []problem.Note
	if u.pid != nil && u.containers == nil {
		out = append(out, problem.Notef(problem.FieldWithoutEffect, "bpfman v0.6 ignores pid: the uprobe runs for every process with this file"))
	}
	if u.containers != nil && u.containers.tenant {
		out = append(out, problem.Notef(problem.UprobeForAllProcesses, "the uprobe runs for every process of the node with this file, also in other namespaces"))
	}
	return out
}

func (u uprobe) info(containerPID *int32) *gobpfman.AttachInfo {
	info := &gobpfman.UprobeAttachInfo{Offset: u.offset, Target: u.target, Pid: u.pid, ContainerPid: containerPID}
	if u.symbol != "" {
		info.FnName = &u.symbol
	}
	return &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_UprobeAttachInfo{UprobeAttachInfo: info}}
}
