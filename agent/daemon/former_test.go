// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// recording returns an agent that starts on a node, and records in a file what it loads.
func recording(t *testing.T, rpc gobpfman.BpfmanClient, root, file string) *Inventory {
	t.Helper()
	i := NewInventory(rpc, root)
	if err := i.RecordFormer(file, "/proc"); err != nil {
		t.Fatal(err)
	}
	refresh(t, i)
	return i
}

func programPinOf(root string, id uint32) string {
	return filepath.Join(root, pinsDir, programPins+decimal(id))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// If the daemon is changed before the agent has reported what it loaded, the agent knows it from the file: also what an agent
// has loaded that was killed while it wrote to the file, and what an object has that doesn't exist anymore.
func TestWhatIsNotReportedIsRecorded(t *testing.T) {
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "former")
	for _, path := range databases {
		writeFile(t, filepath.Join(root, path))
	}
	former := daemontest.New(root)
	i := recording(t, former, root, file)
	var ids []uint32
	for _, o := range []program.Key{owner, other} {
		id := load(t, i, o).ID
		writeFile(t, programPinOf(root, id))
		ids = append(ids, id)
	}
	written, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := written.WriteString(`{"owner":{"Kind`); err != nil {
		t.Fatal(err)
	}
	_ = written.Close()

	if i = recording(t, former, root, file); len(i.former.Programs) > 0 {
		t.Errorf("the daemon wasn't changed, but %+v are former programs", i.former.Programs)
	}
	for range 2 { // the record stays when an agent starts again
		i = recording(t, daemontest.NewGo(root), root, file)
		if keys := i.Owners(); len(keys) != 2 || !slices.Contains(keys, owner) || !slices.Contains(keys, other) {
			t.Errorf("owners %v", keys)
		}
	}
	if err := i.Retire(t.Context(), owner, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if exists(programPinOf(root, ids[0])) || !exists(programPinOf(root, ids[1])) {
		t.Error("not only the owner's program was removed")
	}
	if keys := recording(t, daemontest.NewGo(root), root, file).Owners(); !slices.Equal(keys, []program.Key{other}) {
		t.Errorf("owners %v", keys)
	}
}

// The daemon is changed back. What it lists isn't former.
func TestChangedBack(t *testing.T) {
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "former")
	for _, path := range databases {
		writeFile(t, filepath.Join(root, path))
	}
	former := daemontest.New(root)
	id := load(t, recording(t, former, root, file), owner).ID
	writeFile(t, programPinOf(root, id))
	if i := recording(t, daemontest.NewGo(root), root, file); len(i.former.Programs) != 1 {
		t.Errorf("former: %+v", i.former.Programs)
	}
	i := recording(t, former, root, file)
	if err := i.Retire(t.Context(), owner, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if len(i.former.Programs) > 0 || !exists(programPinOf(root, id)) {
		t.Errorf("former: %+v", i.former.Programs)
	}
}

// The file doesn't grow with each Load, and keeps what is loaded.
func TestRecordStaysSmall(t *testing.T) {
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "former")
	for _, path := range databases {
		writeFile(t, filepath.Join(root, path))
	}
	d := daemontest.New(root)
	i := recording(t, d, root, file)
	for range maxLines + 10 {
		if err := i.Unload(t.Context(), load(t, i, other).ID); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(content, []byte("\n")); lines > maxLines {
		t.Errorf("%d lines", lines)
	}
	id := load(t, i, owner).ID
	writeFile(t, programPinOf(root, id))
	if keys := recording(t, daemontest.NewGo(root), root, file).Owners(); !slices.Equal(keys, []program.Key{owner}) {
		t.Errorf("owners %v", keys)
	}
}

// If the file couldn't be written, or an agent was killed while it wrote a line, the next Load writes it again.
func TestDamagedRecordIsWrittenAgain(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, d *daemontest.Daemon, file string) *Inventory{
		"never written": func(t *testing.T, d *daemontest.Daemon, file string) *Inventory {
			t.Helper()
			i := NewInventory(d, d.Root)
			if err := i.RecordFormer(file, "/proc"); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(file, "in the way"))
			refresh(t, i)
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
			return i
		},
		"part of a line": func(t *testing.T, d *daemontest.Daemon, file string) *Inventory {
			t.Helper()
			recording(t, d, d.Root, file)
			content, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, append(content, `{"owner":{"Kind`...), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return recording(t, d, d.Root, file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, file := daemontest.New(t.TempDir()), filepath.Join(t.TempDir(), "former")
			for _, path := range databases {
				writeFile(t, filepath.Join(d.Root, path))
			}
			i := start(t, d, file)
			writeFile(t, programPinOf(d.Root, load(t, i, owner).ID))
			if keys := recording(t, daemontest.NewGo(d.Root), d.Root, file).Owners(); !slices.Equal(keys, []program.Key{owner}) {
				t.Errorf("owners %v", keys)
			}
		})
	}
}
