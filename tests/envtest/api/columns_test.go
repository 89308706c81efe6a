// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// What kubectl shows of each kind, in order: the columns, after a bar those of
// -o wide, and the cells of an object that has every field.
var columns = map[string][2]string{
	"BpfApplication":        {"Name NodeSelector Status Selected Attached Idle Failed Age | Image", `{} NothingMatched 3 0 3 0 | quay.io/bpfman-bytecode/x:latest`},
	"BpfNsApplication":      {"Name NodeSelector Status Selected Attached Idle Failed Age | Image", `{} NothingMatched 3 0 3 0 | quay.io/bpfman-bytecode/x:latest`},
	"ClusterBpfApplication": {"Name NodeSelector Status Selected Attached Idle Failed Age | Image", `{} NothingMatched 3 0 3 0 | quay.io/bpfman-bytecode/x:latest`},
	"BpfProgram":            {"Name Type Status Node Age | ProgramId", `tcx bpfmanLoaded node-1 | 7`},
	"BpfNsProgram":          {"Name Type Status Node Age | ProgramId", `tcx bpfmanLoaded node-1 | 7`},
	"FentryProgram":         {programColumns + " FunctionName Image", programCells + ` do_unlinkat quay.io/bpfman-bytecode/x:latest`},
	"FexitProgram":          {programColumns + " FunctionName Image", programCells + ` do_unlinkat quay.io/bpfman-bytecode/x:latest`},
	"KprobeProgram":         {programColumns + " FunctionName Offset RetProbe Image", programCells + ` do_unlinkat 4 false quay.io/bpfman-bytecode/x:latest`},
	"LsmProgram":            {programColumns + " HookName Image", programCells + ` file_open quay.io/bpfman-bytecode/x:latest`},
	"TcProgram":             {programColumns + " Priority Direction InterfaceSelector ProceedOn Image", programCells + ` 0 ingress {"interfaces":["eth0"]} ["pipe","dispatcher_return"] quay.io/bpfman-bytecode/x:latest`},
	"TcNsProgram":           {programColumns + " Priority Direction InterfaceSelector ProceedOn Image", programCells + ` 0 ingress {"interfaces":["eth0"]} ["pipe","dispatcher_return"] quay.io/bpfman-bytecode/x:latest`},
	"TcxProgram":            {programColumns + " Direction InterfaceSelector Priority Image", programCells + ` egress {"interfaces":["eth0"]} 0 quay.io/bpfman-bytecode/x:latest`},
	"TcxNsProgram":          {programColumns + " Direction InterfaceSelector Priority Image", programCells + ` egress {"interfaces":["eth0"]} 0 quay.io/bpfman-bytecode/x:latest`},
	"TracepointProgram":     {programColumns + " TracePoint Image", programCells + ` ["syscalls/sys_enter_kill"] quay.io/bpfman-bytecode/x:latest`},
	"UprobeProgram":         {programColumns + " FunctionName Offset Target RetProbe Pid Image", programCells + ` malloc 4 libc false 1 quay.io/bpfman-bytecode/x:latest`},
	"UprobeNsProgram":       {programColumns + " FunctionName Offset Target RetProbe Pid Image", programCells + ` malloc 4 libc false 1 quay.io/bpfman-bytecode/x:latest`},
	"XdpProgram":            {programColumns + " Priority InterfaceSelector ProceedOn Image", programCells + ` 0 {"interfaces":["eth0"]} ["pass","dispatcher_return"] quay.io/bpfman-bytecode/x:latest`},
	"XdpNsProgram":          {programColumns + " Priority InterfaceSelector ProceedOn Image", programCells + ` 0 {"interfaces":["eth0"]} ["pass","dispatcher_return"] quay.io/bpfman-bytecode/x:latest`},
}

const (
	programColumns = "Name BpfFunctionName NodeSelector Status Selected Attached Idle Failed Age |"
	programCells   = `f {} NothingMatched 3 0 3 0 |`
)

// Fields that the minimal object lacks, and a column shows.
var shown = map[string]string{
	"KprobeProgram":   `{"offset":4}`,
	"UprobeProgram":   `{"func_name":"malloc","offset":4,"pid":1}`,
	"UprobeNsProgram": `{"func_name":"malloc","offset":4,"pid":1}`,
	"BpfProgram":      `{"type":"tcx"}`,
	"BpfNsProgram":    `{"type":"tcx"}`,
}

const (
	// The column Status is the reason of the condition Ready.
	userStatus = `{"nodes":{"selected":3,"attached":0,"idle":3,"failed":0},"conditions":[{"type":"ReconcileSuccess","reason":"ReconcileSuccess",` +
		`"status":"True","message":"m","lastTransitionTime":"2026-01-02T03:04:05Z"},` +
		`{"type":"Ready","reason":"NothingMatched","status":"True","message":"m","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`
	programStatus = `{"node":"node-1","programid":7,"conditions":[` + loaded + `]}`
)

func TestPrinterColumns(t *testing.T) {
	t.Parallel()
	for name, k := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := create(t, k, object(t, k, "columns", shown[name]))
			status := userStatus
			if strings.HasPrefix(k.resource.Resource, "bpf") && strings.HasSuffix(k.resource.Resource, "programs") {
				status = programStatus
			}
			o.Object["status"] = decode(t, status)
			if _, err := client(t, k).UpdateStatus(deadline(t), o, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}

			headings, cells := shownByKubectl(t, k, "columns")
			if want := columns[name]; headings != want[0] || cells != want[1] {
				t.Errorf("got  %s\n     %s\nwant %s\n     %s", headings, cells, want[0], want[1])
			}
		})
	}
}

// shownByKubectl returns the headings and cells of an object, without Name and Age. A
// bar precedes the first column that only -o wide shows.
func shownByKubectl(t *testing.T, k kind, name string) (headings, cells string) {
	t.Helper()
	config := envtest.Config(t)
	groupVersion := v1alpha1.SchemeGroupVersion
	config.GroupVersion, config.APIPath = &groupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme.Scheme).WithoutConversion()
	c, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Get().NamespaceIfScoped(metav1.NamespaceDefault, k.namespaced).Resource(k.resource.Resource).Name(name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	must.Succeed(t, json.Unmarshal(text, &table))
	if len(table.Rows) != 1 {
		t.Fatalf("%d rows", len(table.Rows))
	}
	var heads, values []string
	wide := false
	for i, column := range table.ColumnDefinitions {
		if column.Priority > 0 && !wide {
			wide = true
			heads, values = append(heads, "|"), append(values, "|")
		}
		heads = append(heads, column.Name)
		switch cell := table.Rows[0].Cells[i].(type) {
		case string:
			if column.Name != "Name" && column.Name != "Age" {
				values = append(values, cell)
			}
		default:
			values = append(values, encode(t, cell))
		}
	}
	if !wide {
		heads, values = append(heads, "|"), append(values, "|")
	}
	return strings.Join(heads, " "), strings.Join(values, " ")
}

// The names of the kinds in kubectl.
func TestDiscovery(t *testing.T) {
	c, err := discovery.NewDiscoveryClientForConfig(envtest.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	resources, err := c.ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	known := kinds()
	known[nodeKind.name], known[policyKind.name], known[rolloutKind.name] = nodeKind, policyKind, rolloutKind
	found, shortNames := map[string]bool{}, map[string]bool{}
	for _, resource := range resources.APIResources {
		if strings.Contains(resource.Name, "/") {
			found[resource.Name] = true
			continue
		}
		k, ok := known[resource.Kind]
		if !ok || resource.Name != k.resource.Resource || resource.Namespaced != k.namespaced {
			t.Errorf("%s is served as %s, namespaced %v", resource.Kind, resource.Name, resource.Namespaced)
		}
		short := strings.Join(resource.ShortNames, " ")
		if !slices.Equal(resource.Categories, []string{"bpfman"}) || (short == "") != (k.name == nodeKind.name) || shortNames[short] {
			t.Errorf("%s: categories %v, short names %v", resource.Kind, resource.Categories, resource.ShortNames)
		}
		shortNames[short] = true
		found[resource.Name] = true
	}
	for name, k := range known {
		if !found[k.resource.Resource] || !found[k.resource.Resource+"/status"] {
			t.Errorf("%s or its status isn't served", name)
		}
	}
}
