// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/tests/envtest"
)

// validation is a change of a valid spec, as a JSON merge patch, and the expected error
// of the API server, or "" if the change is valid.
type validation struct{ patch, refusal string }

// manyGlobals returns values of n variables.
func manyGlobals(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"v%d":%d`, i, i))
	}
	return all
}

// The rules of a field, with valid and invalid values. Each applies to the kinds with
// that field.
var (
	commonRules = []validation{
		{``, ``},
		{`{"bytecode":null}`, `spec.bytecode: Required value`},
		// What can't work, but is valid upstream, is accepted, and the agent reports it.
		{`{"bytecode":{"image":null}}`, ``},
		{`{"bytecode":{"path":"/x.o"}}`, ``},
		{`{"bytecode":{"image":null,"path":"/x.o"}}`, ``},
		{`{"bytecode":{"image":null,"path":""}}`, ``},
		{`{"bytecode":{"image":{"url":null}}}`, `spec.bytecode.image.url: Required value`},
		{`{"bytecode":{"image":{"url":""}}}`, ``},
		{`{"bytecode":{"image":{"imagepullpolicy":"Always"}}}`, ``},
		{`{"bytecode":{"image":{"imagepullpolicy":"Never"}}}`, ``},
		{`{"bytecode":{"image":{"imagepullpolicy":"IfNotPresent"}}}`, ``},
		{`{"bytecode":{"image":{"imagepullpolicy":"always"}}}`, `spec.bytecode.image.imagepullpolicy: Unsupported value`},
		{`{"bytecode":{"image":{"imagepullsecret":{"name":"regcred","namespace":"default"}}}}`, ``},
		{`{"bytecode":{"image":{"imagepullsecret":{"name":"regcred"}}}}`, `imagepullsecret.namespace: Required value`},
		{`{"bytecode":{"image":{"imagepullsecret":{"namespace":"default"}}}}`, `imagepullsecret.name: Required value`},
		{`{"nodeselector":null}`, `spec.nodeselector: Required value`},
		{`{"nodeselector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"Exists"}]}}`, ``},
		{`{"nodeselector":{"matchExpressions":[{"key":"k"}]}}`, `operator: Required value`},
		{`{"globaldata":{"v":"AQ==","w":[1,2]}}`, ``},
		// An admission policy checks the values.
		{`{"globaldata":{"v":1}}`, ``},
		{`{"globaldata":["AQ=="]}`, `spec.globaldata: Invalid value`},
		// Only nodes know the types of the variables.
		{`{"globals":{"n":1,"s":"x","b":true,"l":[1,[2]],"o":{}}}`, ``},
		{`{"globals":[1]}`, `spec.globals: Invalid value`},
		{`{"globals":{` + strings.Join(manyGlobals(257), ",") + `}}`, `spec.globals: Too many: 257: must have at most 256 items`},
	}
	programRules = []validation{
		{`{"bpffunctionname":null}`, `spec.bpffunctionname: Required value`},
		{`{"bpffunctionname":""}`, ``},
		{`{"bpffunctionname":"_ZN3foo3barE"}`, ``},
		{`{"mapownerselector":{"matchLabels":{"bpfman.io/ownedByProgram":"x"}}}`, ``},
		{`{"mapownerselector":"x"}`, `spec.mapownerselector: Invalid value`},
	}
	interfaceRules = []validation{
		{`{"interfaceselector":null}`, `spec.interfaceselector: Required value`},
		{`{"interfaceselector":{"interfaces":null}}`, `spec.interfaceselector: Invalid value`},
		{`{"interfaceselector":{"primarynodeinterface":true}}`, `spec.interfaceselector: Too many`},
		{`{"interfaceselector":{"interfaces":null,"primarynodeinterface":true}}`, ``},
		{`{"interfaceselector":{"interfaces":null,"primarynodeinterface":false}}`, ``},
		{`{"interfaceselector":{"interfaces":["eth0","eth1"]}}`, ``},
		// Upstream accepts it, so it stays valid. The agent reports that it selects
		// nothing.
		{`{"interfaceselector":{"interfaces":[]}}`, ``},
		{`{"interfaceselector":{"interfaces":"eth0"}}`, `spec.interfaceselector.interfaces: Invalid value`},
		{`{"interfaceselector":{"interfacesdiscoveryconfig":{}}}`, `spec.interfaceselector: Too many`},
		{`{"interfaceselector":{"interfaces":null,"interfacesdiscoveryconfig":{}}}`, ``},
		{`{"interfaceselector":{"interfaces":null,"primarynodeinterface":true,"interfacesdiscoveryconfig":{}}}`, `spec.interfaceselector: Too many`},
		{`{"interfaceselector":{"interfaces":null,"interfacesdiscoveryconfig":{"interfaceautodiscovery":true,"allowedinterfaces":["eth0","/^eth/"],"excludeinterfaces":[]}}}`, ``},
		{`{"interfaceselector":{"interfaces":null,"interfacesdiscoveryconfig":{"allowedinterfaces":[7]}}}`, `allowedinterfaces[0]: Invalid value`},
		{`{"attach":false}`, ``},
		{`{"attach":"no"}`, `spec.attach: Invalid value`},
		{`{"priority":null}`, ``},
		{`{"priority":-1}`, `spec.priority: Invalid value`},
		{`{"priority":0}`, ``},
		{`{"priority":1000}`, ``},
		{`{"priority":1001}`, `spec.priority: Invalid value`},
	}
	directionRules = []validation{
		{`{"direction":null}`, `spec.direction: Required value`},
		{`{"direction":"ingress"}`, ``},
		{`{"direction":"egress"}`, ``},
		{`{"direction":"Ingress"}`, `spec.direction: Unsupported value`},
		{`{"direction":""}`, `spec.direction: Unsupported value`},
	}
	containerRules = []validation{
		{`{"containers":null}`, ``},
		{`{"containers":{}}`, `spec.containers.pods: Required value`},
		{`{"containers":{"pods":{}}}`, ``},
		{`{"containers":{"namespace":"acme","pods":{"matchLabels":{"app":"nginx"}},"containernames":["nginx"]}}`, ``},
		{`{"containers":{"pods":{},"containernames":[]}}`, ``},
		{`{"containers":{"pods":{},"attachment":"BeforeStart"}}`, ``},
		{`{"containers":{"pods":{},"attachment":"BeforeStart","failurePolicy":"Fail"}}`, ``},
		{`{"containers":{"pods":{},"attachment":"Never"}}`, `spec.containers.attachment: Unsupported value`},
		{`{"containers":{"pods":{},"attachment":"BeforeStart","failurePolicy":"fail"}}`, `spec.containers.failurePolicy: Unsupported value`},
		{`{"containers":{"pods":{},"failurePolicy":"Fail"}}`, `failurePolicy needs attachment: BeforeStart`},
	}
	nsContainerRules = []validation{
		{`{"containers":null}`, `spec.containers: Required value`},
		{`{"containers":{"pods":null}}`, `spec.containers.pods: Required value`},
		{`{"containers":{"pods":{"matchLabels":{"app":"nginx"}},"containernames":["nginx"]}}`, ``},
		{`{"containers":{"containernames":[]}}`, ``},
		{`{"containers":{"pods":{},"attachment":"BeforeStart"}}`, ``},
		{`{"containers":{"pods":{},"attachment":"BeforeStart","failurePolicy":"Fail"}}`, ``},
		{`{"containers":{"pods":{},"attachment":"Never"}}`, `spec.containers.attachment: Unsupported value`},
		{`{"containers":{"pods":{},"attachment":"BeforeStart","failurePolicy":"fail"}}`, `spec.containers.failurePolicy: Unsupported value`},
		{`{"containers":{"pods":{},"failurePolicy":"Fail"}}`, `failurePolicy needs attachment: BeforeStart`},
	}
	functionRules = []validation{
		{`{"func_name":null}`, `spec.func_name: Required value`},
		{`{"func_name":""}`, ``},
	}
	offsetRules = []validation{
		{`{"offset":-1}`, `spec.offset: Invalid value`},
		{`{"offset":"1"}`, `spec.offset: Invalid value`},
		{`{"offset":0}`, ``},
		{`{"offset":9223372036854775807}`, ``},
		{`{"retprobe":true}`, ``},
		{`{"retprobe":false,"offset":4}`, ``},
		{`{"retprobe":"true"}`, `spec.retprobe: Invalid value`},
	}
	kprobeRules = []validation{
		{`{"retprobe":true,"offset":0}`, ``},
		{`{"retprobe":true,"offset":4}`, `offset cannot be set for kretprobes`},
	}
	uprobeRules = []validation{
		{`{"func_name":"malloc"}`, ``},
		{`{"func_name":""}`, ``},
		{`{"target":null}`, `spec.target: Required value`},
		{`{"target":""}`, ``},
		{`{"retprobe":true,"offset":4}`, ``},
		{`{"pid":0}`, ``},
		{`{"pid":4194304}`, ``},
		{`{"pid":"1"}`, `spec.pid: Invalid value`},
	}
	tracepointRules = []validation{
		{`{"names":null}`, `spec.names: Required value`},
		{`{"names":[]}`, ``},
		{`{"names":["a/b","c/d"]}`, ``},
		{`{"names":"a/b"}`, `spec.names: Invalid value`},
	}
	xdpRules = proceedOnRules(6, "aborted", "drop", "pass", "tx", "redirect", "dispatcher_return")
	tcRules  = proceedOnRules(11, "unspec", "ok", "reclassify", "shot", "pipe", "stolen", "queued", "repeat", "redirect", "trap", "dispatcher_return")

	hookRules = []validation{
		{`{"hook_name":null}`, `spec.hook_name: Required value`},
		{`{"hook_name":""}`, `spec.hook_name: Invalid value`},
		{`{"hook_name":"bprm_check_security"}`, ``},
		{`{"hook_name":"lsm/file_open"}`, `spec.hook_name: Invalid value`},
		{`{"hook_name":"File_open"}`, `spec.hook_name: Invalid value`},
		{`{"hook_name":"` + strings.Repeat("a", 64) + `"}`, ``},
		{`{"hook_name":"` + strings.Repeat("a", 65) + `"}`, `spec.hook_name: Too long`},
	}

	applicationRules = []validation{
		{`{"programs":null}`, ``},
		{`{"programs":[]}`, `spec.programs: Invalid value`},
		{`{"programs":[{}]}`, ``},
		{`{"programs":[{"xdp":{` + envtest.Program("XDP") + `,` + envtest.Containers + `}}]}`, `xdp configuration is required when type is XDP, and forbidden otherwise`},
		{`{"programs":[{"type":"xdp"}]}`, `spec.programs[0].type: Unsupported value`},
	}
)

// proceedOnRules accept each result, and lists with at most limit results, and nothing
// else.
func proceedOnRules(limit int, results ...string) []validation {
	rules := []validation{
		{`{"proceedon":[]}`, ``},
		{`{"proceedon":["nonsense"]}`, `spec.proceedon[0]: Unsupported value`},
		{`{"proceedon":["Pass"]}`, `spec.proceedon[0]: Unsupported value`},
		// Duplicate results have no effect, and are valid upstream.
		{list(slices.Repeat([]string{results[0]}, limit)), ``},
		{list(slices.Repeat([]string{results[0]}, limit+1)), `spec.proceedon: Too many`},
		{list(results), ``},
	}
	for _, result := range results {
		rules = append(rules, validation{list([]string{result}), ``})
	}
	return rules
}

func list(proceedOn []string) string {
	return `{"proceedon":["` + strings.Join(proceedOn, `","`) + `"]}`
}

var rulesOfKind = map[string][][]validation{
	"FentryProgram":         {commonRules, programRules, functionRules},
	"FexitProgram":          {commonRules, programRules, functionRules},
	"KprobeProgram":         {commonRules, programRules, functionRules, offsetRules, kprobeRules},
	"LsmProgram":            {commonRules, programRules, hookRules},
	"TcProgram":             {commonRules, programRules, interfaceRules, containerRules, directionRules, tcRules},
	"TcNsProgram":           {commonRules, programRules, interfaceRules, nsContainerRules, directionRules, tcRules},
	"TcxProgram":            {commonRules, programRules, interfaceRules, containerRules, directionRules},
	"TcxNsProgram":          {commonRules, programRules, interfaceRules, nsContainerRules, directionRules},
	"TracepointProgram":     {commonRules, programRules, tracepointRules},
	"UprobeProgram":         {commonRules, programRules, offsetRules, containerRules, uprobeRules},
	"UprobeNsProgram":       {commonRules, programRules, offsetRules, nsContainerRules, uprobeRules},
	"XdpProgram":            {commonRules, programRules, interfaceRules, containerRules, xdpRules},
	"XdpNsProgram":          {commonRules, programRules, interfaceRules, nsContainerRules, xdpRules},
	"BpfApplication":        {commonRules, applicationRules, memberRules(clusterMembers, ""), clusterOnlyMemberRules},
	"BpfNsApplication":      {commonRules, applicationRules, memberRules(namespacedMembers, ","+envtest.Containers), namespacedOnlyMemberRules},
	"ClusterBpfApplication": {clusterApplicationRules, linkRules, linkedUnionRules()},
	"BpfProgram":            bpfProgramRules,
	"BpfNsProgram":          bpfProgramRules,
}

var bpfProgramRules = [][]validation{{
	{``, ``},
	{`{"type":"tcx","maps":{"stats":"/run/bpfman/fs/maps/7/stats"}}`, ``},
	{`{"type":7}`, `spec.type: Invalid value`},
	{`{"maps":["stats"]}`, `spec.maps: Invalid value`},
}}

var (
	namespacedMembers = []string{"XDP", "TC", "TCX", "Uprobe", "Uretprobe"}
	clusterMembers    = append([]string{"Fentry", "Fexit", "Kprobe", "Kretprobe", "Tracepoint", "LSM"}, namespacedMembers...)
)

func program(memberType string, fields ...string) string {
	return `{"programs":[{` + strings.Join(append([]string{`"type":"` + memberType + `"`}, fields...), ",") + `}]}`
}

func member(name, more string) string { return `"` + name + `":{` + envtest.Program(name) + more + `}` }

// memberRules are the rules of the union: each type with its own member, without it, and
// with each of the others. more contains additional fields for all members.
func memberRules(types []string, more string) []validation {
	var rules []validation
	for _, memberType := range types {
		own := strings.ToLower(memberType)
		refusal := func(name, of string) string {
			return fmt.Sprintf("%s configuration is required when type is %s, and forbidden otherwise", name, of)
		}
		rules = append(rules,
			validation{program(memberType, member(own, more)), ``},
			validation{program(memberType), refusal(own, memberType)})
		for _, otherType := range types {
			if other := strings.ToLower(otherType); other != own {
				rules = append(rules, validation{
					program(memberType, member(own, more), member(other, more)),
					refusal(other, otherType),
				})
			}
		}
	}
	return rules
}

var clusterOnlyMemberRules = []validation{
	{program("Kprobe", member("kprobe", `,"offset":4`)), ``},
	{program("Kprobe", member("kprobe", `,"offset":4,"retprobe":true`)), ``},
	{program("Kprobe", member("kprobe", `,"offset":-4`)), `offset: Invalid value`},
	{program("Kretprobe", member("kretprobe", `,"offset":0`)), ``},
	{program("Kretprobe", member("kretprobe", `,"retprobe":true`)), ``},
	{program("Kretprobe", member("kretprobe", `,"offset":4`)), ``},
	{program("Uretprobe", member("uretprobe", `,"offset":4`)), ``},
	{program("XDP", member("xdp", `,"priority":1001`)), `spec.programs[0].xdp.priority: Invalid value`},
	{program("XDP", member("xdp", `,"proceedon":["pipe"]`)), `spec.programs[0].xdp.proceedon[0]: Unsupported value`},
	{program("TC", member("tc", `,"proceedon":["pass"]`)), `spec.programs[0].tc.proceedon[0]: Unsupported value`},
	{program("XDP", `"xdp":{}`), `spec.programs[0].xdp.bpffunctionname: Required value`},
	{`{"programs":[` + strings.Repeat(`{"type":"Tracepoint",`+member("tracepoint", "")+`},`, 299) + `{"type":"XDP",` + member("xdp", "") + `}]}`, ``},
}

var namespacedOnlyMemberRules = []validation{
	{program("XDP", member("xdp", "")), `spec.programs[0].xdp.containers: Required value`},
	{program("Uprobe", member("uprobe", `,"containers":{}`)), `spec.programs[0].uprobe.containers.pods: Required value`},
	{program("Kprobe"), `spec.programs[0].type: Unsupported value`},
	{program("Tracepoint"), `spec.programs[0].type: Unsupported value`},
}

func TestValidation(t *testing.T) {
	t.Parallel()
	if len(rulesOfKind) != len(kinds()) {
		t.Errorf("rules for %d kinds, want %d", len(rulesOfKind), len(kinds()))
	}
	for name, k := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := client(t, k)
			for _, v := range slices.Concat(rulesOfKind[name]...) {
				_, err := c.Create(deadline(t), object(t, k, "validation", v.patch), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				checkRefusal(t, v, err)
			}
		})
	}
}

func checkRefusal(t *testing.T, v validation, err error) {
	t.Helper()
	switch {
	case v.refusal == "" && err != nil:
		t.Errorf("%.300s: refused: %v", v.patch, err)
	case v.refusal != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), v.refusal)):
		t.Errorf("%.300s: got %v, want a refusal with %q", v.patch, err, v.refusal)
	}
}

// Upstream accepts an application without a spec, although it has no effect.
func TestMissingSpec(t *testing.T) {
	optional := []string{"BpfApplication", "BpfNsApplication", "ClusterBpfApplication"}
	for name, k := range kinds() {
		o := object(t, k, "no-spec", "")
		delete(o.Object, "spec")
		_, err := client(t, k).Create(deadline(t), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if accepted := err == nil; accepted != slices.Contains(optional, name) {
			t.Errorf("%s without spec: %v", name, err)
		}
	}
}
