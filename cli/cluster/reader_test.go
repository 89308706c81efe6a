// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// An object that can't be decoded doesn't hide the others of its kind.
func TestUndecodableObjects(t *testing.T) {
	const list = `{"apiVersion":"bpfman.io/v1alpha1","kind":"UprobeProgramList","metadata":{"continue":""},"items":[
{"metadata":{"name":"negative"},"spec":{"offset":-1},"status":{"observedGeneration":3}},{"metadata":{"name":"valid"},"spec":{"offset":8}}]}`
	var asked []string
	programs, err := All[v1alpha1.UprobeProgram](t.Context(), answering(t, http.StatusOK, list, &asked), &v1alpha1.UprobeProgramList{})
	if err != nil || len(programs) != 2 {
		t.Fatalf("%d objects, %v", len(programs), err)
	}
	if first := &programs[0]; !strings.Contains(kinds.Undecodable(first), "offset") || first.Status.ObservedGeneration != 3 {
		t.Errorf("%+v", first)
	}
	if second := &programs[1]; kinds.Undecodable(second) != "" || second.Spec.Offset != 8 {
		t.Errorf("%+v", second)
	}
	if want := "/apis/bpfman.io/v1alpha1/uprobeprograms limit 500"; !slices.Equal(asked, []string{want}) {
		t.Errorf("asked %q, want %s", asked, want)
	}
}

// A command about one object doesn't take an empty spec for that of the object: rollout undo would select all nodes.
func TestUndecodableObject(t *testing.T) {
	const object = `{"apiVersion":"bpfman.io/v1alpha1","kind":"UprobeProgram","metadata":{"name":"negative"},"spec":{"offset":-1,"nodeselector":{"matchLabels":{"a":"b"}}}}`
	var asked []string
	got, err := Get(t.Context(), answering(t, http.StatusOK, object, &asked), v1alpha1.BpfNodeOwner{Kind: "UprobeProgram", Name: "negative"})
	if err == nil || !strings.Contains(err.Error(), "offset") {
		t.Errorf("%+v, %v", got, err)
	}
}
