// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// update is an edit of one field, as a JSON merge patch, and its effect.
type update struct{ patch, effect string }

// updates contains each field of a user object's spec by its path. The fields of an
// application's members are relative to the member.
var updates = map[string]update{
	"nodeselector": {`{"nodeselector":{"matchLabels":{"no":"such"}}}`, unload},
	"globaldata":   {`{"globaldata":{"g":"AQ=="}}`, reload},
	"globals":      {`{"globals":{"g":1}}`, reload},

	"bytecode.image.url":                       {`{"bytecode":{"image":{"url":"127.0.0.1:1/other"}}}`, reload},
	"bytecode.image.imagepullpolicy":           {`{"bytecode":{"image":{"imagepullpolicy":"Always"}}}`, nothing},
	"bytecode.image.imagepullsecret.name":      {`{"bytecode":{"image":{"imagepullsecret":{"name":"a","namespace":"updates"}}}}`, nothing},
	"bytecode.image.imagepullsecret.namespace": {`{"bytecode":{"image":{"imagepullsecret":{"name":"a","namespace":"updates"}}}}`, nothing},
	"bytecode.path":                            {`{"bytecode":{"image":null,"path":"/x.o"}}`, reload},

	"bpffunctionname":                        {`{"bpffunctionname":"other"}`, reload},
	"mapownerselector":                       {`{"mapownerselector":{"matchLabels":{"no":"such"}}}`, nothing},
	"interfaceselector.interfaces":           {`{"interfaceselector":{"interfaces":["eth1","eth2"]}}`, inPlace},
	"interfaceselector.primarynodeinterface": {`{"interfaceselector":{"interfaces":null,"primarynodeinterface":true}}`, inPlace},
	"interfaceselector.interfacesdiscoveryconfig.interfaceautodiscovery": {`{"interfaceselector":{"interfaces":null,"interfacesdiscoveryconfig":{"interfaceautodiscovery":true}}}`, inPlace},
	"interfaceselector.interfacesdiscoveryconfig.allowedinterfaces":      {`{"interfaceselector":{"interfaces":null,"interfacesdiscoveryconfig":{"interfaceautodiscovery":true,"allowedinterfaces":["eth2"]}}}`, inPlace},
	"interfaceselector.interfacesdiscoveryconfig.excludeinterfaces":      {`{"interfaceselector":{"interfaces":null,"interfacesdiscoveryconfig":{"interfaceautodiscovery":true,"excludeinterfaces":["eth1"]}}}`, inPlace},

	"attach":    {`{"attach":false}`, inPlace},
	"priority":  {`{"priority":51}`, inPlace},
	"proceedon": {`{"proceedon":["redirect"]}`, inPlace},
	"direction": {`{"direction":"egress"}`, inPlace},

	"containers.namespace":      {`{"containers":{"namespace":"updates-two"}}`, inPlace},
	"containers.pods":           {`{"containers":{"pods":{"matchLabels":{"app":"db"}}}}`, inPlace},
	"containers.containernames": {`{"containers":{"containernames":["b"]}}`, inPlace},
	"containers.attachment":     {`{"containers":{"attachment":"BeforeStart"}}`, nothing},
	"containers.failurePolicy":  {`{"containers":{"attachment":"BeforeStart","failurePolicy":"Fail"}}`, nothing},

	"func_name": {`{"func_name":"other"}`, inPlace},
	"offset":    {`{"offset":8}`, inPlace},
	"retprobe":  {`{"retprobe":true}`, nothing}, // the section in the bytecode decides
	"target":    {`{"target":"/bin/other"}`, inPlace},
	"pid":       {`{"pid":7}`, inPlace},
	"names":     {`{"names":["a/x","b/y"]}`, inPlace},

	"programs.type": {``, reload}, // one member less

	// Of a ClusterBpfApplication. Fields of links are relative to the link.
	"nodeSelector": {`{"nodeSelector":{"matchLabels":{"no":"such"}}}`, unload},
	"globalData":   {`{"globalData":{"g":"AQ=="}}`, reload},

	"byteCode.image.url":                       {`{"byteCode":{"image":{"url":"127.0.0.1:1/other"}}}`, reload},
	"byteCode.image.imagePullPolicy":           {`{"byteCode":{"image":{"imagePullPolicy":"Always"}}}`, nothing},
	"byteCode.image.imagePullSecret.name":      {`{"byteCode":{"image":{"imagePullSecret":{"name":"a","namespace":"updates"}}}}`, nothing},
	"byteCode.image.imagePullSecret.namespace": {`{"byteCode":{"image":{"imagePullSecret":{"name":"a","namespace":"updates"}}}}`, nothing},
	"byteCode.path":                            {`{"byteCode":{"image":null,"path":"/x.o"}}`, reload},

	"mapOwnerSelector": {`{"mapOwnerSelector":{"matchLabels":{"no":"such"}}}`, nothing}, // it is ignored
	"programs.name":    {`{"name":"other"}`, reload},
	"function":         {`{"function":"other"}`, reload},

	"links.interfaceSelector.interfaces":                                       {`{"interfaceSelector":{"interfaces":["eth1","eth2"]}}`, inPlace},
	"links.interfaceSelector.primaryNodeInterface":                             {`{"interfaceSelector":{"interfaces":null,"primaryNodeInterface":true}}`, inPlace},
	"links.interfaceSelector.interfacesDiscoveryConfig.interfaceAutoDiscovery": {`{"interfaceSelector":{"interfaces":null,"interfacesDiscoveryConfig":{"interfaceAutoDiscovery":true}}}`, inPlace},
	"links.interfaceSelector.interfacesDiscoveryConfig.allowedInterfaces":      {`{"interfaceSelector":{"interfaces":null,"interfacesDiscoveryConfig":{"interfaceAutoDiscovery":true,"allowedInterfaces":["eth2"]}}}`, inPlace},
	"links.interfaceSelector.interfacesDiscoveryConfig.excludeInterfaces":      {`{"interfaceSelector":{"interfaces":null,"interfacesDiscoveryConfig":{"interfaceAutoDiscovery":true,"excludeInterfaces":["eth1"]}}}`, inPlace},
	"links.networkNamespaces.namespace":                                        {`{"networkNamespaces":{"namespace":"updates-two"}}`, inPlace},
	"links.networkNamespaces.pods":                                             {`{"networkNamespaces":{"pods":{"matchLabels":{"app":"db"}}}}`, inPlace},
	"links.networkNamespaces.attachment":                                       {`{"networkNamespaces":{"attachment":"BeforeStart"}}`, nothing},
	"links.networkNamespaces.failurePolicy":                                    {`{"networkNamespaces":{"attachment":"BeforeStart","failurePolicy":"Fail"}}`, nothing},
	"links.priority":                                                           {`{"priority":51}`, inPlace},
	"links.proceedOn":                                                          {`{"proceedOn":["ReDirect"]}`, inPlace},
	"links.direction":                                                          {`{"direction":"Egress"}`, inPlace},
	"links.function":                                                           {`{"function":"other"}`, inPlace},
	"links.offset":                                                             {`{"offset":8}`, inPlace},
	"links.target":                                                             {`{"target":"/bin/other"}`, inPlace},
	"links.pid":                                                                {`{"pid":7}`, inPlace},
	"links.containers.namespace":                                               {`{"containers":{"namespace":"updates-two"}}`, inPlace},
	"links.containers.pods":                                                    {`{"containers":{"pods":{"matchLabels":{"app":"db"}}}}`, inPlace},
	"links.containers.attachment":                                              {`{"containers":{"attachment":"BeforeStart"}}`, nothing},
	"links.containers.failurePolicy":                                           {`{"containers":{"attachment":"BeforeStart","failurePolicy":"Fail"}}`, nothing},
	"links.containers.containerNames":                                          {`{"containers":{"containerNames":["b"]}}`, inPlace},
	"links.name":                                                               {`{"name":"bus/other"}`, inPlace},
	"links.mode":                                                               {``, inPlace}, // one link less
}

// effectOn returns the effect if it depends on the member. member is the type of a program, or
// of a member in an application.
func effectOn(member, field string, application bool) string {
	network := slices.Contains([]string{"xdp", "tc", "tcx"}, member)
	switch {
	case field == "func_name" && (member == "fentry" || member == "fexit"):
		return reload // it is fixed when the program is loaded
	case field == "containers.containernames" && network:
		return nothing // all containers of a pod share its network
	case field == "mapownerselector" && application:
		return reload // of the other members, without the one that waits
	}
	return updates[field].effect
}

const (
	updatesCommon     = `"nodeselector":{"matchLabels":{"test":"testupstreamfault14editsofeachfield"}},"bytecode":{"image":{"url":"127.0.0.1:1/x"}}`
	updatesContainers = `"containers":{"pods":{"matchLabels":{"app":"web"}},"containernames":["a"]}`
	updatesInterfaces = `"interfaceselector":{"interfaces":["eth1"]},"priority":50,` + updatesContainers
)

// updatesMembers are the programs to edit, by their names in an application.
var updatesMembers = map[string]string{
	"xdp":        updatesInterfaces,
	"tc":         updatesInterfaces + `,"direction":"ingress"`,
	"tcx":        updatesInterfaces + `,"direction":"ingress"`,
	"fentry":     `"func_name":"do_unlinkat"`,
	"fexit":      `"func_name":"do_unlinkat"`,
	"kprobe":     `"func_name":"do_unlinkat"`,
	"kretprobe":  `"func_name":"do_unlinkat"`,
	"uprobe":     `"func_name":"malloc","target":"libc",` + updatesContainers,
	"uretprobe":  `"func_name":"malloc","target":"libc",` + updatesContainers,
	"tracepoint": `"names":["a/x"]`,
}

const (
	updatesLinked = `"nodeSelector":{"matchLabels":{"test":"testupstreamfault14editsofeachfield"}},"byteCode":{"image":{"url":"127.0.0.1:1/x"}}`
	updatesLink   = `"interfaceSelector":{"interfaces":["eth1"]},"priority":50,"networkNamespaces":{"pods":{"matchLabels":{"app":"web"}}}`
	updatesTarget = `"function":"malloc","target":"libc","containers":{"pods":{"matchLabels":{"app":"web"}},"containerNames":["a"]}`
)

// updatesPrograms are the programs of a ClusterBpfApplication to edit, by their fields: the type, and the content.
var updatesPrograms = map[string][2]string{
	"xdp":        {"XDP", `"links":[{` + updatesLink + `}]`},
	"tc":         {"TC", `"links":[{` + updatesLink + `,"direction":"Ingress"}]`},
	"tcx":        {"TCX", `"links":[{` + updatesLink + `,"direction":"Ingress"}]`},
	"fentry":     {"FEntry", `"function":"do_unlinkat","links":[{"mode":"Attach"}]`},
	"fexit":      {"FExit", `"function":"do_unlinkat","links":[{"mode":"Attach"}]`},
	"kprobe":     {"KProbe", `"links":[{"function":"do_unlinkat"}]`},
	"kretprobe":  {"KRetProbe", `"links":[{"function":"do_unlinkat"}]`},
	"uprobe":     {"UProbe", `"links":[{` + updatesTarget + `}]`},
	"uretprobe":  {"URetProbe", `"links":[{` + updatesTarget + `}]`},
	"tracepoint": {"TracePoint", `"links":[{"name":"bus/event"}]`},
}

// linkedSpec returns the initial spec of a ClusterBpfApplication with these programs.
func linkedSpec(t *testing.T, members []string) map[string]any {
	t.Helper()
	programs := make([]string, len(members))
	for i, member := range members {
		programs[i] = fmt.Sprintf(`{"name":"f_%s","type":%q,%q:{%s}}`, member, updatesPrograms[member][0], member, updatesPrograms[member][1])
	}
	return patched(t, map[string]any{}, `{`+updatesLinked+`,"programs":[`+strings.Join(programs, ",")+`]}`)
}

// editedLink edits a field of the only link of a program.
func editedLink(t *testing.T, info any, field string) map[string]any {
	t.Helper()
	if field == "links.mode" {
		return patched(t, info, `{"links":null}`)
	}
	info = patched(t, info, `{}`)
	links, found, err := unstructured.NestedSlice(info.(map[string]any), "links") //nolint:errcheck // as patched returns it
	if err != nil || !found || len(links) != 1 {
		t.Fatalf("the links of %v: %v", info, err)
	}
	link, err := json.Marshal(patched(t, links[0], updates[field].patch))
	if err != nil {
		t.Fatal(err)
	}
	return patched(t, info, `{"links":[`+string(link)+`]}`)
}

// fieldsOf returns the paths of all fields of a spec.
func fieldsOf(t reflect.Type, prefix string) []string {
	switch {
	case t.Kind() == reflect.Pointer:
		return fieldsOf(t.Elem(), prefix)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return fieldsOf(t.Elem(), prefix)
	case t.Kind() != reflect.Struct || t == reflect.TypeFor[metav1.LabelSelector]():
		return []string{prefix}
	}
	var fields []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		path := strings.TrimPrefix(prefix+"."+name, ".")
		if name == "" {
			path = prefix
		}
		fields = append(fields, fieldsOf(f.Type, path)...)
	}
	return fields
}

// memberOf splits a field's path: "programs.xdp.priority" is "priority" of the member "xdp".
func memberOf(field string) (member, rest string) {
	if rest, ok := strings.CutPrefix(field, "programs."); ok {
		if member, rest, ok := strings.Cut(rest, "."); ok {
			return member, rest
		}
	}
	return "", field
}

// patched returns a JSON object with a merge patch applied.
func patched(t *testing.T, object any, patch string) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	if err == nil {
		text, err = jsonpatch.MergePatch(text, []byte(patch))
	}
	var wrapped unstructured.Unstructured // its decoder keeps integers
	if err == nil {
		err = wrapped.UnmarshalJSON([]byte(`{"kind":"x","spec":` + string(text) + `}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	spec, _, err := unstructured.NestedMap(wrapped.Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// specOf returns the initial spec of a kind with these fields.
func specOf(t *testing.T, kind string, fields []string) map[string]any {
	t.Helper()
	if !strings.HasSuffix(kind, "Application") {
		member := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(kind), "program"), "ns")
		return patched(t, map[string]any{}, `{`+updatesCommon+`,"bpffunctionname":"f",`+updatesMembers[member]+`}`)
	}
	var programs, members []string
	seen := map[string]bool{}
	for _, field := range fields {
		if member, _ := memberOf(field); member != "" && !seen[member] {
			seen[member] = true
			members = append(members, member)
			title := strings.ToUpper(member)
			if len(member) > 3 {
				title = strings.ToUpper(member[:1]) + member[1:]
			}
			programs = append(programs, fmt.Sprintf(`{"type":%q,%q:{"bpffunctionname":"f_%s",%s}}`, title, member, member, updatesMembers[member]))
		}
	}
	if kind == "ClusterBpfApplication" {
		return linkedSpec(t, members)
	}
	return patched(t, map[string]any{}, `{`+updatesCommon+`,"programs":[`+strings.Join(programs, ",")+`]}`)
}

// edited returns a spec with an edit of a field.
func edited(t *testing.T, spec map[string]any, field string) map[string]any {
	t.Helper()
	member, rest := memberOf(field)
	spec = patched(t, spec, `{}`)
	programs := programsOf(spec)
	switch {
	case field == "programs.type":
		spec["programs"] = slices.Delete(listOf(programs), 0, 1)
	case field == "programs.name":
		programs[0] = patched(t, programs[0], updates[field].patch)
		spec["programs"] = listOf(programs)
	case member == "":
		return patched(t, spec, updates[field].patch)
	default:
		for _, p := range programs {
			info, has := p[member]
			switch {
			case has && strings.HasPrefix(rest, "links."):
				p[member] = editedLink(t, info, rest)
			case has:
				p[member] = patched(t, info, updates[rest].patch)
			}
		}
		spec["programs"] = listOf(programs)
	}
	return spec
}

// programsOf returns a copy of an application's members, or none for other kinds.
func programsOf(spec map[string]any) []map[string]any {
	var out []map[string]any
	if list, found, err := unstructured.NestedSlice(spec, "programs"); found && err == nil {
		for _, p := range list {
			if program, is := p.(map[string]any); is {
				out = append(out, program)
			}
		}
	}
	return out
}

func listOf(programs []map[string]any) []any {
	out := make([]any, 0, len(programs))
	for _, p := range programs {
		out = append(out, p)
	}
	return out
}
