// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestMaps(t *testing.T) {
	const volume = "/var/lib/kubelet/pods/77f0-3/volumes/kubernetes.io~csi/maps/mount/tcx_stats_map"
	objects := everything()
	for _, o := range objects {
		if inspected, ok := o.(*v1alpha1.BpfNode); ok {
			inspected.Status.Maps = []v1alpha1.BpfNodeMap{
				{ID: 3, Name: "other", Type: "hash", MemoryBytes: 4096, Pins: []string{"/sys/fs/bpf/other"}},
				{ID: 61, Name: "tcx_stats_map", Type: "percpu_array", KeySize: 4, ValueSize: 16, MaxEntries: 1, MemoryBytes: 312, Pins: []string{"/else", "/run/bpfman/fs/maps/fine-1/tcx_stats_map", volume}},
			}
			inspected.Status.Programs = []v1alpha1.BpfNodeProgram{{ID: 12, Name: "tcx_stats", Type: "sched_cls", MapIDs: []uint32{61}}}
		}
	}
	objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "reader", UID: "77f0-3"}})
	connect := clusterOf(objects...)
	for file, args := range map[string][]string{
		"node.txt": {"--node", "fine-1"}, "node-wide.txt": {"--node", "fine-1", "-o", "wide"}, "node.json": {"--node", "fine-1", "-o", "json"},
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
	refuses(t, connect, "maps", map[string][]string{
		"no object of bpfman is named absent":        {"absent"},
		"specify one as KIND/NAME":                   {"tcxprogram/"},
		"specify an object, such as tcxprogram/coun": nil,
	})
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
