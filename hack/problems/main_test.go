// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"os"
	"reflect"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// The page has the tables of internal/problem.
func TestPageIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	said, err := inSources("../..")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := rewritten(string(text), said); err != nil || string(text) != want {
		t.Errorf("%s isn't what internal/problem says: run `make generate`: %v", page, err)
	}
}

func TestUnknownPart(t *testing.T) {
	if _, err := rewritten("<!-- problems: others -->\n<!-- end -->", nil); err == nil {
		t.Error("a part that nobody writes was accepted")
	}
	if _, err := rewritten("", nil); err == nil {
		t.Error("a page without parts was accepted")
	}
}

// Sources name problems in calls and lists.
func TestMessagesInSources(t *testing.T) {
	said := messages{}
	source := "package p\n" +
		"var a = problem.Errorf(problem.PodGone, \"the pod %s is gone, \"+\n\"100%% of %d: %w\", a, b, err)\n" +
		"var b = []x{{problem.PodGone, []string{\"setns … error\", \"`x` failed\"}}, {reason: problem.HostPID, text: \"of the node\"}}\n" +
		"var c = f(problem.HostPID, code, \"at \"+name)\n" +
		"var d = fmt.Errorf(\"unnamed\")\n"
	if err := said.add("p.go", []byte(source)); err != nil {
		t.Fatal(err)
	}
	want := messages{
		problem.PodGone: {"the pod … is gone, 100% of", "setns … error", "`x` failed"},
		problem.HostPID: {"of the node", "at"},
	}
	if !reflect.DeepEqual(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
	if quote("`x` failed") != "`` `x` failed ``" || quote("a | b") != "`a \\| b`" {
		t.Errorf("%s %s", quote("`x` failed"), quote("a | b"))
	}
}
