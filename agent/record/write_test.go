// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestTransitionTimes(t *testing.T) {
	earlier, now := metav1.Unix(1000, 0), metav1.Unix(2000, 0)
	status := func(c v1alpha1.BpfProgramConditionType, message string, since metav1.Time) *v1alpha1.BpfProgramStatus {
		condition := c.Condition(message)
		condition.LastTransitionTime = since
		return &v1alpha1.BpfProgramStatus{Conditions: []metav1.Condition{condition}}
	}
	before := status(v1alpha1.BpfProgCondNotLoaded, "no", earlier)
	for name, test := range map[string]struct {
		now  *v1alpha1.BpfProgramStatus
		want metav1.Time
	}{
		"the same":          {status(v1alpha1.BpfProgCondNotLoaded, "no", now), earlier},
		"another message":   {status(v1alpha1.BpfProgCondNotLoaded, "never", now), earlier},
		"another condition": {status(v1alpha1.BpfProgCondLoaded, "", now), now},
	} {
		message := test.now.Conditions[0].Message
		keep(test.now, before)
		if c := test.now.Conditions; len(c) != 1 || c[0].Message != message || !c[0].LastTransitionTime.Equal(&test.want) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
