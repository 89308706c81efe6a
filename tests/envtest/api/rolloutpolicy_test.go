// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

var rolloutKind = kind{v1alpha1.RolloutPolicyKind.Name, v1alpha1.RolloutPolicyKind.GroupVersionResource(), v1alpha1.RolloutPolicyKind.Namespaced}

func TestRolloutPolicyValidation(t *testing.T) {
	t.Parallel()
	one := func(field string) string { return `{"steps":[{"nodes":1}],` + field + `}` }
	step := func(fields string) string { return `{"steps":[{` + fields + `}]}` }
	tests := []validation{
		{step(`"nodes":1`), ``},
		{step(`"nodes":"25%","pause":"10m"`), ``},
		{step(`"nodes":"100%","untilResumed":true`), ``},
		{`{}`, `spec.steps: Required value`},
		{`{"steps":[]}`, `spec.steps: Invalid value`},
		{step(`"pause":"1m"`), `nodes: Required value`},
		{step(`"nodes":0`), `the number must be from 1 to 2147483647`},
		{step(`"nodes":2147483647`), ``},
		{step(`"nodes":2147483648`), `the number must be from 1 to 2147483647`},
		{step(`"nodes":9999999999`), `the number must be from 1 to 2147483647`},
		{step(`"nodes":1e300`), `spec.steps[0].nodes`},
		{step(`"nodes":1.5`), `spec.steps[0].nodes`},
		{step(`"nodes":"0%"`), `spec.steps[0].nodes: Invalid value`},
		{step(`"nodes":"101%"`), `spec.steps[0].nodes: Invalid value`},
		{step(`"nodes":"ten"`), `spec.steps[0].nodes: Invalid value`},
		{step(`"nodes":1,"pause":"1m","untilResumed":true`), `a step can have either pause or untilResumed`},
		{step(`"nodes":1,"pause":"-1m"`), `the pause must not be negative`},
		{step(`"nodes":1,"pause":"soon"`), `spec.steps[0].pause: Invalid value`},
		{one(`"maxUnhealthy":0`), ``},
		{one(`"maxUnhealthy":"10%"`), ``},
		{one(`"maxUnhealthy":-1`), `the number must be from 0 to 2147483647`},
		{one(`"maxUnhealthy":9999999999`), `the number must be from 0 to 2147483647`},
		{one(`"maxUnhealthy":"10"`), `spec.maxUnhealthy: Invalid value`},
		{one(`"timeLimit":"9s"`), `the time limit must be at least 10s`},
		{one(`"timeLimit":"soon"`), `spec.timeLimit: Invalid value`},
		{one(`"maxRunTimePercent":100`), ``},
		{one(`"maxRunTimePercent":99`), `spec.maxRunTimePercent: Invalid value`},
		{one(`"maxRunTimePercent":"200%"`), `spec.maxRunTimePercent: Invalid value`},
		{one(`"onFailure":"undo"`), ``},
		{one(`"onFailure":"retry"`), `Unsupported value`},
		{one(`"canaries":{"matchExpressions":[{"key":"a","operator":"In"}]}`), `the operator must be In or NotIn with values`},
		{one(`"match":{"kinds":["XdpProgram"],"namespaces":["team-*"],"images":["quay.io/acme/*"],"programTypes":["XDP"],"objectSelector":{"matchLabels":{"a":"b"}}}`), ``},
		{one(`"match":{"kinds":["BpfProgram"]}`), `Unsupported value`},
		{one(`"match":{"programTypes":["Netkit"]}`), `Unsupported value`},
		{one(`"match":{"objectSelector":{"matchExpressions":[{"key":"a","operator":"in","values":["b"]}]}}`), `the operator must be In or NotIn with values`},
	}
	c := client(t, rolloutKind)
	for _, v := range tests {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": decode(t, v.patch)}}
		o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(rolloutKind.name))
		o.SetName("validation")
		_, err := c.Create(deadline(t), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		checkRefusal(t, v, err)
	}
}
