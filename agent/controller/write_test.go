// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestARetryThatFailsAlikeIsNoNews(t *testing.T) {
	status := func(message string, since time.Time) *v1alpha1.BpfProgramStatus {
		c := v1alpha1.BpfProgCondNotLoaded.Condition(message)
		c.LastTransitionTime = metav1.NewTime(since)
		return &v1alpha1.BpfProgramStatus{
			Conditions: []metav1.Condition{c},
			Links:      []v1alpha1.BpfProgramLink{{AttachPoint: "eth0", Error: message}},
		}
	}
	earlier := time.Unix(1000, 0)
	for name, test := range map[string]struct{ before, now, want string }{
		"the same":                      {"no", "no", "no"},
		"another time of the verifier":  {"R1 !read_ok verification time 25 usec stack depth 0", "R1 !read_ok verification time 31 usec stack depth 0", "R1 !read_ok verification time 25 usec stack depth 0"},
		"another panicked task":         {"task 12 panicked at x", "task 13 panicked at x", "task 12 panicked at x"},
		"another interface":             {"attach to eth0: Invalid Interface", "attach to eth1: Invalid Interface", "attach to eth1: Invalid Interface"},
		"another reason":                {"no", "never", "never"},
		"another size of the same text": {"symbol has size `4`, provided `1`", "symbol has size `4`, provided `2`", "symbol has size `4`, provided `2`"},
	} {
		t.Run(name, func(t *testing.T) {
			now := status(test.now, time.Time{})
			keep(now, status(test.before, earlier))
			if c := now.Conditions[0]; c.Message != test.want || !c.LastTransitionTime.Time.Equal(earlier) {
				t.Errorf("condition %+v", c)
			}
			if got := now.Links[0].Error; got != test.want {
				t.Errorf("link says %q", got)
			}
		})
	}
}
