// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package why

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/cli/cluster"
)

func TestProblems(t *testing.T) {
	pod := func(ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	const missing = "no pod of the operator is ready"
	for name, c := range map[string]struct {
		components cluster.Components
		want       []string // the beginnings
	}{
		"all is well":              {cluster.Components{Operators: []corev1.Pod{pod(corev1.ConditionFalse), pod(corev1.ConditionTrue)}}, nil},
		"pods can't be read":       {cluster.Components{}, nil},
		"no replicas":              {cluster.Components{Operators: []corev1.Pod{}, Found: "one\ntwo"}, []string{missing, "one", "two"}},
		"the operator isn't ready": {cluster.Components{Operators: []corev1.Pod{pod(corev1.ConditionFalse)}}, []string{missing}},
	} {
		got := Problems(c.components)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
