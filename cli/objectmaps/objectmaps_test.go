// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package objectmaps

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// The members of an application share maps, which each of them pins, and sections of global variables. An object has the sections that its
// programs use, and not those of others.
func TestList(t *testing.T) {
	member := func(function string, ids ...uint32) v1alpha1.ProgramObject {
		return &v1alpha1.BpfProgram{
			Spec:   v1alpha1.BpfProgramSpec{Maps: map[string]string{"counts": map[string]string{"enter": "/maps/7/counts", "leave": "/maps/8/counts"}[function]}},
			Status: v1alpha1.BpfProgramStatus{Node: "a", Function: function, MapIDs: ids},
		}
	}
	node := &v1alpha1.BpfNode{Status: v1alpha1.BpfNodeStatus{Maps: []v1alpha1.BpfNodeMap{
		{ID: 1, Name: "counts", Pins: []string{"/maps/7/counts", "/maps/8/counts"}},
		{ID: 2, Name: ".bss", Pins: []string{"/var/lib/kubelet/pods/x/volumes/y/mount/bss"}},
		{ID: 3, Name: ".bss"},
		{ID: 4, Name: ".rodata"},
	}}}
	reports := []v1alpha1.ProgramObject{member("enter", 1, 2), member("leave", 1, 2, 4)}
	for nodes, want := range map[*v1alpha1.BpfNode]string{
		node: "[.bss 2  enter,leave] [.rodata 4  leave] [counts 1 /maps/7/counts enter,leave]",
		nil:  "[counts - /maps/7/counts enter,leave]",
	} {
		var got []string
		for _, m := range List(reports, map[string]*v1alpha1.BpfNode{"a": nodes}) {
			id := "-"
			if m.Kernel != nil {
				id = fmt.Sprint(m.Kernel.ID)
			}
			got = append(got, fmt.Sprintf("[%s %s %s %s]", m.Name, id, m.Path, strings.Join(m.Functions, ",")))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}
