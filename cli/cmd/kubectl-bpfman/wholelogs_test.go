// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// The whole log takes the place of the shortened one with the same cause, and of nothing else.
func TestReplaceShortened(t *testing.T) {
	t.Parallel()
	const cause, added = "the kernel's verifier refuses the program: R1 offset is outside of the packet", " (the previously loaded program 9 keeps running)"
	log := strings.Repeat("0: R1=ctx()\n", 10_000)
	report := func(node, text string) v1alpha1.ProgramObject {
		r := &v1alpha1.BpfProgram{}
		r.Status.Node, r.Status.Conditions = node, []metav1.Condition{v1alpha1.BpfProgCondNotLoaded.Condition(text)}
		return r
	}
	short := func(text string) string { return shorten.Middle(text, 4096) }
	reports := []v1alpha1.ProgramObject{
		report("a", short(cause+added+"\n"+log)), report("b", short(cause+"\n"+log)), report("c", cause+"\na short log"), report("d", short("something else\n"+log)),
	}
	replaceShortened(reports, cause+"\n"+log)
	for n, want := range []string{cause + added + "\n" + log, cause + "\n" + log, cause + "\na short log", short("something else\n" + log)} {
		if got := reports[n].GetStatus().Conditions[0].Message; got != want {
			t.Errorf("report %d has %d bytes, want %d: %.100s", n, len(got), len(want), got)
		}
	}
	if left := shortened(reports); len(left) != 1 || left[0].node != "d" {
		t.Errorf("still shortened: %v", left)
	}
}
