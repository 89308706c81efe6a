// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver_test

import (
	"fmt"
	"testing"
)

const (
	bpfman   = "/apis/bpfman.io/v1alpha1/"
	merge    = "application/merge-patch+json"
	jsonType = "application/json-patch+json"
	apply    = "application/apply-patch+yaml"
)

// tracepoint is a TracepointProgram. More is more metadata, as JSON.
func tracepoint(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram","metadata":{"name":%q%s},
		"spec":{"bpffunctionname":"count","bytecode":{"path":"/object.o"},"names":["syscalls/sys_enter_kill"],"nodeselector":{}}}`, name, more)
}

func configMap(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s},"data":{"key":"value"}}`, name, more)
}

// Each semantic that clients depend on is the same as that of a kube-apiserver.
func TestSemantics(t *testing.T) {
	tracepoints, maps := bpfman+"tracepointprograms", "/api/v1/namespaces/default/configmaps"
	for name, steps := range map[string][]step{
		"create, read, update, delete": {
			{method: "POST", path: tracepoints, body: tracepoint("crud", "")},
			{method: "GET", path: tracepoints + "/crud"},
			{method: "POST", path: tracepoints, body: tracepoint("crud", "")},
			{method: "PUT", path: tracepoints + "/crud", body: tracepoint("crud", `,"resourceVersion":"{version crud}"`)},
			{method: "PUT", path: tracepoints + "/crud", body: tracepoint("crud", "")},
			{method: "PUT", path: tracepoints + "/crud", body: tracepoint("other", `,"resourceVersion":"{version crud}"`)},
			{method: "PUT", path: tracepoints + "/none", body: tracepoint("none", `,"resourceVersion":"{version crud}"`)},
			{method: "DELETE", path: tracepoints + "/crud"},
			{method: "GET", path: tracepoints + "/crud"},
			{method: "DELETE", path: tracepoints + "/crud"},
			{method: "POST", path: maps, body: configMap("crud", "")},
			{method: "POST", path: maps, body: configMap("crud", "")},
			{method: "PUT", path: maps + "/crud", body: configMap("crud", "")},
			{method: "PUT", path: maps + "/none", body: configMap("none", "")},
			{method: "DELETE", path: maps + "/crud"},
			{method: "POST", path: "/api/v1/namespaces/none/configmaps", body: configMap("crud", "")},
			{method: "POST", path: maps, body: configMap("crud", `,"namespace":"other"`)},
			{method: "POST", path: maps, body: configMap("Not a name", "")},
			{method: "POST", path: tracepoints, body: tracepoint("Not a name", "")},
			{method: "POST", path: tracepoints, body: tracepoint("", "")},
		},
		"conflicts and preconditions": {
			{method: "POST", path: tracepoints, body: tracepoint("conflict", "")},
			{method: "PUT", path: tracepoints + "/conflict", body: tracepoint("conflict", `,"resourceVersion":"1"`)},
			{method: "PUT", path: tracepoints + "/conflict", body: tracepoint("conflict", `,"resourceVersion":"{version conflict}","uid":"other"`)},
			{method: "PATCH", path: tracepoints + "/conflict", content: merge, body: `{"metadata":{"resourceVersion":"1","labels":{"a":"b"}}}`},
			{method: "PATCH", path: tracepoints + "/conflict", content: merge, body: `{"metadata":{"uid":"other","labels":{"a":"b"}}}`},
			{method: "PATCH", path: tracepoints + "/conflict", content: merge, body: `{"metadata":{"resourceVersion":"{version conflict}","labels":{"a":"b"}}}`},
			{method: "DELETE", path: tracepoints + "/conflict", body: `{"preconditions":{"uid":"other"}}`},
			{method: "DELETE", path: tracepoints + "/conflict", body: `{"preconditions":{"resourceVersion":"1"}}`},
			{method: "DELETE", path: tracepoints + "/conflict", body: `{"preconditions":{"uid":"{uid conflict}","resourceVersion":"{version conflict}"}}`},
		},
		"patches": {
			{method: "POST", path: tracepoints, body: tracepoint("patch", "")},
			{method: "PATCH", path: tracepoints + "/patch", content: merge, body: `{"spec":{"names":["a/b"]}}`},
			{method: "PATCH", path: tracepoints + "/patch", content: merge, body: `{"spec":{"names":["a/b"]}}`},
			{method: "PATCH", path: tracepoints + "/patch", content: jsonType, body: `[{"op":"test","path":"/metadata/name","value":"other"},{"op":"remove","path":"/spec/names"}]`},
			{method: "PATCH", path: tracepoints + "/patch", content: jsonType, body: `[{"op":"add","path":"/spec/names/-","value":"c/d"}]`},
			{method: "PATCH", path: tracepoints + "/patch", content: jsonType, body: `[{"op":"remove","path":"/spec/none"}]`},
			{method: "PATCH", path: tracepoints + "/patch", content: merge, body: `{"spec":{"names":null}}`},
			{method: "PATCH", path: tracepoints + "/patch", content: merge, body: `{"spec":{"names":"text"}}`},
			{method: "PATCH", path: tracepoints + "/patch", content: merge, body: `{"metadata":{"name":"other"}}`},
			{method: "PATCH", path: tracepoints + "/patch", content: merge, body: `not JSON`},
			{method: "PATCH", path: tracepoints + "/patch", content: "application/strategic-merge-patch+json", body: `{"metadata":{"labels":{"a":"b"}}}`},
			{method: "PATCH", path: tracepoints + "/patch", content: "application/json", body: `{}`},
			{method: "PATCH", path: tracepoints + "/none", content: merge, body: `{}`},
			{method: "POST", path: maps, body: configMap("patch", "")},
			{method: "PATCH", path: maps + "/patch", content: "application/strategic-merge-patch+json", body: `{"data":{"other":"value"}}`},
			{method: "PATCH", path: maps + "/patch", content: merge, body: `{"data":{"key":null}}`},
			{method: "PATCH", path: maps + "/patch?fieldManager=somebody", content: jsonType, body: `[{"op":"replace","path":"/data","value":{"a":"b"}}]`},
		},
		"status and generation": {
			{method: "POST", path: tracepoints, body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram","metadata":{"name":"status","generation":7},
				"spec":{"bpffunctionname":"count","bytecode":{"path":"/object.o"},"names":["a/b"],"nodeselector":{}},"status":{"conditions":[]}}`},
			{method: "PATCH", path: tracepoints + "/status", content: merge, body: `{"status":{"nodes":{"selected":1}}}`},
			{method: "PATCH", path: tracepoints + "/status/status", content: merge, body: `{"spec":{"names":["c/d"]},"metadata":{"labels":{"a":"b"}},"status":{"conditions":[{"type":"Ready","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`},
			{method: "PATCH", path: tracepoints + "/status/status", content: jsonType, body: `[{"op":"test","path":"/metadata/uid","value":"{uid status}"},{"op":"add","path":"/status","value":{}}]`},
			{method: "PATCH", path: tracepoints + "/status/status", content: merge, body: `{"status":{"conditions":"text"}}`},
			{method: "PATCH", path: tracepoints + "/status", content: merge, body: `{"spec":{"names":["c/d"]}}`},
			{method: "PATCH", path: tracepoints + "/status", content: merge, body: `{"metadata":{"annotations":{"a":"b"}}}`},
			{method: "GET", path: tracepoints + "/status/status"},
			{method: "PUT", path: tracepoints + "/status/scale", body: "{}"},
			{method: "PATCH", path: tracepoints + "/none/status", content: merge, body: `{"status":{}}`},
			{method: "PATCH", path: maps + "/none/status", content: merge, body: `{"status":{}}`},
		},
		"finalizers": {
			{method: "POST", path: tracepoints, body: tracepoint("finalizers", `,"finalizers":["bpfman.io/test"]`)},
			{method: "DELETE", path: tracepoints + "/finalizers"},
			{method: "DELETE", path: tracepoints + "/finalizers"},
			{method: "PATCH", path: tracepoints + "/finalizers", content: merge, body: `{"metadata":{"finalizers":["bpfman.io/test","bpfman.io/other"]}}`},
			{method: "PATCH", path: tracepoints + "/finalizers", content: merge, body: `{"metadata":{"finalizers":null}}`},
			{method: "GET", path: tracepoints + "/finalizers"},
			{method: "POST", path: maps, body: configMap("finalizers", `,"finalizers":["bpfman.io/test"]`)},
			{method: "DELETE", path: maps + "/finalizers"},
			{method: "PATCH", path: maps + "/finalizers", content: merge, body: `{"metadata":{"finalizers":[]}}`},
			{method: "GET", path: maps + "/finalizers"},
		},
		"schemas": {
			{method: "POST", path: tracepoints, body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram","metadata":{"name":"schema"},"spec":{"unknown":1}}`},
			{method: "POST", path: tracepoints + "?fieldValidation=Strict", body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram","metadata":{"name":"schema"},
				"spec":{"unknown":1,"bpffunctionname":"count","bytecode":{"path":"/object.o"},"names":["a/b"],"nodeselector":{}}}`},
			{method: "POST", path: tracepoints + "?fieldValidation=Warn", body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram","metadata":{"name":"schema"},
				"spec":{"unknown":1,"bpffunctionname":"count","bytecode":{"image":{"url":"quay.io/a/b"}},"names":["a/b"],"nodeselector":{}}}`},
			{method: "POST", path: bpfman + "rolloutpolicies", body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"RolloutPolicy","metadata":{"name":"schema"},"spec":{"steps":[{"nodes":"no"}]}}`},
			{method: "POST", path: bpfman + "rolloutpolicies", body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"RolloutPolicy","metadata":{"name":"schema"},"spec":{"steps":[{"nodes":1}]}}`},
			{method: "POST", path: bpfman + "bytecodepolicies", body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"BytecodePolicy","metadata":{"name":"schema"},"spec":{"rules":[{"images":["*"],"path":"x"}]}}`},
			{method: "POST", path: tracepoints, body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"XdpProgram","metadata":{"name":"schema"}}`},
			{method: "POST", path: tracepoints, body: `{"apiVersion":"bpfman.io/v1","kind":"TracepointProgram","metadata":{"name":"schema"}}`},
			{method: "POST", path: tracepoints, body: `{`},
			{method: "POST", path: tracepoints},
			{method: "POST", path: maps, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"schema"},"unknown":1}`},
			{method: "POST", path: maps + "?fieldValidation=Strict", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"strict"},"unknown":1}`},
			{method: "POST", path: maps, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"text"},"data":{"a":1}}`},
		},
		"apply": {
			{method: "PATCH", path: maps + "/apply", content: apply, body: configMap("apply", "")},
			{method: "PATCH", path: maps + "/apply?fieldManager=one", content: apply, body: configMap("apply", "")},
			{method: "PATCH", path: maps + "/apply?fieldManager=one", content: apply, body: configMap("apply", "")},
			{method: "PATCH", path: maps + "/apply?fieldManager=two", content: apply, body: `{"apiVersion":"v1","kind":"ConfigMap","data":{"key":"another","more":"x"}}`},
			{method: "PATCH", path: maps + "/apply?fieldManager=two&force=true", content: apply, body: `{"apiVersion":"v1","kind":"ConfigMap","data":{"key":"another","more":"x"}}`},
			{method: "PATCH", path: maps + "/apply?fieldManager=two", content: apply, body: `{"apiVersion":"v1","kind":"ConfigMap","data":{"more":"x"}}`},
			{method: "PATCH", path: maps + "/apply?fieldManager=one", content: apply, body: `{"apiVersion":"v1","kind":"ConfigMap"}`},
			{method: "PATCH", path: maps + "/apply?fieldManager=one", content: apply, body: `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1"}}`},
			{method: "PATCH", path: tracepoints + "/apply?fieldManager=one", content: apply, body: tracepoint("apply", "")},
			{method: "PATCH", path: tracepoints + "/apply?fieldManager=two", content: apply, body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram","metadata":{"labels":{"a":"b"}},"spec":{"names":["x/y"]}}`},
			{method: "PATCH", path: tracepoints + "/apply?fieldManager=two&force=true", content: apply, body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram","metadata":{"labels":{"a":"b"}},"spec":{"names":["x/y"]}}`},
			{method: "PATCH", path: tracepoints + "/apply/status?fieldManager=three", content: apply, body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram","status":{"conditions":[{"type":"Ready","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`},
			{method: "PATCH", path: tracepoints + "/none/status?fieldManager=three", content: apply, body: `{"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram","status":{"conditions":[]}}`},
		},
		"dry run": {
			{method: "POST", path: tracepoints + "?dryRun=All", body: tracepoint("dry", "")},
			{method: "GET", path: tracepoints + "/dry"},
			{method: "POST", path: maps, body: configMap("dry", "")},
			{method: "PATCH", path: maps + "/dry?dryRun=All", content: merge, body: `{"data":{"a":"b"}}`},
			{method: "DELETE", path: maps + "/dry?dryRun=All"},
			{method: "GET", path: maps + "/dry"},
			{method: "POST", path: maps + "?dryRun=All", body: configMap("dry", "")},
			{method: "POST", path: maps + "?dryRun=Some", body: configMap("dry", "")},
		},
		"what isn't there": {
			{method: "GET", path: bpfman + "nothings"},
			{method: "GET", path: "/api/v1/nothings"},
			{method: "GET", path: "/apis/nothing.io/v1/things"},
			{method: "GET", path: "/apis/bpfman.io/v2/tracepointprograms"},
			{method: "GET", path: "/apis/nothing.io/v1"},
			{method: "GET", path: "/apis/nothing.io"},
			{method: "GET", path: "/nothing"},
			{method: "GET", path: bpfman + "namespaces/default/tracepointprograms"},
			{method: "POST", path: "/api/v1/configmaps", body: configMap("nowhere", "")},
			{method: "PUT", path: tracepoints, body: tracepoint("x", "")},
			{method: "POST", path: tracepoints + "/x", body: tracepoint("x", "")},
			{method: "GET", path: tracepoints + "/x/y"},
			{method: "GET", path: maps + "/x/y"},
			{method: "GET", path: tracepoints, accept: "text/html"},
			{method: "GET", path: tracepoints, accept: "application/vnd.kubernetes.protobuf"},
			{method: "POST", path: maps, content: "text/plain", body: "x"},
			{method: "POST", path: tracepoints, content: "application/vnd.kubernetes.protobuf", body: "x"},
			{method: "GET", path: tracepoints + "?labelSelector=a%20b"},
			{method: "GET", path: tracepoints + "?fieldSelector=spec.names=x"},
			{method: "GET", path: "/api/v1/pods?fieldSelector=spec.none=x"},
			{method: "GET", path: maps + "?fieldSelector=data.key=x"},
			{method: "GET", path: maps + "?resourceVersion=text"},
			{method: "GET", path: maps + "?resourceVersionMatch=Exact"},
			{method: "GET", path: maps + "?resourceVersionMatch=Exact&resourceVersion=0"},
			{method: "GET", path: maps + "?sendInitialEvents=true"},
			{method: "GET", path: maps + "?watch=true&sendInitialEvents=true"},
			{method: "GET", path: maps + "?watch=true&resourceVersion=text"},
			{method: "GET", path: maps + "?continue=text"},
		},
	} {
		t.Run(name, func(t *testing.T) { newPair(t).play(steps...) })
	}
}
