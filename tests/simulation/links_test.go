// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

const linked = `{"apiVersion":"bpfman.io/v1alpha1","kind":"ClusterBpfApplication","metadata":{"name":"linked"},"spec":{
	"nodeSelector":{},"byteCode":{"path":"/object.o"},"globalData":{"sampling":"AQ==","trace":null},"programs":[
	{"name":"count","type":"TracePoint","tracepoint":{"links":[{"name":"syscalls/sys_enter_kill"},{"name":"syscalls/sys_enter_tkill"}]}},
	{"name":"pass","type":"TCX","tcx":{"links":[{"interfaceSelector":{"interfaces":["` + simulation.Uplink + `"]},"direction":"ingress"}]}},
	{"name":"probe","type":"KProbe","kprobe":{}}]}}`

// An object of upstream's v0.6 is attached, says so in that API's words, and changes as its programs and globals do.
func TestClusterBpfApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1})
		w.AddOperator("a").Start()
		w.AddNode("n1").Agent.Start()
		o := &v1alpha1.ClusterBpfApplication{}
		if err := json.Unmarshal([]byte(linked), o); err != nil {
			t.Fatal(err)
		}
		w.Create(o)
		loaded := func() map[string]uint32 {
			var reports v1alpha1.BpfProgramList
			ids := map[string]uint32{}
			if err := w.Client.List(t.Context(), &reports); err != nil {
				t.Fatal(err)
			}
			for _, r := range reports.Items {
				ids[r.Status.Function] = r.Status.ProgramID
			}
			return ids
		}
		w.Await(time.Minute, "success", func() bool { return says(t, w, o, "Success: Attached on 1 of 1") })
		first := loaded()
		if len(first) != 3 || o.Status.ObservedGeneration != o.Generation || len(o.Finalizers) > 0 {
			t.Errorf("programs %v, object %+v", first, o)
		}
		o.Spec.GlobalData = v1alpha1.GlobalData{"sampling": {2}}
		o.Spec.Programs = o.Spec.Programs[:2]
		if err := w.Client.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		w.Await(time.Minute, "the change", func() bool {
			return says(t, w, o, "Success: Attached on 1 of 1") && o.Status.ObservedGeneration == o.Generation && len(loaded()) == 2
		})
		for function, id := range loaded() {
			if id == first[function] {
				t.Errorf("%s is still program %d", function, id)
			}
		}
		if err := w.Client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		w.Await(time.Minute, "gone", func() bool { return len(loaded()) == 0 })
	})
}

// The API server refuses what upstream's definition refuses, and negative offsets.
func TestInvalidClusterBpfApplications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1})
		for _, programs := range []string{
			`[]`,
			`[{"name":"count","type":"TracePoint"}]`,
			`[{"name":"count","type":"TracePoint","tracepoint":{},"xdp":{}}]`,
			`[{"name":"count","type":"Tracepoint","tracepoint":{}}]`,
			`[{"name":"c","type":"TracePoint","tracepoint":{}}]`,
			`[{"name":"count","type":"KProbe","kprobe":{"links":[{"function":"do_exit","offset":-4}]}}]`,
			`[{"name":"count","type":"TCX","tcx":{"links":[{"interfaceSelector":{"interfaces":["eth0"]},"direction":"Up"}]}}]`,
			`[{"name":"count","type":"XDP","xdp":{"links":[{"interfaceSelector":{}}]}}]`,
			`[{"name":"count","type":"FEntry","fentry":{"function":"do_exit","links":[{"mode":"Detach"}]}}]`,
		} {
			o := &unstructured.Unstructured{}
			if err := o.UnmarshalJSON([]byte(`{"apiVersion":"bpfman.io/v1alpha1","kind":"ClusterBpfApplication","metadata":{"name":"invalid"},
				"spec":{"nodeSelector":{},"byteCode":{"path":"/object.o"},"programs":` + programs + `}}`)); err != nil {
				t.Fatal(err)
			}
			if err := w.Client.Create(t.Context(), o); !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v", programs, err)
			}
		}
	})
}
