// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package envtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Containers is what programs of namespaced kinds require as well.
const Containers = `"containers":{"pods":{}}`

const interfaces = `"bpffunctionname":"f","interfaceselector":{"interfaces":["eth0"]},"priority":0`

// programs contains the types of programs by their fields in an application, with the fields that the API server
// requires.
var programs = map[string]struct{ name, fields string }{
	"xdp":        {"XDP", interfaces},
	"tc":         {"TC", interfaces + `,"direction":"ingress"`},
	"tcx":        {"TCX", interfaces + `,"direction":"egress"`},
	"fentry":     {"Fentry", `"bpffunctionname":"f","func_name":"do_unlinkat"`},
	"fexit":      {"Fexit", `"bpffunctionname":"f","func_name":"do_unlinkat"`},
	"lsm":        {"LSM", `"bpffunctionname":"f","hook_name":"file_open"`},
	"kprobe":     {"Kprobe", `"bpffunctionname":"f","func_name":"do_unlinkat"`},
	"kretprobe":  {"Kretprobe", `"bpffunctionname":"f","func_name":"do_unlinkat"`},
	"uprobe":     {"Uprobe", `"bpffunctionname":"f","target":"libc"`},
	"uretprobe":  {"Uretprobe", `"bpffunctionname":"f","target":"libc"`},
	"tracepoint": {"Tracepoint", `"bpffunctionname":"f","names":["syscalls/sys_enter_kill"]`},
}

// linked contains the types of programs of a ClusterBpfApplication, by the same names, with what the API server requires
// of a program.
var linked = map[string]struct{ name, fields string }{
	"xdp":        {"XDP", `"links":[{` + link + `}]`},
	"tc":         {"TC", `"links":[{` + link + `,"direction":"Ingress"}]`},
	"tcx":        {"TCX", `"links":[{` + link + `,"direction":"Egress"}]`},
	"fentry":     {"FEntry", `"function":"do_unlinkat"`},
	"fexit":      {"FExit", `"function":"do_unlinkat"`},
	"kprobe":     {"KProbe", `"links":[{"function":"do_unlinkat"}]`},
	"kretprobe":  {"KRetProbe", `"links":[{"function":"do_unlinkat"}]`},
	"uprobe":     {"UProbe", `"links":[{"target":"libc"}]`},
	"uretprobe":  {"URetProbe", `"links":[{"target":"libc"}]`},
	"tracepoint": {"TracePoint", `"links":[{"name":"syscalls/sys_enter_kill"}]`},
}

const link = `"interfaceSelector":{"interfaces":["eth0"]}`

// Linked returns the fields of a type of program, such as "xdp", in a ClusterBpfApplication, as JSON without braces.
func Linked(programType string) string { return linked[strings.ToLower(programType)].fields }

// Program returns the fields that the API server requires of a type of program, such as "xdp", as JSON without braces. It
// returns "" if there is no such type.
func Program(programType string) string { return programs[strings.ToLower(programType)].fields }

// Spec returns the smallest valid spec of a kind that users write, as JSON. An application has a member of each of the
// types.
func Spec(kind string, members ...string) string {
	if kind == "ClusterBpfApplication" {
		return clusterSpec(members)
	}
	containers := ""
	if strings.Contains(kind, "Ns") {
		containers = "," + Containers
	}
	fields := []string{`"nodeselector":{}`, `"bytecode":{"image":{"url":"quay.io/bpfman-bytecode/x:latest"}}`}
	if !strings.HasSuffix(kind, "Application") {
		fields = append(fields, Program(strings.TrimSuffix(strings.TrimSuffix(kind, "Program"), "Ns"))+containers)
	}
	if len(members) > 0 {
		all := make([]string, len(members))
		for i, member := range members {
			field := strings.ToLower(member)
			all[i] = fmt.Sprintf(`{"type":%q,%q:{%s}}`, programs[field].name, field, Program(member)+containers)
		}
		fields = append(fields, `"programs":[`+strings.Join(all, ",")+`]`)
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// clusterSpec returns the spec of a ClusterBpfApplication, which has a program at least.
func clusterSpec(members []string) string {
	if len(members) == 0 {
		members = []string{"tracepoint"}
	}
	all := make([]string, len(members))
	for i, member := range members {
		field := strings.ToLower(member)
		all[i] = fmt.Sprintf(`{"name":"fun","type":%q,%q:{%s}}`, linked[field].name, field, Linked(member))
	}
	return `{"nodeSelector":{},"byteCode":{"image":{"url":"quay.io/bpfman-bytecode/x:latest"}},"programs":[` + strings.Join(all, ",") + `]}`
}

// NamespacedSpec returns the smallest valid spec of a namespaced BpfApplication with programs of some types, as JSON.
func NamespacedSpec(members ...string) string {
	const pods = `{"pods":{}}`
	of := map[string]string{
		"xdp": link + `,"networkNamespaces":` + pods, "tc": link + `,"direction":"Ingress","networkNamespaces":` + pods,
		"tcx": link + `,"direction":"Egress","networkNamespaces":` + pods, "uprobe": `"target":"libc","containers":` + pods,
		"uretprobe": `"target":"libc","containers":` + pods,
	}
	all := make([]string, len(members))
	for i, member := range members {
		all[i] = fmt.Sprintf(`{"name":"fun","type":%q,%q:{"links":[{%s}]}}`, linked[member].name, member, of[member])
	}
	return `{"nodeSelector":{},"byteCode":{"image":{"url":"quay.io/bpfman-bytecode/x:latest"}},"programs":[` + strings.Join(all, ",") + `]}`
}

// Object returns an object of a kind with a spec in JSON, such as that of [Spec], in the default namespace.
func Object(tb testing.TB, kind v1alpha1.Kind[v1alpha1.UserObject], name, spec string) v1alpha1.UserObject {
	tb.Helper()
	o := kind.New()
	if err := json.Unmarshal([]byte(`{"spec":`+spec+`}`), o); err != nil {
		tb.Fatalf("%s: %v", spec, err)
	}
	o.SetName(name)
	if kind.Namespaced {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}
