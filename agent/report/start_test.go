// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package report

import (
	"testing"

	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// A program with named interfaces is late for a pod that its plan lacks. If it discovers interfaces, a pod can have none, but that
// isn't known of a pod without a process, as before its first container on CRI-O.
func TestLateForAPodWithoutAttachPoints(t *testing.T) {
	pod := program.Container{Namespace: "acme", Pod: "web", PodUID: "u", Sandbox: "s", NetNS: "/proc/7/ns/net"}
	unseen, another := pod, pod
	unseen.InterfacesErr = program.ErrUnseen
	another.PodUID, another.Sandbox, another.InterfacesErr = "v", "t", program.ErrUnseen
	discovers := v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: new(true)}}
	for name, test := range map[string]struct {
		interfaces v1alpha1.InterfaceSelector
		of         program.Container
		there      []program.Container
		late       int
	}{
		"named":                  {v1alpha1.InterfaceSelector{Interfaces: &[]string{"eth0"}}, pod, nil, 1},
		"none is named":          {v1alpha1.InterfaceSelector{Interfaces: &[]string{}}, pod, []program.Container{pod}, 0},
		"discovered, without it": {discovers, pod, []program.Container{pod}, 0},
		"unseen":                 {discovers, unseen, []program.Container{unseen}, 1},
		"another is unseen":      {discovers, pod, []program.Container{pod, another}, 0},
		"named, and unseen":      {v1alpha1.InterfaceSelector{Interfaces: &[]string{}}, unseen, []program.Container{unseen}, 0},
	} {
		o := &v1alpha1.TcxProgram{}
		o.Spec.BpfFunctionName, o.Spec.Direction, o.Spec.InterfaceSelector = "f", "ingress", test.interfaces
		o.Spec.Containers = &v1alpha1.ContainerSelector{Attachment: v1alpha1.AttachBeforeStart}
		want := plan.Want(ownerOf(t, "TcxProgram", o), program.Node{Interfaces: map[string]program.Interface{}, Containers: test.there}, nil)
		if late := LateFor(test.of, want, loaded(want, 1), Outcome{}); len(late) != test.late {
			t.Errorf("%s: %+v is late", name, late)
		}
	}
}
