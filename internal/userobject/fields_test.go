// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package userobject

import (
	"testing"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestFields(t *testing.T) {
	discovering := v1alpha1.NetworkLink{InterfaceSelector: v1alpha1.LinkInterfaces{
		InterfacesDiscoveryConfig: &v1alpha1.LinkDiscovery{InterfaceAutoDiscovery: new(true)},
	}}
	linked := &v1alpha1.ClusterBpfApplication{Spec: v1alpha1.ClusterBpfApplicationSpec{Programs: []v1alpha1.ClusterBpfApplicationProgram{
		{Type: "FEntry", FEntry: &v1alpha1.FunctionLinks{Links: []v1alpha1.FunctionLink{{Mode: "Attach"}}}},
		{Type: "TCX", TCX: &v1alpha1.TcxLinks{Links: []v1alpha1.TcxLink{{}, {NetworkLink: discovering}, {}}}},
		{Type: "XDP", XDP: &v1alpha1.XdpLinks{}},
		{Type: "KProbe", KProbe: &v1alpha1.KprobeLinks{Links: []v1alpha1.KprobeLink{{}, {}}}},
		{Type: "URetProbe", URetProbe: &v1alpha1.UprobeLinks{Links: []v1alpha1.UprobeLink{{}}}},
		{Type: "TracePoint", TracePoint: &v1alpha1.TracepointLinks{Links: []v1alpha1.TracepointLink{{}, {}}}},
		{Type: "TC"}, // a schema of another version might admit it
	}}}
	of := len(Programs(linked))
	for i, want := range []struct{ field, path string }{
		{"func_name", "spec.programs[0].fentry.function"},
		{"interfaceselector.interfaces", "spec.programs[1].tcx.links[0].interfaceSelector.interfaces"},
		{"interfaceselector.interfacesdiscoveryconfig.allowedinterfaces", "spec.programs[1].tcx.links[1].interfaceSelector.interfacesDiscoveryConfig.allowedInterfaces"},
		{"interfaceselector.interfacesdiscoveryconfig.excludeinterfaces", "spec.programs[1].tcx.links[1].interfaceSelector.interfacesDiscoveryConfig.excludeInterfaces"},
		{"containers.pods", "spec.programs[1].tcx.links[2].networkNamespaces.pods"},
		{"priority", "spec.programs[2].xdp.priority"},
		{"func_name", "spec.programs[3].kprobe.links[0].function"},
		{"bpffunctionname", "spec.programs[3].name"},
		{"containers.pods", "spec.programs[4].uretprobe.links[0].containers.pods"},
		{"names", "spec.programs[5].tracepoint.names"},
		{"direction", "spec.programs[6].tc.direction"},
	} {
		if got := ProgramField(linked, i, want.field); got != want.path || i >= of {
			t.Errorf("program %d of %d: %s, want %s", i, of, got, want.path)
		}
	}
	tenants := &namespaced.BpfApplication{Spec: namespaced.BpfApplicationSpec{Programs: []namespaced.BpfApplicationProgram{
		{Type: "TCX", TCX: &namespaced.TcxLinks{Links: []namespaced.TcxLink{{}, {}}}},
	}}}
	for path, got := range map[string]string{
		"spec.programs[0].tcx.links[1].networkNamespaces.pods": ProgramField(tenants, 1, "containers.pods"),
		"spec.globalData":                  Field(tenants, "globaldata"),
		"spec.byteCode.image.url":          Field(linked, "bytecode.image.url"),
		"spec.bytecode.image.url":          Field(&v1alpha1.BpfApplication{}, "bytecode.image.url"),
		"spec.programs[3].bpffunctionname": ProgramField(&v1alpha1.BpfNsApplication{}, 3, "bpffunctionname"),
		"spec.func_name":                   ProgramField(&v1alpha1.KprobeProgram{}, 0, "func_name"),
	} {
		if got != path {
			t.Errorf("%s, want %s", got, path)
		}
	}
}
