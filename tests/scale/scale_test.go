// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// The replayed watches of a node are those of the recorded node, with the node's own name.
func TestRecordedWatchesOfAnotherNode(t *testing.T) {
	var r recording
	transport := r.wrap(roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil }))
	for _, at := range []string{
		"https://server/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-00001&resourceVersion=1&watch=true",
		"https://server/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-00001&resourceVersion=2&watch=true",
		"https://server/apis/bpfman.io/v1alpha1/xdpprograms?limit=500",
		"https://server/apis/bpfman.io/v1alpha1/tcprograms?watch=true",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transport.RoundTrip(request); err != nil { //nolint:bodyclose // there is none
			t.Fatal(err)
		}
	}
	watches := r.of("node-00001")("node-00207")
	if got, want := resources(watches), []string{"pods (spec.nodeName=node-00207)", "tcprograms"}; !slices.Equal(got, want) {
		t.Fatalf("watches %q, not %q", got, want)
	}
	want := url.Values{"fieldSelector": {"spec.nodeName=node-00207"}, "resourceVersion": {"2"}, "watch": {"true"}}
	if got := watches[0].query.Encode(); got != want.Encode() {
		t.Errorf("query %s, not %s", got, want.Encode())
	}
}

// Reports in etcd differ only in the name, the node, and the UID, at any position.
func TestStoredReportOfAnotherNode(t *testing.T) {
	object := declared("scale", 1, allKinds, poolLabel)[0]
	object.SetUID("owner")
	owner := program.OwnerOf(kindOf(object), object)
	reports := reportsOf(owner, 0, "node-00001")
	if len(reports) != 1 || len(reports[0].GetStatus().Links) != 1 || reports[0].GetStatus().Conditions[0].Type != string(v1alpha1.BpfProgCondLoaded) {
		t.Fatalf("reports %+v", reports)
	}
	reports[0].SetUID("report")
	s := store{node: "node-00001", samples: []sample{{object: reports[0], stored: []byte(reports[0].GetName() + " on node-00001, report of owner")}}}
	name, value := s.of(s.samples[0], &reporter{owners: []program.Owner{owner}}, "node-00002", "another")
	if want := reportsOf(owner, 0, "node-00002")[0].GetName(); name != want || name == reports[0].GetName() {
		t.Errorf("name %s, not %s", name, want)
	}
	if want := name + " on node-00002, another of owner"; string(value) != want {
		t.Errorf("%q, not %q", value, want)
	}
}

func TestMeasuredProcess(t *testing.T) {
	own := process{os.Getpid()}
	used, err := own.memory()
	if err != nil || used.resident < 1 || used.peak < used.resident || used.files <= 0 || used.files >= used.resident {
		t.Errorf("memory %+v, %v", used, err)
	}
	before, err := own.cpu()
	if err != nil || before <= 0 || before > time.Hour {
		t.Errorf("processor time %v, %v", before, err)
	}
	for range 100 {
		_ = strings.Repeat("x", 1<<20)
	}
	if now, err := own.cpu(); err != nil || now <= before {
		t.Errorf("processor time %v after %v, %v", now, before, err)
	}
}
