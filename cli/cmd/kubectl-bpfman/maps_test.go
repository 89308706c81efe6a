// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestMaps(t *testing.T) {
	inspected := &v1alpha1.BpfNode{ObjectMeta: named("", "fine-1")}
	inspected.Status.Maps = []v1alpha1.BpfNodeMap{
		{ID: 3, Name: "other", Type: "hash", Pins: []string{"/sys/fs/bpf/other"}},
		{ID: 61, Name: "tcx_stats_map", Type: "percpu_array", KeySize: 4, ValueSize: 16, MaxEntries: 1, MemoryBytes: 312, Pins: []string{"/else", "/run/bpfman/fs/maps/fine-1/tcx_stats_map"}},
	}
	connect := clusterOf(append(everything(), inspected)...)
	for file, args := range map[string][]string{
		"table.txt": {"tcxprogram/counter"}, "wide.txt": {"tcxprog", "counter", "-o", "wide", "--node", "fine-1,fine-2"},
		"list.json": {"tcxprogram/counter", "-o", "json", "--node", "fine-1"}, "none.txt": {"tcxprogram/absent"},
	} {
		t.Run(file, func(t *testing.T) {
			out, messages, err := execute(t, connect, append([]string{"maps"}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, out+"---\n"+messages, "maps/"+file)
		})
	}
	if _, _, err := execute(t, connect, "maps", "counter"); err == nil || !strings.Contains(err.Error(), "specify one as KIND/NAME") {
		t.Errorf("error %v", err)
	}
}

// The members of an application share maps. Each map is listed once, with all functions that use
// it.
func TestMapsOfApplications(t *testing.T) {
	objects := namespaced()
	for _, o := range objects {
		if r, ok := o.(*v1alpha1.BpfNsProgram); ok {
			r.Spec.Maps = map[string]string{"shared": "/run/bpfman/fs/maps/shared"}
		}
	}
	out, _, err := execute(t, clusterOf(objects...), "maps", "bpfnsapplication/probes", "-o", "wide", "--no-headers")
	if err != nil || strings.Count(out, "enter, leave") != 2 || strings.Count(out, "\n") != 2 {
		t.Errorf("printed %s, %v", out, err)
	}
}
