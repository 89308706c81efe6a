// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Controllers that were enabled before stay so, and those that are still in use are disabled later.
func TestControllers(t *testing.T) {
	dir := t.TempDir()
	control := filepath.Join(dir, "cgroup.subtree_control")
	for name, content := range map[string]string{"cgroup.controllers": "cpu io memory\n", "cgroup.subtree_control": "memory\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	enabled := record(filepath.Join(t.TempDir(), "controllers"))
	if err := enabled.add(enableControllers(dir)); err != nil {
		t.Fatal(err)
	}
	if got := enabled.read(); !slices.Equal(got, []string{"cpu", "io"}) {
		t.Errorf("enabled %q", got)
	}

	// The kernel refuses.
	if err := os.Remove(control); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(control, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := enabled.write(switchControllers(dir, "-", enabled.read())); err != nil {
		t.Fatal(err)
	}
	if got := enabled.read(); !slices.Equal(got, []string{"cpu", "io"}) {
		t.Errorf("in use: %q are recorded", got)
	}
	if err := os.Remove(control); err != nil {
		t.Fatal(err)
	}
	if err := enabled.write(switchControllers(dir, "-", enabled.read())); err != nil {
		t.Fatal(err)
	}
	last, err := os.ReadFile(control)
	if err != nil || string(last) != "-io" {
		t.Errorf("the kernel got %q, %v", last, err)
	}
	if _, err := os.Stat(string(enabled)); !os.IsNotExist(err) {
		t.Errorf("the record is left: %v", err)
	}
}
