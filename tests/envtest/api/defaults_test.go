// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// discover returns a patch that enables the discovery of interfaces.
func discover(config string) string {
	return `{"interfaceselector":{"interfaces":null,"interfacesdiscoveryconfig":` + config + `}}`
}

// The server's defaults, and the fields that it keeps or prunes: the JSON at a path of
// the returned object, or "" for nothing.
func TestDefaults(t *testing.T) {
	for _, test := range []struct {
		kind, patch string
		path        []string
		want        string
	}{
		{"XdpProgram", ``, []string{"bytecode", "image", "imagepullpolicy"}, `"IfNotPresent"`},
		{"XdpProgram", `{"bytecode":{"image":{"imagepullpolicy":"Never"}}}`, []string{"bytecode", "image", "imagepullpolicy"}, `"Never"`},
		{"XdpProgram", ``, []string{"proceedon"}, `["pass","dispatcher_return"]`},
		{"XdpNsProgram", ``, []string{"proceedon"}, `["pass","dispatcher_return"]`},
		{"XdpProgram", `{"proceedon":["drop"]}`, []string{"proceedon"}, `["drop"]`},
		{"XdpProgram", `{"proceedon":[]}`, []string{"proceedon"}, `[]`},
		{"TcProgram", ``, []string{"proceedon"}, `["pipe","dispatcher_return"]`},
		{"TcNsProgram", ``, []string{"proceedon"}, `["pipe","dispatcher_return"]`},
		{"TcxProgram", `{"proceedon":["pass"]}`, []string{"proceedon"}, ``},
		{"XdpProgram", `{"priority":null}`, []string{"priority"}, `1000`},
		{"XdpProgram", `{"priority":0}`, []string{"priority"}, `0`},
		{"TcNsProgram", `{"priority":null}`, []string{"priority"}, `1000`},
		{"TcxProgram", `{"priority":null}`, []string{"priority"}, `1000`},
		{"TcxProgram", ``, []string{"attach"}, ``},
		{"TcxProgram", discover(`{}`), []string{"interfaceselector"}, `{"interfacesdiscoveryconfig":{"excludeinterfaces":["lo"],"interfaceautodiscovery":false}}`},
		{"TcxProgram", discover(`{"excludeinterfaces":[]}`), []string{"interfaceselector", "interfacesdiscoveryconfig", "excludeinterfaces"}, `[]`},
		{"XdpProgram", ``, []string{"containers"}, ``},
		{"XdpProgram", ``, []string{"mapownerselector"}, ``},
		{"XdpProgram", ``, []string{"globaldata"}, ``},
		{"XdpProgram", `{"containers":{"pods":{}}}`, []string{"containers"}, `{"namespace":"","pods":{}}`},
		{"XdpNsProgram", `{"containers":{"namespace":"other"}}`, []string{"containers"}, `{"pods":{}}`},
		{"KprobeProgram", ``, []string{"offset"}, `0`},
		{"KprobeProgram", ``, []string{"retprobe"}, `false`},
		{"UprobeProgram", ``, []string{"offset"}, `0`},
		{"UprobeProgram", ``, []string{"retprobe"}, `false`},
		{"UprobeNsProgram", ``, []string{"offset"}, `0`},
		{"UprobeNsProgram", ``, []string{"retprobe"}, `false`},
		{"UprobeProgram", ``, []string{"pid"}, ``},
		{"UprobeProgram", ``, []string{"func_name"}, ``},
		{"BpfApplication", program("Kretprobe", member("kretprobe", "")), []string{"programs"}, `[{"kretprobe":{"bpffunctionname":"f","func_name":"do_unlinkat","offset":0,"retprobe":false},"type":"Kretprobe"}]`},
		{"BpfApplication", program("TCX", member("tcx", "")), []string{"programs"}, `[{"tcx":{"bpffunctionname":"f","direction":"egress","interfaceselector":{"interfaces":["eth0"]},"priority":0},"type":"TCX"}]`},
		{"BpfNsApplication", program("XDP", member("xdp", ","+envtest.Containers)), []string{"programs"}, `[{"type":"XDP","xdp":{"bpffunctionname":"f","containers":{"pods":{}},"interfaceselector":{"interfaces":["eth0"]},"priority":0,"proceedon":["pass","dispatcher_return"]}}]`},
		{"XdpProgram", `{"nonsense":1}`, []string{"nonsense"}, ``},
		{"BpfProgram", `{"node":"n"}`, []string{"node"}, ``},
		{"XdpProgram", `{"globaldata":{"v":"AQ=="}}`, []string{"globaldata", "v"}, `"AQ=="`},
		{"XdpProgram", `{"globaldata":{"v":[1,255]}}`, []string{"globaldata", "v"}, `[1,255]`},
		{"XdpProgram", `{"globals":{"v":[1,-255,"x",true]}}`, []string{"globals", "v"}, `[1,-255,"x",true]`},
	} {
		t.Run(test.kind+test.patch, func(t *testing.T) {
			k := kinds()[test.kind]
			got, err := client(t, k).Create(deadline(t), object(t, k, "defaults", test.patch), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Fatal(err)
			}
			if found := at(t, got, append([]string{"spec"}, test.path...)...); found != test.want {
				t.Errorf("%v is %s, want %s", test.path, found, test.want)
			}
		})
	}
}

// A write of the object doesn't change the status, and a write of the status changes
// nothing else. Only the former increases the generation.
func TestStatusSubresource(t *testing.T) {
	t.Parallel()
	for name, k := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := client(t, k)
			o := object(t, k, "status", "")
			o.Object["status"] = decode(t, `{"conditions":[`+loaded+`]}`)
			created := create(t, k, o)
			// kstatus must not consider an object without a status done.
			fresh := map[bool]string{true: "", false: `{"observedGeneration":-1}`}[strings.HasPrefix(name, "BpfProgram") || strings.HasPrefix(name, "BpfNsProgram")]
			if got := at(t, created, "status"); got != fresh {
				t.Errorf("status as created: %s", got)
			}
			// Clients that write whole objects don't change it.
			created.Object["status"] = decode(t, `{"conditions":[`+loaded+`],"observedGeneration":1}`)
			created, err := c.Update(deadline(t), created, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := at(t, created, "status"); got != fresh {
				t.Errorf("status after a write of the object: %s", got)
			}

			changed := created.DeepCopy()
			changed.Object["status"] = decode(t, `{"conditions":[`+loaded+`]}`)
			changed.SetLabels(map[string]string{"ignored": "yes"})
			changed.Object["spec"] = map[string]any{}
			updated, err := c.UpdateStatus(deadline(t), changed, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := at(t, updated, "status", "conditions"); got != `[`+loaded+`]` {
				t.Errorf("conditions: %s", got)
			}
			// An operator of upstream's writes no observedGeneration.
			if got := at(t, updated, "status", "observedGeneration"); fresh != "" && got != "-1" {
				t.Errorf("observedGeneration: %s", got)
			}
			if before, after := at(t, created, "spec"), at(t, updated, "spec"); before != after || len(updated.GetLabels()) > 0 {
				t.Errorf("a write of the status changed the object: spec %s, labels %v", after, updated.GetLabels())
			}
			if updated.GetGeneration() != created.GetGeneration() {
				t.Errorf("a write of the status changed the generation to %d", updated.GetGeneration())
			}
		})
	}
}

const loaded = `{"lastTransitionTime":"2026-01-02T03:04:05Z","message":"m","reason":"bpfmanLoaded","status":"True","type":"Loaded"}`

// The status that the server accepts, on the same object.
func TestStatusValidation(t *testing.T) {
	t.Parallel()
	userRules := []validation{
		{`{"observedGeneration":3,"nodes":{"selected":2,"attached":1,"idle":1,"failed":0}}`, ``},
		{`{"nodes":{"selected":2,"attached":1}}`, `status.nodes.failed: Required value`},
		{`{"conditions":[` + loaded + `,` + loaded + `]}`, `status.conditions[1]: Duplicate value`},
		{`{"conditions":[{"type":"Loaded"}]}`, `status.conditions[0].reason: Required value`},
	}
	reportRules := []validation{
		{`{"programid":0,"mapids":[0,4294967295],"mapownerid":4294967295}`, ``},
		{`{"programid":4294967295}`, ``},
		{`{"programid":4294967296}`, `status.programid: Invalid value`},
		{`{"programid":-1}`, `status.programid: Invalid value`},
		{`{"mapids":[4294967296]}`, `status.mapids[0]: Invalid value`},
		{`{"mapids":[-1]}`, `status.mapids[0]: Invalid value`},
		{`{"mapownerid":4294967296}`, `status.mapownerid: Invalid value`},
		{`{"mapownerid":-1}`, `status.mapownerid: Invalid value`},
		{`{"links":[{"attachpoint":"eth0","state":"Attached","linkid":4294967295},{"attachpoint":"eth1","state":"NotAttached","error":"no such interface"}]}`, ``},
		{`{"links":[{"attachpoint":"eth0","state":"Attached","linkid":4294967296}]}`, `status.links[0].linkid: Invalid value`},
		{`{"links":[{"attachpoint":"eth0","state":"Attached","linkid":-1}]}`, `status.links[0].linkid: Invalid value`},
		{`{"links":[{"attachpoint":"eth0","state":"attached"}]}`, `status.links[0].state: Unsupported value`},
		{`{"links":[{"attachpoint":"eth0"}]}`, `status.links[0].state: Required value`},
		{`{"links":[{"state":"Attached"}]}`, `attachpoint: Required value`},
		{`{"links":[{"attachpoint":"eth0","state":"Attached"},{"attachpoint":"eth0","state":"Attached"}]}`, `status.links[1]: Duplicate value`},
		{`{"node":"n","ownergeneration":2,"function":"f","tag":"0011223344556677","loadedat":"2026-01-02T03:04:05Z","mapusedby":["p"]}`, ``},
	}
	for name, rules := range map[string][]validation{
		"XdpProgram": userRules, "TcNsProgram": userRules, "BpfApplication": userRules,
		"BpfProgram": reportRules, "BpfNsProgram": reportRules,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kinds()[name]
			created := create(t, k, object(t, k, "status-validation", ""))
			for _, v := range rules {
				changed := created.DeepCopy()
				changed.Object["status"] = decode(t, v.patch)
				got, err := client(t, k).UpdateStatus(deadline(t), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
				v.refusal = strings.TrimPrefix(v.refusal, "status.") // Kubernetes 1.30 leaves it out
				checkRefusal(t, v, err)
				if err == nil {
					checkKept(t, v.patch, got)
				}
			}
		})
	}
}

// checkKept fails if the server pruned a field of a status.
func checkKept(t *testing.T, status string, got *unstructured.Unstructured) {
	t.Helper()
	if found := at(t, got, "status"); found != encode(t, decode(t, status)) {
		t.Errorf("%s became %s", status, found)
	}
}

// Go clients for upstream write every field that they know, even if it isn't set.
func TestUpstreamGoClientsWrites(t *testing.T) {
	k := kinds()["UprobeProgram"]
	o := object(t, k, "upstream", `{"func_name":"","offset":0,"pid":0,"retprobe":false,"mapownerselector":{}}`)
	must.Succeed(t, unstructured.SetNestedField(o.Object, nil, "spec", "containers"))
	got, err := client(t, k).Create(deadline(t), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if found := at(t, got, "spec", "containers"); found != "" {
		t.Errorf("containers: null became %s", found)
	}
}
