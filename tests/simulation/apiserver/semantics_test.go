// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

func daemonSet(image, value string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"set"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
		"spec":{"containers":[{"name":"c","image":%q,"env":[{"name":"KEY","value":%q},{"name":"NODE","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}],
		"ports":[{"containerPort":80}],"volumeMounts":[{"name":"v","mountPath":"/v"}],"resources":{"limits":{"memory":"1Gi"}},
		"livenessProbe":{"exec":{"command":["x"]}},"securityContext":{}}],"initContainers":[{"name":"i","image":"quay.io/a/b"}],
		"volumes":[{"name":"v","hostPath":{"path":"/v"}},{"name":"c","configMap":{"name":"c"}},{"name":"e","emptyDir":{}}]}}}}`, image, value)
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
			{method: "PATCH", path: tracepoints + "/patch", content: merge, body: `not JSON`, codeOnly: true},
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
		"lists": {
			{method: "POST", path: maps, body: configMap("list-a", `,"labels":{"list":"one","more":"x"}`)},
			{method: "POST", path: maps, body: configMap("list-b", `,"labels":{"list":"one"}`)},
			{method: "POST", path: maps, body: configMap("list-c", `,"labels":{"list":"two"}`)},
			{method: "GET", path: maps + "?labelSelector=list"},
			{method: "GET", path: maps + "?labelSelector=list%3Done"},
			{method: "GET", path: maps + "?labelSelector=list+in+(one,two),more!%3Dx"},
			{method: "GET", path: maps + "?fieldSelector=metadata.name%3Dlist-b"},
			{method: "GET", path: maps + "?fieldSelector=metadata.name!%3Dlist-b&labelSelector=list"},
			{method: "GET", path: "/api/v1/configmaps?fieldSelector=metadata.name%3Dlist-b,metadata.namespace%3Ddefault"},
			{method: "GET", path: maps + "?labelSelector=list&limit=2"},
			{method: "GET", path: maps + "?labelSelector=list&limit=2&continue={continue list}"},
			{method: "GET", path: maps + "?labelSelector=list&resourceVersion=0"},
			{method: "GET", path: maps + "?labelSelector=list&resourceVersion=0&limit=1"},
			{method: "GET", path: maps + "?labelSelector=list&resourceVersion={version list-a}&resourceVersionMatch=Exact"},
			{method: "GET", path: maps + "?labelSelector=list&resourceVersion={version list-a}&resourceVersionMatch=NotOlderThan"},
			{method: "GET", path: maps + "?labelSelector=list&resourceVersion={version list-a}"},
			{method: "GET", path: maps + "?labelSelector=none"},
			{method: "GET", path: maps + "?resourceVersion=99999999"},
			{method: "GET", path: maps + "?limit=1&resourceVersion=99999999&resourceVersionMatch=Exact"},
			{method: "GET", path: maps + "/list-a?resourceVersion=0"},
			{method: "GET", path: maps + "/list-a?resourceVersion=99999999"},
			{method: "GET", path: maps + "?labelSelector=list", accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
			{method: "GET", path: maps + "/list-a", accept: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
			{method: "GET", path: maps + "/none", accept: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
			{method: "GET", path: maps + "?labelSelector=list", accept: "application/vnd.kubernetes.protobuf,application/json"},
			{method: "POST", path: tracepoints, body: tracepoint("list-a", `,"labels":{"list":"one"}`)},
			{method: "POST", path: tracepoints, body: tracepoint("list-b", `,"labels":{"list":"one"}`)},
			{method: "GET", path: tracepoints + "?labelSelector=list"},
			{method: "GET", path: tracepoints + "?labelSelector=list&limit=1"},
			{method: "GET", path: tracepoints + "?labelSelector=list&limit=1&resourceVersion=0"},
			{method: "GET", path: tracepoints + "?limit=1&labelSelector=list", accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
			{method: "DELETE", path: maps + "?labelSelector=list%3Done&dryRun=All"},
			{method: "DELETE", path: maps + "?labelSelector=list%3Done"},
			{method: "GET", path: maps + "?labelSelector=list"},
			{method: "DELETE", path: tracepoints + "?labelSelector=list"},
			{method: "GET", path: tracepoints + "?labelSelector=list"},
		},
		"kinds of Kubernetes": {
			{method: "POST", path: "/api/v1/nodes", body: `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`},
			{method: "PATCH", path: "/api/v1/nodes/node", content: merge, body: `{"metadata":{"labels":{"a":"b"}},"status":{"conditions":[]}}`},
			{method: "PATCH", path: "/api/v1/nodes/node/status", content: "application/strategic-merge-patch+json", body: `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`},
			{method: "GET", path: "/api/v1/nodes/node", accept: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
			{method: "GET", path: "/api/v1/nodes?fieldSelector=metadata.name%3Dnode"},
			{method: "GET", path: "/api/v1/namespaces/default/nodes/node"},
			{method: "DELETE", path: "/api/v1/nodes/node"},
			{method: "POST", path: "/apis/coordination.k8s.io/v1/namespaces/default/leases", body: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lease"},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":"2026-01-01T00:00:00.000000Z"}}`},
			{method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/default/leases/lease", body: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lease","resourceVersion":"{version lease}"},"spec":{"holderIdentity":"b","leaseDurationSeconds":15}}`},
			{method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/default/leases/lease", body: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lease","resourceVersion":"1"},"spec":{"holderIdentity":"b"}}`},
			{method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/default/leases/lease", body: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lease"},"spec":{"holderIdentity":"b"}}`},
			{method: "POST", path: "/apis/events.k8s.io/v1/namespaces/default/events", body: `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"event"},"eventTime":"2026-01-01T00:00:00.000000Z",
				"reportingController":"c","reportingInstance":"i","action":"Act","reason":"Because","note":"text","type":"Normal","regarding":{"kind":"ConfigMap","namespace":"default","name":"x"}}`},
			{method: "PATCH", path: "/apis/events.k8s.io/v1/namespaces/default/events/event", content: merge, body: `{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:01.000000Z"}}`},
			{method: "PATCH", path: "/apis/events.k8s.io/v1/namespaces/default/events/event", content: "application/strategic-merge-patch+json", body: `{"series":{"count":3,"lastObservedTime":"2026-01-01T00:00:02.000000Z"}}`},
			{method: "GET", path: "/api/v1/namespaces/default/events/event"},
			{method: "GET", path: "/api/v1/namespaces/default/events?fieldSelector=reason%3DBecause,involvedObject.name%3Dx"},
			{method: "GET", path: "/api/v1/namespaces/default/events?fieldSelector=reason%3DOther"},
			// Since Kubernetes 1.37, there is one about the address of the Service kubernetes.
			{method: "GET", path: "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=metadata.name%3Devent"},
			{method: "DELETE", path: "/api/v1/namespaces/default/events/event"},
			{method: "POST", path: "/apis/apps/v1/namespaces/default/controllerrevisions", body: `{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"revision"},"revision":1,"data":{"a":{"b":1}}}`},
			{method: "PATCH", path: "/apis/apps/v1/namespaces/default/controllerrevisions/revision", content: merge, body: `{"revision":2}`},
			{method: "DELETE", path: "/apis/apps/v1/namespaces/default/controllerrevisions/revision"},
			{method: "PATCH", path: "/apis/storage.k8s.io/v1/csidrivers/csi.bpfman.io?fieldManager=a", content: apply, body: `{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"csi.bpfman.io"},"spec":{"attachRequired":false,"podInfoOnMount":true,"volumeLifecycleModes":["Ephemeral"],"fsGroupPolicy":"None"}}`},
			{method: "DELETE", path: "/apis/storage.k8s.io/v1/csidrivers/csi.bpfman.io"},
			{method: "POST", path: "/api/v1/namespaces/default/secrets", body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"secret"},"stringData":{"a":"b"}}`},
			{method: "GET", path: "/api/v1/namespaces/default/secrets?fieldSelector=type%3DOpaque"},
			{method: "POST", path: "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", body: `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"slice"},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}`},
			{method: "POST", path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"admin","groups":["system:masters"],"resourceAttributes":{"verb":"get","resource":"pods"}}}`, codeOnly: true},
			{method: "GET", path: "/apis/authorization.k8s.io/v1/subjectaccessreviews"},
		},
		"protobuf": {
			{method: "POST", path: maps, content: runtime.ContentTypeProtobuf, accept: runtime.ContentTypeProtobuf, body: protobuf(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "protobuf"}, Data: map[string]string{"a": "b"}}, corev1.SchemeGroupVersion)},
			{method: "PUT", path: maps + "/protobuf", content: runtime.ContentTypeProtobuf, accept: "application/vnd.kubernetes.protobuf,application/json", body: protobuf(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "protobuf"}, Data: map[string]string{"a": "c"}}, corev1.SchemeGroupVersion)},
			{method: "PUT", path: maps + "/none", content: runtime.ContentTypeProtobuf, accept: runtime.ContentTypeProtobuf, body: protobuf(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, corev1.SchemeGroupVersion)},
			{method: "DELETE", path: maps + "/protobuf", content: runtime.ContentTypeProtobuf, accept: runtime.ContentTypeProtobuf, body: protobuf(t, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("other"))}}, schema.GroupVersion{Version: "v1"})},
			{method: "GET", path: maps + "/protobuf", accept: runtime.ContentTypeProtobuf},
			{method: "DELETE", path: tracepoints + "/protobuf", content: runtime.ContentTypeProtobuf, body: protobuf(t, &metav1.DeleteOptions{}, schema.GroupVersion{Version: "v1"})},
			{method: "POST", path: maps, content: runtime.ContentTypeProtobuf, body: "neither"},
		},
		"namespaces": {
			{method: "POST", path: "/api/v1/namespaces", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"lives"}}`},
			{method: "POST", path: "/api/v1/namespaces/lives/configmaps", body: configMap("content", "")},
			{method: "PATCH", path: "/api/v1/namespaces/lives", content: merge, body: `{"metadata":{"labels":{"a":"b"}}}`},
			{method: "GET", path: "/api/v1/namespaces/lives"},
			{method: "DELETE", path: "/api/v1/namespaces/lives", body: `{"preconditions":{"uid":"other"}}`},
			{method: "DELETE", path: "/api/v1/namespaces/lives"},
			{method: "DELETE", path: "/api/v1/namespaces/lives"},
			{method: "POST", path: "/api/v1/namespaces/lives/configmaps", body: configMap("late", "")},
			{method: "PATCH", path: "/api/v1/namespaces/lives/configmaps/content", content: merge, body: `{"data":{"a":"b"}}`},
			{method: "PATCH", path: "/api/v1/namespaces/lives/configmaps/late?fieldManager=a", content: apply, body: configMap("late", "")},
			{method: "DELETE", path: "/api/v1/namespaces/none"},
		},
		"pods and workloads": {
			{method: "POST", path: "/api/v1/namespaces/default/serviceaccounts", body: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`},
			{method: "POST", path: "/api/v1/namespaces/default/pods", body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod","labels":{"a":"b"}},"spec":{"nodeName":"node","automountServiceAccountToken":false,"containers":[{"name":"c","image":"quay.io/a/b:v1"}]}}`},
			{method: "PATCH", path: "/api/v1/namespaces/default/pods/pod/status", content: "application/strategic-merge-patch+json", body: `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"podIP":"10.0.0.1","containerStatuses":[{"name":"c","ready":true,"restartCount":0,"image":"i","imageID":"j","state":{"running":{}}}]}}`},
			{method: "PATCH", path: "/api/v1/namespaces/default/pods/pod", content: merge, body: `{"metadata":{"annotations":{"a":"b"}}}`},
			{method: "GET", path: "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode,status.phase%3DRunning"},
			{method: "GET", path: "/api/v1/pods?fieldSelector=spec.nodeName%3Dother"},
			{method: "DELETE", path: "/api/v1/namespaces/default/pods/pod"},
			{method: "DELETE", path: "/api/v1/namespaces/default/pods/pod", body: `{"gracePeriodSeconds":0}`},
			{method: "GET", path: "/api/v1/namespaces/default/pods/pod"},
			{method: "PATCH", path: "/apis/apps/v1/namespaces/default/daemonsets/set?fieldManager=one", content: apply, body: daemonSet("quay.io/a/b:v1", "1")},
			{method: "PATCH", path: "/apis/apps/v1/namespaces/default/daemonsets/set?fieldManager=one", content: apply, body: daemonSet("quay.io/a/b:v1", "1")},
			{method: "PATCH", path: "/apis/apps/v1/namespaces/default/daemonsets/set?fieldManager=two", content: apply, body: daemonSet("quay.io/a/b:v2", "1")},
			{method: "PATCH", path: "/apis/apps/v1/namespaces/default/daemonsets/set?fieldManager=one", content: apply, body: daemonSet("quay.io/a/b:v2", "2")},
			{method: "PATCH", path: "/apis/apps/v1/namespaces/default/daemonsets/set/status", content: merge, body: `{"status":{"currentNumberScheduled":1,"desiredNumberScheduled":1,"numberMisscheduled":0,"numberReady":1,"observedGeneration":2}}`},
			{method: "PATCH", path: "/apis/apps/v1/namespaces/default/daemonsets/set", content: merge, body: `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"quay.io/a/b:v3"}]}}}}`},
			{method: "DELETE", path: "/apis/apps/v1/namespaces/default/daemonsets/set", body: `{"propagationPolicy":"Foreground"}`},
		},
	} {
		t.Run(name, func(t *testing.T) { newPair(t).play(steps...) })
	}
}

// Watches have the same events, in the same order.
func TestWatches(t *testing.T) {
	maps, tracepoints := "/api/v1/namespaces/default/configmaps", bpfman+"tracepointprograms"
	changes := []step{
		{method: "POST", path: maps, body: configMap("a", `,"labels":{"watch":"yes"}`)},
		{method: "PATCH", path: maps + "/a", content: merge, body: `{"data":{"key":"other"}}`},
		{method: "PATCH", path: maps + "/a", content: merge, body: `{"data":{"key":"other"}}`},
		{method: "PATCH", path: maps + "/a", content: merge, body: `{"metadata":{"labels":{"watch":"no"}}}`},
		{method: "PATCH", path: maps + "/a", content: merge, body: `{"metadata":{"labels":{"watch":"yes"}}}`},
		{method: "POST", path: maps, body: configMap("b", `,"finalizers":["bpfman.io/test"],"labels":{"watch":"yes"}`)},
		{method: "DELETE", path: maps + "/a"},
		{method: "DELETE", path: maps + "/b"},
		{method: "PATCH", path: maps + "/b", content: merge, body: `{"metadata":{"finalizers":null}}`},
		{method: "POST", path: maps, body: configMap("end", `,"labels":{"watch":"yes"}`)},
		{method: "DELETE", path: maps + "/end"},
	}
	programs := []step{
		{method: "POST", path: tracepoints, body: tracepoint("a", `,"labels":{"watch":"yes"}`)},
		{method: "PATCH", path: tracepoints + "/a", content: merge, body: `{"spec":{"names":["a/b"]}}`},
		{method: "PATCH", path: tracepoints + "/a/status", content: jsonType, body: `[{"op":"add","path":"/status","value":{}}]`},
		{method: "PATCH", path: tracepoints + "/a", content: merge, body: `{"metadata":{"labels":{"watch":"no"}}}`},
		{method: "PUT", path: tracepoints + "/a", body: tracepoint("a", `,"labels":{"watch":"yes"},"resourceVersion":"{version a}"`)},
		{method: "DELETE", path: tracepoints + "/a"},
		{method: "POST", path: tracepoints, body: tracepoint("end", `,"labels":{"watch":"yes"}`)},
		{method: "DELETE", path: tracepoints + "/end"},
	}
	for name, test := range map[string]struct {
		before []step
		query  string
		accept string
	}{
		"from a list":         {[]step{{method: "GET", path: maps + "?labelSelector=watch"}}, "resourceVersion={version list}&labelSelector=watch", ""},
		"with a selector":     {[]step{{method: "GET", path: maps + "?labelSelector=watch"}}, "resourceVersion={version list}&labelSelector=watch%3Dyes", ""},
		"without a version":   {nil, "labelSelector=watch", ""},
		"from any version":    {nil, "labelSelector=watch%3Dyes&resourceVersion=0", ""},
		"with initial events": {nil, "labelSelector=watch&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", ""},
		"of metadata":         {nil, "labelSelector=watch", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
		"of one object":       {nil, "fieldSelector=metadata.name%3Dend", ""},
		"without initial events": {
			[]step{{method: "GET", path: maps + "?labelSelector=watch"}},
			"resourceVersion={version list}&labelSelector=watch&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.play(test.before...)
			p.watch(step{method: "GET", path: maps + "?watch=true&" + test.query, accept: test.accept}, changes...)
			if test.before == nil {
				p.watch(step{method: "GET", path: tracepoints + "?watch=true&" + test.query, accept: test.accept}, programs...)
			}
		})
	}
}

// The history of a watch cache of kube-apiserver begins when its definition is created, after version 1.
func TestWatchFromAVersionThatIsForgotten(t *testing.T) {
	newPair(t).watch(step{method: "GET", path: bpfman + "tracepointprograms?watch=true&resourceVersion=1"})
}
