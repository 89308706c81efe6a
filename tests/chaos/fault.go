// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"math/rand/v2"
	"slices"

	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/restarts"
)

// Fault is a fault in a cluster. Only a reboot changes what is wanted or loaded.
type Fault struct {
	Name   string
	Weight int
	Draw   func(r *rand.Rand, m *Model) Step
	// Lasts contains the minimum and maximum duration in seconds. 0 means that the fault
	// has no duration.
	Lasts [2]int
	// Apply changes the model, if the fault changes the expected state.
	Apply func(m *Model, s Step)
}

// The programs that faults can affect.
var (
	ours         = []string{node.Agent, node.CSI, node.Inspector, node.Operator, node.Daemon, node.Registrar}
	controlPlane = []string{"kube-apiserver", "etcd", "kube-controller-manager"}
	platform     = slices.Concat([]string{"kubelet", "containerd"}, controlPlane)
)

// victim draws a program on a node. Programs of bpfman are twice as likely as others.
func victim(r *rand.Rand, m *Model) Step {
	all := slices.Concat(ours, ours, platform)
	s := Step{Target: all[r.IntN(len(all))], Node: m.Nodes[r.IntN(len(m.Nodes))]}
	if slices.Contains(controlPlane, s.Target) {
		s.Node = m.Nodes[0]
	}
	return s
}

func somewhere(r *rand.Rand, m *Model) Step { return Step{Node: m.Nodes[r.IntN(len(m.Nodes))]} }

// Faults contains all faults.
var Faults = []Fault{
	{Name: "kill", Weight: 12, Draw: victim},
	{Name: "freeze", Weight: 6, Draw: victim, Lasts: [2]int{1, 8}},
	{Name: "keep down", Weight: 2, Draw: victim, Lasts: [2]int{2, 8}},
	{Name: "API server unreachable from the node", Weight: 3, Draw: somewhere, Lasts: [2]int{2, 15}},
	{Name: "daemon answers slowly", Weight: 3, Draw: somewhere, Lasts: [2]int{3, 12}},
	{Name: "/run full", Weight: 2, Draw: somewhere, Lasts: [2]int{2, 10}},
	{Name: "etcd full", Weight: 2, Draw: func(*rand.Rand, *Model) Step { return Step{} }, Lasts: [2]int{2, 10}},
	{Name: "reboot", Weight: 1, Draw: somewhere, Apply: func(m *Model, s Step) { m.rebooted[s.Node] = true }},
}

// Restarts returns how often the programs of bpfman can restart because of a step. A program that is kept down is
// killed whenever it starts. The operator ends when it can't renew its lease, and the registrar each time that the
// kubelet can't write to the Node what it registers.
func (s Step) Restarts() map[string]int {
	switch {
	case s.Do == "kill" && slices.Contains(ours, s.Target):
		return map[string]int{s.Target: 1}
	case s.Do == "keep down" && slices.Contains(ours, s.Target):
		return map[string]int{s.Target: restarts.Unlimited}
	case s.Do == Reboot, s.Do == "cut off a node":
		all := map[string]int{}
		for _, program := range ours {
			all[program] = restarts.Unlimited
		}
		return all
	case s.Do == "freeze" && (s.Target == node.CSI || s.Target == node.Registrar): // the registrar ends if the kubelet can't register the plugin meanwhile
		return map[string]int{node.Registrar: 1}
	case s.Do == "API server unreachable from the node", s.Do == "etcd full",
		s.Target == node.Operator, slices.Contains(controlPlane, s.Target):
		return map[string]int{node.Operator: 1, node.Registrar: restarts.Unlimited}
	}
	return nil
}

// Reboot is the name of the fault that unloads programs.
const Reboot = "reboot"

func operationOf(name string) *Operation {
	for i := range Operations {
		if Operations[i].Name == name {
			return &Operations[i]
		}
	}
	return nil
}

func faultOf(name string) *Fault {
	for i := range Faults {
		if Faults[i].Name == name {
			return &Faults[i]
		}
	}
	return nil
}

// Apply changes the model as the step changes what is wanted. It returns false if the step
// isn't possible.
func (m *Model) Apply(s Step) bool {
	if s.Settled {
		m.Settle()
		return true
	}
	if fault := faultOf(s.Do); fault != nil {
		if fault.Apply != nil {
			fault.Apply(m, s)
		}
		return true
	}
	operation := operationOf(s.Do)
	return operation != nil && operation.Apply(m, s)
}
