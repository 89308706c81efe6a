// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package conflict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// hookOf returns the name of a network hook in BpfPrograms, such as "eth0", "eth0
// ingress", or "eth0 ingress in pod acme/web-0".
func hookOf(point v1alpha1.BpfNodeAttachPoint) string {
	hook := point.Interface
	if _, direction, directed := strings.Cut(point.Type, "/"); directed {
		hook += " " + direction
	}
	if point.NetNs != "" {
		hook += v1alpha1.InPod + point.Namespace + "/" + point.Pod
	}
	return hook
}

// place describes the interface.
func place(point v1alpha1.BpfNodeAttachPoint) string {
	switch {
	case point.Pod != "":
		return fmt.Sprintf("interface %s in pod %s/%s", point.Interface, point.Namespace, point.Pod)
	case point.NetNs != "":
		return fmt.Sprintf("interface %s in network namespace %s", point.Interface, point.NetNs)
	}
	return "interface " + point.Interface
}

// maxName is the maximum length of a program's name in a message. Names from BTF can be
// longer.
const maxName = 128

func describe(program *v1alpha1.BpfNodeProgram) string {
	name := program.Name
	if name == "" {
		return fmt.Sprintf("program %d without a name", program.ID)
	}
	return fmt.Sprintf("program %s (%d)", short(name), program.ID)
}

func short(text string) string {
	if len(text) <= maxName {
		return text
	}
	return strings.ToValidUTF8(text[:maxName], "") + "…"
}

// heldBy describes who holds a program: the processes by name, because their ids change
// more often, or else the pins.
func heldBy(program *v1alpha1.BpfNodeProgram) string {
	if who := Holder(program); who != "" {
		return "held by " + who
	}
	return "held by an unknown process"
}

// Holder returns who holds a program, or "" if it isn't known: a running process, or
// else a pin, or else the last known process.
func Holder(program *v1alpha1.BpfNodeProgram) string {
	for _, find := range []func(v1alpha1.BpfNodeHolder) bool{
		func(h v1alpha1.BpfNodeHolder) bool { return h.PID != 0 && !h.Gone },
		func(h v1alpha1.BpfNodeHolder) bool { return h.Path != "" },
		func(v1alpha1.BpfNodeHolder) bool { return true },
	} {
		if i := slices.IndexFunc(program.Holders, find); i >= 0 {
			return holder(program.Holders[i])
		}
	}
	return ""
}

func holder(h v1alpha1.BpfNodeHolder) string {
	who := "process " + short(h.Process)
	if h.Path != "" {
		who = "the pin " + short(h.Path)
	}
	switch {
	case h.Pod != "":
		who += " of pod " + h.Namespace + "/" + h.Pod
	case h.Unit != "":
		who += " of " + short(h.Unit)
	}
	if h.Gone {
		who += ", which has ended"
	}
	return who
}

// mostHeldBy returns who holds the most of several programs.
func mostHeldBy(programs []*v1alpha1.BpfNodeProgram) string {
	counts, most := map[string]int{}, ""
	for _, program := range programs {
		who := heldBy(program)
		counts[who]++
		if counts[who] > counts[most] || counts[who] == counts[most] && who < most {
			most = who
		}
	}
	return most
}
