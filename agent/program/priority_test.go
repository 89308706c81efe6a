// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// networkPrograms returns one program of each type that has a priority, for all pods of the namespace acme.
func networkPrograms(priority int32, namespaced bool) map[string]Spec {
	on := interfaces("eth0")
	if !namespaced {
		pods := &v1alpha1.ContainerSelector{Namespace: "acme", Pods: app("web")}
		return map[string]Spec{
			"xdp": xdpOf(&v1alpha1.XdpProgramInfo{InterfaceSelector: on, Containers: pods, Priority: priority}, false),
			"tc":  tcOf(&v1alpha1.TcProgramInfo{InterfaceSelector: on, Containers: pods, Priority: priority}, false),
			"tcx": tcxOf(&v1alpha1.TcxProgramInfo{InterfaceSelector: on, Containers: pods, Priority: priority}, false),
		}
	}
	pods := v1alpha1.ContainerNsSelector{Pods: app("web")}
	return map[string]Spec{
		"xdp": tenant("acme", &v1alpha1.XdpNsProgramInfo{InterfaceSelector: on, Containers: &pods, Priority: priority}),
		"tc":  tenant("acme", &v1alpha1.TcNsProgramInfo{InterfaceSelector: on, Containers: &pods, Priority: priority}),
		"tcx": tenant("acme", &v1alpha1.TcxNsProgramInfo{InterfaceSelector: on, Containers: &pods, Priority: priority}),
	}
}

// A tenant can't run programs before those of the administrator unless it is told, or not at all.
func TestReservedPriorities(t *testing.T) {
	for _, test := range []struct {
		priority           int32
		namespaced         bool
		reserved           Reserved
		refused, mentioned bool
	}{
		{99, true, Reserved{Below: 100, Enforced: true}, true, true},
		{0, true, Reserved{Below: 100, Enforced: true}, true, true},
		{100, true, Reserved{Below: 100, Enforced: true}, false, false},
		{99, true, Reserved{Below: 100}, false, true},
		{100, true, Reserved{Below: 100}, false, false},
		{0, true, Reserved{Enforced: true}, false, false},
		{0, false, Reserved{Below: 100, Enforced: true}, false, false},
	} {
		for kind, spec := range networkPrograms(test.priority, test.namespaced) {
			what := fmt.Sprintf("%s, %+v", kind, test)
			n := Node{Containers: []Container{web("u1", as)}, Reserved: test.reserved}
			points, err := spec.AttachPoints(n)
			if err != nil || len(points) != 1 {
				t.Fatalf("%s: %+v, %v", what, points, err)
			}
			told := strings.Contains(text(points[0].Lack), fmt.Sprintf("priority %d is reserved for cluster-scoped programs: set one from 100 to 1000", test.priority))
			if told != test.refused || points[0].Withdrawn != test.refused || !test.refused && points[0].Lack != nil {
				t.Errorf("%s: withdrawn %t, %v", what, points[0].Withdrawn, points[0].Lack)
			}
			notes := ""
			for _, note := range Notes(spec, n) {
				notes += note.Text
			}
			if strings.Contains(notes, "runs before those with a higher number: set a priority from 100 to 1000") != test.mentioned || !test.mentioned && notes != "" {
				t.Errorf("%s: %q", what, notes)
			}
		}
	}
	if notes := Notes(uprobe{}, Node{Reserved: Reserved{Below: 100}}); notes != nil {
		t.Errorf("a uprobe has no priority: %q", notes)
	}
}
