// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/tests/envtest"
)

// The rules of a ClusterBpfApplication, which are those of upstream's v0.6, apart from small letters of a direction, and
// negative offsets.
var (
	clusterApplicationRules = []validation{
		{``, ``},
		{`{"byteCode":null}`, `spec.byteCode: Required value`},
		{`{"byteCode":{"image":null}}`, `spec.byteCode: Invalid value`},
		{`{"byteCode":{"path":"/x.o"}}`, `spec.byteCode: Too many`},
		{`{"byteCode":{"image":null,"path":"/x.o"}}`, ``},
		{`{"byteCode":{"image":null,"path":"x.o"}}`, `spec.byteCode.path: Invalid value`},
		{`{"byteCode":{"image":{"url":null}}}`, `spec.byteCode.image.url: Required value`},
		{`{"byteCode":{"image":{"url":""}}}`, `spec.byteCode.image.url: Invalid value`},
		{`{"byteCode":{"image":{"url":"` + strings.Repeat("x", 525) + `"}}}`, ``},
		{`{"byteCode":{"image":{"url":"` + strings.Repeat("x", 526) + `"}}}`, `spec.byteCode.image.url: Too long`},
		{`{"byteCode":{"image":{"imagePullPolicy":"Always"}}}`, ``},
		{`{"byteCode":{"image":{"imagePullPolicy":"always"}}}`, `spec.byteCode.image.imagePullPolicy: Unsupported value`},
		{`{"byteCode":{"image":{"imagePullSecret":{"name":"regcred","namespace":"default"}}}}`, ``},
		{`{"byteCode":{"image":{"imagePullSecret":{"name":"regcred"}}}}`, `imagePullSecret.namespace: Required value`},
		{`{"nodeSelector":null}`, `spec.nodeSelector: Required value`},
		{`{"nodeSelector":{"matchLabels":{"a":"b"}}}`, ``},
		{`{"globalData":{"v":"AQ==","w":[1,2]}}`, ``},
		{`{"mapOwnerSelector":{"matchLabels":{"a":"b"}}}`, ``},
		{`{"programs":null}`, `spec.programs: Required value`},
		{`{"programs":[]}`, `spec.programs: Invalid value`},
		{`{"programs":[{"name":"fun"}]}`, `spec.programs[0].type: Required value`},
		{`{"programs":[{"name":"fun","type":"Kprobe","kprobe":{}}]}`, `spec.programs[0].type: Unsupported value`},
		{named("fu"), `spec.programs[0].name: Invalid value`},
		{named("_fun"), `spec.programs[0].name: Invalid value`},
		{named(""), `spec.programs[0].name: Invalid value`},
		{named(strings.Repeat("f", 64)), ``},
		{named(strings.Repeat("f", 65)), `spec.programs[0].name: Too long`},
	}
	linkRules = []validation{
		{links("xdp"), ``},
		{links("xdp", `{}`), `links[0].interfaceSelector: Required value`},
		{links("xdp", `{"interfaceSelector":{}}`), `links[0].interfaceSelector: Invalid value`},
		{links("xdp", `{"interfaceSelector":{"interfaces":["eth0"],"primaryNodeInterface":true}}`), `links[0].interfaceSelector: Too many`},
		{links("xdp", `{"interfaceSelector":{"primaryNodeInterface":false},"priority":0}`), ``},
		{links("xdp", `{"interfaceSelector":{"interfaces":[]},"priority":1000,"proceedOn":[]}`), ``},
		{links("xdp", `{"interfaceSelector":{"interfaces":["eth0"]},"priority":1001}`), `links[0].priority: Invalid value`},
		{links("xdp", `{"interfaceSelector":{"interfaces":["eth0"]},"priority":-1}`), `links[0].priority: Invalid value`},
		{links("xdp", `{"interfaceSelector":{"interfaces":["eth0"]},"proceedOn":["pass"]}`), `links[0].proceedOn[0]: Unsupported value`},
		{links("xdp", `{"interfaceSelector":{"interfaces":["eth0"]},"proceedOn":["Aborted","Drop","Pass","TX","ReDirect","DispatcherReturn","Pass"]}`), ``},
		{links("xdp", `{"interfaceSelector":{"interfaces":["eth0"]},"networkNamespaces":{}}`), `networkNamespaces.pods: Required value`},
		{links("xdp", `{"interfaceSelector":{"interfaces":["eth0"]},"networkNamespaces":{"pods":{},"attachment":"BeforeStart","failurePolicy":"Ignore"}}`), ``},
		{links("xdp", `{"interfaceSelector":{"interfaces":["eth0"]},"networkNamespaces":{"pods":{},"failurePolicy":"Fail"}}`), `failurePolicy needs attachment: BeforeStart`},
		{links("xdp", `{"interfaceSelector":{"interfacesDiscoveryConfig":{"interfaceAutoDiscovery":true,"allowedInterfaces":["/^eth/"]}},"networkNamespaces":{"pods":{}}}`), ``},
		{links("tc", `{"interfaceSelector":{"interfaces":["eth0"]}}`), `links[0].direction: Required value`},
		{links("tc", `{"interfaceSelector":{"interfaces":["eth0"]},"direction":"Up"}`), `links[0].direction: Unsupported value`},
		{links("tc", `{"interfaceSelector":{"interfaces":["eth0"]},"direction":"Ingress","proceedOn":["UnSpec","OK","ReClassify","Shot","Pipe","Stolen","Queued","Repeat","ReDirect","Trap","DispatcherReturn"]}`), ``},
		// Ingress Node Firewall writes small letters.
		{links("tcx", `{"interfaceSelector":{"interfaces":["eth0"]},"direction":"ingress"}`, `{"interfaceSelector":{"interfaces":["eth0"]},"direction":"Egress"}`), ``},
		{links("kprobe", `{"function":"do_unlinkat","offset":4}`), ``},
		{links("kprobe", `{"function":"do_unlinkat","offset":-4}`), `links[0].offset: Invalid value`},
		{links("kprobe", `{"offset":4}`), `links[0].function: Required value`},
		{links("kretprobe", `{"function":"do_unlinkat"}`), ``},
		{links("uprobe", `{"function":"malloc","target":"libc","offset":4,"pid":7,"containers":{"namespace":"acme","pods":{},"containerNames":["web"]}}`), ``},
		{links("uprobe", `{"function":"malloc"}`), `links[0].target: Required value`},
		{links("uretprobe", `{"target":"libc","containers":{}}`), `containers.pods: Required value`},
		{links("tracepoint", `{"name":"syscalls/sys_enter_kill"}`, `{"name":"sched/sched_switch"}`), ``},
		{links("tracepoint", `{}`), `links[0].name: Required value`},
		{linked("fentry", `"function":"do_unlinkat","links":[{"mode":"Attach"}]`), ``},
		{linked("fexit", `"function":"do_unlinkat","links":[{"mode":"Detach"}]`), `links[0].mode: Unsupported value`},
		{linked("fexit", `"function":"do_unlinkat","links":[{"mode":"Attach"},{"mode":"Attach"}]`), `links: Too many`},
		{linked("fentry", `"links":[]`), `fentry.function: Required value`},
	}
)

var linkedTypes = map[string]string{
	"xdp": "XDP", "tc": "TC", "tcx": "TCX", "fentry": "FEntry", "fexit": "FExit", "kprobe": "KProbe", "kretprobe": "KRetProbe",
	"uprobe": "UProbe", "uretprobe": "URetProbe", "tracepoint": "TracePoint",
}

func named(name string) string {
	return fmt.Sprintf(`{"programs":[{"name":%q,"type":"TCX","tcx":{}}]}`, name)
}

// linked returns a spec with a program that has these fields.
func linked(field, fields string) string {
	return fmt.Sprintf(`{"programs":[{"name":"fun","type":%q,%q:{%s}}]}`, linkedTypes[field], field, fields)
}

func links(field string, links ...string) string {
	return linked(field, `"links":[`+strings.Join(links, ",")+`]`)
}

// linkedUnionRules are the rules of the union: each type with its own field, without it, and with each of the others.
func linkedUnionRules() []validation {
	var rules []validation
	fields := slices.Sorted(maps.Keys(linkedTypes))
	refusal := func(field string) string {
		return fmt.Sprintf("%s configuration is required when type is %s, and forbidden otherwise", field, linkedTypes[field])
	}
	for _, own := range fields {
		rules = append(rules,
			validation{linked(own, envtest.Linked(own)), ``},
			validation{fmt.Sprintf(`{"programs":[{"name":"fun","type":%q}]}`, linkedTypes[own]), refusal(own)})
		for _, other := range fields {
			if other != own {
				rules = append(rules, validation{
					fmt.Sprintf(`{"programs":[{"name":"fun","type":%q,%q:{%s},%q:{%s}}]}`, linkedTypes[own], own, envtest.Linked(own), other, envtest.Linked(other)),
					refusal(other),
				})
			}
		}
	}
	return rules
}
