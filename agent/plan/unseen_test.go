// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plan

import (
	"slices"
	"testing"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// After a restart of the agent, the pods of CRI-O whose containers wait for a restart have no process from
// which their interfaces could be read. Their links stay.
func TestLinksInPodsWithoutAProcessStay(t *testing.T) {
	object := &v1alpha1.TcxProgram{}
	object.Name, object.UID = "flows", "uid-1"
	path, yes := "/flows.o", true
	object.Spec.ByteCode.Path = &path
	object.Spec.BpfFunctionName, object.Spec.Direction = "flows", "ingress"
	object.Spec.InterfaceSelector.InterfacesDiscoveryConfig = &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: &yes}
	object.Spec.Containers = &v1alpha1.ContainerSelector{}
	owner := program.OwnerOf("TcxProgram", object)
	pod := func(uid string, interfaces ...string) program.Container {
		return program.Container{
			Namespace: "acme", Pod: uid, PodUID: uid, Sandbox: "s-" + uid, NetNS: "/var/run/netns/" + uid, Name: "web", ID: "c-" + uid,
			Interfaces: interfaces,
		}
	}
	unseen := pod("crashes")
	unseen.InterfacesErr = program.ErrUnseen
	i, _ := inventory(t)
	for _, step := range []struct {
		what       string
		containers []program.Container
		want       []string
	}{
		{"seen", []program.Container{pod("crashes", "eth0")}, []string{"load flows", "attach flows eth0 ingress in pod acme/crashes"}},
		{"unseen", []program.Container{unseen}, nil},
		{"unseen, and a new pod", []program.Container{unseen, pod("new", "eth0")}, []string{"attach flows eth0 ingress in pod acme/new"}},
		{"unseen, and the new pod is gone", []program.Container{unseen}, nil},
		{"seen again", []program.Container{pod("crashes", "eth0")}, []string{"detach flows"}},
		{"gone", nil, []string{"detach flows"}},
	} {
		p := Want(owner, program.Node{Containers: step.containers}, nil)
		if err := p.Problems(); err != nil || p.Loads[0].Programs[0].Unseen && p.Loads[0].Programs[0].Idle != "" {
			t.Errorf("%s: %v, %+v", step.what, err, p.Loads[0].Programs)
		}
		if got := settle(t, i, owner, p); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}
