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
		"the same":                     {"no", "no", "no"},
		"another time of the verifier": {"R1 !read_ok verification time 25 usec stack depth 0", "R1 !read_ok verification time 31 usec stack depth 0", "R1 !read_ok verification time 25 usec stack depth 0"},
		"another panicked task":        {"task 12 panicked at x", "task 13 panicked at x", "task 12 panicked at x"},
		"another interface":            {"attach to eth0: Invalid Interface", "attach to eth1: Invalid Interface", "attach to eth1: Invalid Interface"},
		"another reason":               {"no", "never", "never"},
		"another address":              {"4: (18) r1 = 0xffff888267bffa00 no", "4: (18) r1 = 0xffff888267bfe400 no", "4: (18) r1 = 0xffff888267bffa00 no"},
		"another offset":               {"r1 = 0xffff888267bffa00 off=98", "r1 = 0xffff888267bffa00 off=97", "r1 = 0xffff888267bffa00 off=97"},
		"another order of names":       {`with program names ["a", "b_c"]`, `with program names ["b_c", "a"]`, `with program names ["a", "b_c"]`},
		"another name":                 {`with program names ["a", "b_c"]`, `with program names ["a", "b_d"]`, `with program names ["a", "b_d"]`},
		"another unknown global":       {"x: symbol with name A not found in the symbols table", "x: symbol with name B not found in the symbols table", "x: symbol with name A not found in the symbols table"},
		"a global of the wrong size":   {"x: symbol with name A not found in the symbols table", "x: symbol B has size `4`, but provided data is of size `1`", "x: symbol with name A not found in the symbols table"},
		"cut elsewhere": {
			"4: r1 = 0xffff888267bffa00\nend … (100 bytes left out) … verdict\nverification time 3589 usec",
			"4: r1 = 0xffff888267bfe400\nend … (101 bytes left out) … a verdict\nverification time 409 usec",
			"4: r1 = 0xffff888267bffa00\nend … (100 bytes left out) … verdict\nverification time 3589 usec",
		},
		"cut within what is volatile": {
			"load f: one … (100 bytes left out) … time 210 usec stack depth 8 (program 5 keeps running)",
			"load f: one … (101 bytes left out) … usec stack depth 8 (program 5 keeps running)",
			"load f: one … (100 bytes left out) … time 210 usec stack depth 8 (program 5 keeps running)",
		},
		"it no longer runs": {
			"load f: one … (100 bytes left out) … a time 210 usec depth 8 (program 5 keeps running)",
			"load f: one … (100 bytes left out) … a time 210 usec depth 8",
			"load f: one … (100 bytes left out) … a time 210 usec depth 8",
		},
		"another verdict behind the cut": {
			"a b c d … (100 bytes left out) … 7: (73) no access off=98", "a b c d … (100 bytes left out) … 7: (73) no access off=99",
			"a b c d … (100 bytes left out) … 7: (73) no access off=99",
		},
		"another size of the same text": {"symbol has size `4`, provided `1`", "symbol has size `4`, provided `2`", "symbol has size `4`, provided `2`"},
	} {
		t.Run(name, func(t *testing.T) {
			now, before := status(test.now, time.Time{}), status(test.before, earlier)
			keep(now, before)
			if c := now.Conditions[0]; c.Message != test.want || !c.LastTransitionTime.Time.Equal(earlier) {
				t.Errorf("condition %+v", c)
			}
			if got := now.Links[0].Error; got != test.want {
				t.Errorf("link says %q", got)
			}
		})
	}
}

// After the user has edited the owner, an earlier message can be about the previous
// spec.
func TestAFailureOfAnotherGenerationIsNews(t *testing.T) {
	status := func(generation int64, message string) *v1alpha1.BpfProgramStatus {
		return &v1alpha1.BpfProgramStatus{OwnerGeneration: generation, Conditions: []metav1.Condition{v1alpha1.BpfProgCondNotLoaded.Condition(message)}}
	}
	now := status(2, "symbol with name B not found in the symbols table")
	keep(now, status(1, "symbol with name A not found in the symbols table"))
	if got := now.Conditions[0].Message; got != "symbol with name B not found in the symbols table" {
		t.Errorf("it says %q", got)
	}
}
