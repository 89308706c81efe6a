// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// nodeKind is separate from the kinds about programs, because it has no spec, and no shorter name.
var nodeKind = kind{v1alpha1.NodeKind.Name, v1alpha1.NodeKind.GroupVersionResource(), v1alpha1.NodeKind.Namespaced}

func TestBpfNodeColumns(t *testing.T) {
	t.Parallel()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": nodeKind.name}}
	o.SetName("columns")
	o = create(t, nodeKind, o)
	o.Object["status"] = decode(t, `{"programcount":40,"bpfmancount":8,"othercount":32,"conflictcount":1,"kernelversion":"6.12.0","daemon":"bpfman (Go)","mapcount":30,"linkcount":9}`)
	if _, err := client(t, nodeKind).UpdateStatus(deadline(t), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	headings, cells := shownByKubectl(t, nodeKind, "columns")
	if headings != "Name Programs Bpfman Others Conflicts Age | Kernel Daemon Maps Links" || cells != "40 8 32 1 | 6.12.0 bpfman (Go) 30 9" {
		t.Errorf("got %s\n    %s", headings, cells)
	}
}
