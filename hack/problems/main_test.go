// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"os"
	"testing"
)

// The page has the tables of internal/problem.
func TestPageIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := rewritten(string(text)); err != nil || string(text) != want {
		t.Errorf("%s isn't what internal/problem says: run `make generate`: %v", page, err)
	}
}

func TestUnknownPart(t *testing.T) {
	if _, err := rewritten("<!-- problems: others -->\n<!-- end -->"); err == nil {
		t.Error("a part that nobody writes was accepted")
	}
	if _, err := rewritten(""); err == nil {
		t.Error("a page without parts was accepted")
	}
}
