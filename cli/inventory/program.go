// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package inventory describes each eBPF program of a cluster: its owner, where it is attached, and which programs
// run before and after it. It only evaluates the BpfNodes that inspectors write. It doesn't read or print anything
// itself.
package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Program is a program on a node.
type Program struct {
	Node                    string `json:"node"`
	v1alpha1.BpfNodeProgram `json:",inline"`
	// Unknown is why it isn't known where the program is attached. It is empty if that is known.
	Unknown string `json:"unknown,omitempty"`
	// dispatchers are bpfman's dispatchers on the node, by id.
	dispatchers map[uint32]v1alpha1.BpfNodeProgram `json:"-"`
}

// Programs returns the programs of a node.
func Programs(node *v1alpha1.BpfNode) []Program {
	dispatchers := map[uint32]v1alpha1.BpfNodeProgram{}
	out := make([]Program, 0, len(node.Status.Programs))
	for _, p := range node.Status.Programs {
		if p.Bpfman && p.Owner == nil {
			dispatchers[p.ID] = p
		}
		out = append(out, Program{node.Name, p, unknown(p), dispatchers})
	}
	return out
}

// Compare compares programs by node and id.
func Compare(a, b Program) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
}

// unknown returns why it isn't known where a program is attached. Programs of others can be attached to a perf event of
// their process, as bpftrace and perf do. Only processes of the host's PID namespace can see where.
func unknown(p v1alpha1.BpfNodeProgram) string {
	if len(p.AttachPoints) == 0 && !p.Bpfman && slices.Contains([]string{"kprobe", "tracepoint", "perf_event"}, p.Type) {
		return "by a perf event"
	}
	return ""
}

// Attached describes where a program is attached. If a dispatcher of bpfman runs the program, this is where the
// dispatcher is attached. If it isn't known, this says why.
func (p Program) Attached() []string {
	if p.Unknown != "" {
		return []string{"unknown: " + p.Unknown}
	}
	var out []string
	for _, a := range p.points() {
		out = append(out, Where(a))
	}
	return out
}

// points returns where a program is attached, or where the dispatcher is that runs it.
func (p Program) points() []v1alpha1.BpfNodeAttachPoint {
	var out []v1alpha1.BpfNodeAttachPoint
	for _, a := range p.AttachPoints {
		if dispatcher, ok := p.dispatchers[a.TargetProgramID]; a.Type == replaces && ok {
			out = append(out, dispatcher.AttachPoints...)
		} else {
			out = append(out, a)
		}
	}
	return out
}

// Routine reports whether a program is one of those that container runtimes and systemd attach to each container
// and unit to control access to devices. There are as many as containers, and users rarely look for them.
func Routine(p v1alpha1.BpfNodeProgram) bool { return p.Type == "cgroup_device" && !p.Bpfman }

// OwnerOf returns the object of bpfman that a program was loaded for. Without an object, it returns bpfman if bpfman
// loaded the program, or else its holder.
func OwnerOf(p v1alpha1.BpfNodeProgram) string {
	switch {
	case p.Owner != nil:
		return p.Owner.String()
	case p.Bpfman:
		return "bpfman"
	}
	h, found := KnownHolder(p)
	if !found {
		return ""
	}
	return Holder(h)
}

// KnownHolder returns the holder of a program that says the most about its owner.
func KnownHolder(p v1alpha1.BpfNodeProgram) (h v1alpha1.BpfNodeHolder, found bool) {
	if len(p.Holders) == 0 {
		return h, false
	}
	return slices.MinFunc(p.Holders, func(a, b v1alpha1.BpfNodeHolder) int { return cmp.Compare(obscurity(a), obscurity(b)) }), true
}

// obscurity ranks holders. Processes rank before files, and running processes before those that have ended.
func obscurity(h v1alpha1.BpfNodeHolder) int {
	switch {
	case h.Process != "" && !h.Gone:
		return 0
	case h.Pod != "":
		return 1
	case h.Process != "":
		return 2
	default:
		return 3
	}
}

// Holder describes a holder: a container of a pod, a systemd unit, a process, or a file.
func Holder(h v1alpha1.BpfNodeHolder) string {
	var who string
	switch {
	case h.Pod != "":
		who = "pod " + h.Namespace + "/" + h.Pod
		if h.Container != "" {
			who += " (" + h.Container + ")"
		}
	case h.Unit != "":
		who = h.Unit
	case h.Process != "":
		who = fmt.Sprintf("%s[%d]", h.Process, h.PID)
	default:
		who = h.Path
	}
	if h.Gone {
		who += ", gone"
	}
	return who
}

// Where describes an attach point, such as tcx/ingress eth0 2nd.
func Where(a v1alpha1.BpfNodeAttachPoint) string {
	words := []string{a.Type}
	if a.Mode != "" && a.Mode != "native" {
		words[0] += "(" + a.Mode + ")"
	}
	switch {
	case a.Pod != "":
		words = append(words, a.Namespace+"/"+a.Pod+":"+cmp.Or(a.Interface, a.Target))
	case a.NetNs != "":
		words = append(words, "net:["+a.NetNs+"]:"+cmp.Or(a.Interface, a.Target))
	case a.Interface != "":
		words = append(words, a.Interface)
	case a.Target != "":
		words = append(words, a.Target)
	}
	if a.TargetProgramID != 0 {
		words = append(words, "of program "+strconv.FormatUint(uint64(a.TargetProgramID), 10))
	}
	return strings.Join(words, " ")
}
