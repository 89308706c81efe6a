// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"encoding/json"
	"testing"
)

const (
	linkedOnHost   = `"interfaceselector":{"interfaces":["eth0"]}`
	linkedPods     = `"containers":{"namespace":"acme","pods":{"matchLabels":{"app":"web"}}}`
	linkedDiscover = `{"interfacesdiscoveryconfig":{"interfaceautodiscovery":true,"excludeinterfaces":["lo"],"allowedinterfaces":["/^eth/"]}}`
)

func TestLinksBecomeMembers(t *testing.T) {
	for title, test := range map[string]struct{ program, want string }{
		"a link for each interface": {
			`"type":"XDP","xdp":{"links":[{"interfaceSelector":{"interfaces":["eth0"]},"priority":0,"proceedOn":["Aborted","Drop","Pass","TX","ReDirect","DispatcherReturn","Pass"]},
				{"interfaceSelector":{"primaryNodeInterface":false},"proceedOn":[]}]}`,
			`{"type":"XDP","xdp":{"bpffunctionname":"fun",` + linkedOnHost + `,"priority":0,"proceedon":["aborted","drop","pass","tx","redirect","dispatcher_return"]}},
			{"type":"XDP","xdp":{"bpffunctionname":"fun","interfaceselector":{"primarynodeinterface":true},"priority":1000,"proceedon":[]}}`,
		},
		"the results that are the default": {
			`"type":"XDP","xdp":{"links":[{"interfaceSelector":{"interfaces":["eth0"]}}]}`,
			`{"type":"XDP","xdp":{"bpffunctionname":"fun",` + linkedOnHost + `,"priority":1000,"proceedon":["pass","dispatcher_return"]}}`,
		},
		"in pods": {
			`"type":"TC","tc":{"links":[{"direction":"Ingress","priority":7,"interfaceSelector":{"interfaces":["eth0"]},
				"networkNamespaces":{"namespace":"acme","pods":{"matchLabels":{"app":"web"}}},
				"proceedOn":["UnSpec","OK","ReClassify","Shot","Pipe","Stolen","Queued","Repeat","ReDirect","Trap","DispatcherReturn"]}]}`,
			`{"type":"TC","tc":{"bpffunctionname":"fun",` + linkedOnHost + `,` + linkedPods + `,"direction":"ingress","priority":7,
				"proceedon":["unspec","ok","reclassify","shot","pipe","stolen","queued","repeat","redirect","trap","dispatcher_return"]}}`,
		},
		"a discovery on the host and in all pods": {
			`"type":"TCX","tcx":{"links":[{"direction":"egress","interfaceSelector":{"interfacesDiscoveryConfig":{"interfaceAutoDiscovery":true,"excludeInterfaces":["lo"],"allowedInterfaces":["/^eth/"]}}}]}`,
			`{"type":"TCX","tcx":{"bpffunctionname":"fun","interfaceselector":` + linkedDiscover + `,"direction":"egress","priority":1000}},
			{"type":"TCX","tcx":{"bpffunctionname":"fun","interfaceselector":` + linkedDiscover + `,"containers":{"pods":{}},"direction":"egress","priority":1000}}`,
		},
		"a discovery in pods": {
			`"type":"TCX","tcx":{"links":[{"direction":"Egress","interfaceSelector":{"interfacesDiscoveryConfig":{"interfaceAutoDiscovery":true,"excludeInterfaces":["lo"],"allowedInterfaces":["/^eth/"]}},
				"networkNamespaces":{"namespace":"acme","pods":{"matchLabels":{"app":"web"}}}}]}`,
			`{"type":"TCX","tcx":{"bpffunctionname":"fun","interfaceselector":` + linkedDiscover + `,` + linkedPods + `,"direction":"egress","priority":1000}}`,
		},
		"a discovery that is off": {
			`"type":"TCX","tcx":{"links":[{"direction":"Egress","interfaceSelector":{"interfacesDiscoveryConfig":{"excludeInterfaces":[]}}}]}`,
			`{"type":"TCX","tcx":{"bpffunctionname":"fun","interfaceselector":{"interfacesdiscoveryconfig":{"excludeinterfaces":[]}},"direction":"egress","priority":1000}}`,
		},
		"kernel functions": {
			`"type":"KProbe","kprobe":{"links":[{"function":"schedule","offset":8},{"function":"do_exit"}]}`,
			`{"type":"Kprobe","kprobe":{"bpffunctionname":"fun","func_name":"schedule","offset":8}},{"type":"Kprobe","kprobe":{"bpffunctionname":"fun","func_name":"do_exit"}}`,
		},
		"returns of kernel functions": {
			`"type":"KRetProbe","kretprobe":{"links":[{"function":"schedule"}]}`,
			`{"type":"Kretprobe","kretprobe":{"bpffunctionname":"fun","func_name":"schedule"}}`,
		},
		"functions in containers": {
			`"type":"UProbe","uprobe":{"links":[{"function":"malloc","offset":4,"target":"libc","pid":7,"containers":{"namespace":"acme","pods":{"matchLabels":{"app":"web"}},"containerNames":["a"]}},{"target":"libz"}]}`,
			`{"type":"Uprobe","uprobe":{"bpffunctionname":"fun","func_name":"malloc","offset":4,"target":"libc","pid":7,"containers":{"namespace":"acme","pods":{"matchLabels":{"app":"web"}},"containernames":["a"]}}},
			{"type":"Uprobe","uprobe":{"bpffunctionname":"fun","target":"libz"}}`,
		},
		"returns of functions": {
			`"type":"URetProbe","uretprobe":{"links":[{"target":"libz"}]}`,
			`{"type":"Uretprobe","uretprobe":{"bpffunctionname":"fun","target":"libz"}}`,
		},
		"tracepoints": {
			`"type":"TracePoint","tracepoint":{"links":[{"name":"a/b"},{"name":"c/d"}]}`,
			`{"type":"Tracepoint","tracepoint":{"bpffunctionname":"fun","names":["a/b","c/d"]}}`,
		},
		"fentry": {
			`"type":"FEntry","fentry":{"function":"schedule","links":[{"mode":"Attach"}]}`,
			`{"type":"Fentry","fentry":{"bpffunctionname":"fun","func_name":"schedule"}}`,
		},
		"fexit without links": {
			`"type":"FExit","fexit":{"function":"schedule","links":[]}`,
			`{"type":"Fexit","fexit":{"bpffunctionname":"fun","func_name":"schedule","attach":false}}`,
		},
		"tracepoints without links": {
			`"type":"TracePoint","tracepoint":{}`,
			`{"type":"Tracepoint","tracepoint":{"bpffunctionname":"fun","names":[],"attach":false}}`,
		},
		"kprobe without links": {
			`"type":"KProbe","kprobe":{"links":[]}`,
			`{"type":"Kprobe","kprobe":{"bpffunctionname":"fun","func_name":"","attach":false}}`,
		},
		"xdp without links": {
			`"type":"XDP","xdp":{}`,
			`{"type":"XDP","xdp":{"bpffunctionname":"fun","interfaceselector":{},"attach":false,"priority":1000}}`,
		},
		"without the field of its type": {`"type":"XDP","tc":{}`, `{"type":"XDP"}`},
	} {
		var o ClusterBpfApplication
		var want []BpfApplicationProgram
		if err := json.Unmarshal([]byte(`{"spec":{"programs":[{"name":"fun",`+test.program+`}]}}`), &o); err != nil {
			t.Fatalf("%s: %v", title, err)
		}
		if err := json.Unmarshal([]byte("["+test.want+"]"), &want); err != nil {
			t.Fatalf("%s: %v", title, err)
		}
		members, namespaced := o.Members()
		got, expected := encoded(t, members), encoded(t, want)
		if got != expected || namespaced {
			t.Errorf("%s:\n%s, want\n%s", title, got, expected)
		}
	}
}

func encoded(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Nothing is attached, so a policy has nothing to decide about.
func TestProgramsWithoutLinksNameNoHooks(t *testing.T) {
	for _, p := range []ClusterBpfApplicationProgram{
		{Type: ApplicationXDP, XDP: &XdpLinks{}},
		{Type: ApplicationKProbe, KProbe: &KprobeLinks{}},
		{Type: ApplicationUProbe, UProbe: &UprobeLinks{}},
		{Type: ApplicationTracePoint, TracePoint: &TracepointLinks{}},
	} {
		for _, m := range p.Members() {
			if hooks := m.Info().NamedHooks(); len(hooks.Interfaces)+len(hooks.Tracepoints) > 0 || hooks.Function != nil || hooks.Target != nil {
				t.Errorf("%s: %+v", p.Type, hooks)
			}
		}
	}
}

// A program without links is in no chain, so limits of priorities don't apply to it.
func TestChains(t *testing.T) {
	for name, p := range map[string]ClusterBpfApplicationProgram{
		"xdp": {Type: ApplicationXDP, XDP: &XdpLinks{}}, "tc": {Type: ApplicationTC, TC: &TcLinks{}}, "tcx": {Type: ApplicationTCX, TCX: &TcxLinks{}},
	} {
		if chain := p.Members()[0].Info().Chain(); chain != nil {
			t.Errorf("%s without links: %+v", name, chain)
		}
	}
	named := NetworkLink{InterfaceSelector: LinkInterfaces{Interfaces: &[]string{"eth0"}}}
	p := ClusterBpfApplicationProgram{Type: ApplicationTCX, TCX: &TcxLinks{Links: []TcxLink{{NetworkLink: named}}}}
	if chain := p.Members()[0].Info().Chain(); chain == nil || chain.Priority != 1000 {
		t.Errorf("tcx with a link: %+v", chain)
	}
}
