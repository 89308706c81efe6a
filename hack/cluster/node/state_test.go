// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"os"
	"path/filepath"
	"testing"
)

func TestState(t *testing.T) {
	dir := t.TempDir()
	if state := Load(dir); state != nil || state.Alive() {
		t.Errorf("no file gives %+v", state)
	}
	own, err := observe(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := own.save(dir); err != nil {
		t.Fatal(err)
	}
	if state := Load(dir); *state != *own || !state.Alive() {
		t.Errorf("loaded %+v, saved %+v", state, own)
	}
	for name, other := range map[string]State{
		"the number's earlier process": {PID: own.PID, Start: "1", BootID: own.BootID},
		"before a reboot":              {PID: own.PID, Start: own.Start, BootID: "other"},
	} {
		if other.Alive() {
			t.Errorf("%s is taken for this process", name)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte(`{"pid":`), 0o644); err != nil {
		t.Fatal(err)
	}
	if state := Load(dir); state != nil {
		t.Errorf("half a file gives %+v", state)
	}
}
