// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package upstream

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

type fields = map[string]any

// v06Kind is a kind of upstream's v0.6.
type v06Kind struct {
	name       string
	namespaced bool
	spec       fields
}

func (k v06Kind) plural() string { return strings.ToLower(k.name) + "s" }

// v06Application is the part of the schema of an application's spec in v0.6 that tests need.
var v06Application = fields{
	"type":                                 "object",
	"required":                             []any{"programs"},
	"x-kubernetes-preserve-unknown-fields": true,
	"properties": fields{
		"byteCode": fields{"type": "object", "minProperties": int64(1), "maxProperties": int64(1), "x-kubernetes-preserve-unknown-fields": true},
		"programs": fields{
			"type": "array", "minItems": int64(1),
			"items": fields{
				"type": "object", "required": []any{"name", "type"}, "x-kubernetes-preserve-unknown-fields": true,
				"properties": fields{
					"name": fields{"type": "string", "maxLength": int64(64)},
					"type": fields{"type": "string", "enum": []any{
						"XDP", "TC", "TCX", "FEntry", "FExit", "KProbe", "KRetProbe", "UProbe", "URetProbe", "TracePoint",
					}},
				},
			},
		},
	},
}

var v06Kinds = []v06Kind{
	{"BpfApplication", true, v06Application},
	{"BpfApplicationState", true, nil},
	{"ClusterBpfApplication", false, v06Application},
	{"ClusterBpfApplicationState", false, nil},
	{"Config", false, fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
}

// V06Definitions returns the CustomResourceDefinitions of upstream's v0.6.0, with their names, their scopes, and
// the part of the schema that the objects here need.
func V06Definitions() []*unstructured.Unstructured {
	var definitions []*unstructured.Unstructured
	for _, kind := range v06Kinds {
		scope := "Cluster"
		if kind.namespaced {
			scope = "Namespaced"
		}
		properties := fields{"status": fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
		if kind.spec != nil {
			properties["spec"] = kind.spec
		}
		definitions = append(definitions, &unstructured.Unstructured{Object: fields{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata":   fields{"name": kind.plural() + "." + v1alpha1.SchemeGroupVersion.Group},
			"spec": fields{
				"group": v1alpha1.SchemeGroupVersion.Group,
				"names": fields{"kind": kind.name, "listKind": kind.name + "List", "plural": kind.plural(), "singular": strings.ToLower(kind.name)},
				"scope": scope,
				"versions": []any{fields{
					"name": v1alpha1.SchemeGroupVersion.Version, "served": true, "storage": true,
					"subresources": fields{"status": fields{}},
					"schema":       fields{"openAPIV3Schema": fields{"type": "object", "properties": properties}},
				}},
			},
		}})
	}
	return definitions
}

// V06Objects returns objects of users and of upstream's operator in a cluster with v0.6.0. namespace is a
// namespace of users. The status has to be written through its subresource. Finalizers are upstream's.
func V06Objects(namespace string) []*unstructured.Unstructured {
	links := fields{"links": []any{fields{
		"direction": "Ingress", "interfaceSelector": fields{"primaryNodeInterface": true}, "priority": int64(500),
	}}}
	application := fields{
		"nodeSelector": fields{},
		"byteCode":     fields{"image": fields{"url": "quay.io/bpfman-bytecode/app-test:latest", "imagePullPolicy": "IfNotPresent"}},
		"programs":     []any{fields{"name": "tcx_stats", "type": "TCX", "tcx": links}},
	}
	loaded := fields{
		"node": "node", "appLoadStatus": "LoadSuccess", "updateCount": int64(1),
		"conditions": []any{fields{
			"type": "Success", "status": "True", "reason": "Success", "message": "The BPF application has been successfully loaded and attached",
			"lastTransitionTime": "2026-11-21T00:00:00Z",
		}},
	}
	owned := fields{"bpfman.io/ownedByProgram": "counter", "kubernetes.io/hostname": "node"}
	return []*unstructured.Unstructured{
		v06Object("Config", "", "bpfman-config", "bpfman.io/config-finalizer", nil, fields{
			"agent":         fields{"image": "quay.io/bpfman/bpfman-agent:v0.6.0", "healthProbePort": int64(8175)},
			"daemon":        fields{"image": "quay.io/bpfman/bpfman:v0.6.0"},
			"configuration": "[database]\nmax_retries = 30\nmillisec_delay = 10000\n",
			"namespace":     "bpfman",
		}, nil),
		v06Object("ClusterBpfApplication", "", "counter", "bpfman.io.operator/finalizer", nil, application, fields{"conditions": loaded["conditions"]}),
		v06Object("ClusterBpfApplicationState", "", "counter-0a1b2c3d", "bpfman.io.clbpfapplicationcontroller/finalizer", owned, nil, loaded),
		v06Object("BpfApplication", namespace, "counter", "bpfman.io.operator/finalizer", nil, application, fields{"conditions": loaded["conditions"]}),
		v06Object("BpfApplicationState", namespace, "counter-4e5f6071", "bpfman.io.nsbpfapplicationcontroller/finalizer", owned, nil, loaded),
	}
}

func v06Object(kind, namespace, name, finalizer string, labels, spec, status fields) *unstructured.Unstructured {
	metadata := fields{"name": name, "finalizers": []any{finalizer}}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	if labels != nil {
		metadata["labels"] = labels
	}
	object := fields{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind, "metadata": metadata}
	if spec != nil {
		object["spec"] = spec
	}
	if status != nil {
		object["status"] = status
	}
	return (&unstructured.Unstructured{Object: object}).DeepCopy()
}
