// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package daemontest

import (
	"os"
	"strings"
	"testing"
)

// Tests must run the daemon like the operator does.
func TestEnvironmentIsTheOperators(t *testing.T) {
	manifest, err := os.ReadFile("../../operator/deploy/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(manifest), `"`, "")
	for _, variable := range Environment() {
		name, value, _ := strings.Cut(variable, "=")
		if want := "- {name: " + name + ", value: " + value + "}"; !strings.Contains(text, want) {
			t.Errorf("the DaemonSet doesn't have %s", want)
		}
	}
}
