// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// An agent writes the status of a report after it has created the report. Until then, the label says which node it is about.
func TestReportsWithoutStatus(t *testing.T) {
	report := func(name, label, node string) *v1alpha1.BpfProgram {
		return &v1alpha1.BpfProgram{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				v1alpha1.LabelOwnedByProgram: "stats", v1alpha1.LabelOwnerKind: "TcxProgram", v1alpha1.LabelHostname: v1alpha1.LabelValue(label),
			}},
			Status: v1alpha1.BpfProgramStatus{Node: node},
		}
	}
	long := strings.Repeat("long-name.", 12) + "example"
	c := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(report("1", "c", "c"), report("2", "b", ""), report("3", long, long), report("4", long, "")).Build()
	found, err := Reports(t.Context(), c, v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "stats"})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, r := range found {
		nodes = append(nodes, r.GetStatus().Node)
	}
	// The label of a long name only begins like it.
	if want := []string{"b", "c", long}; !slices.Equal(nodes, want) {
		t.Errorf("reports of nodes %q", nodes)
	}
}
