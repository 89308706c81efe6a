// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package wire

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// TestMapNamesArePaths shows why the reader refuses maps whose names are paths. The daemon opens a map that is pinned by
// name at that path, also outside of /sys/fs/bpf. So a tenant's program would get the map of
// another one. With .data in
// the name, the daemon doesn't pin the map again, which would fail.
func TestMapNamesArePaths(t *testing.T) {
	c := start(t)
	victim := answer(c, c.load, &gobpfman.LoadRequest{Bytecode: c.object("pinned"), Info: []*gobpfman.LoadInfo{tcx("pinned")}}).GetPrograms()[0]
	if err := errors.Join(os.Mkdir(c.Place.Path("/run/.data"), 0o755),
		os.Symlink(victim.GetInfo().GetMapPinPath()+"/pinned_flows", c.Place.Path("/run/.data/m"))); err != nil {
		t.Fatal(err)
	}
	content := must.Read(t, c.object("pinned").GetFile())
	content = bytes.ReplaceAll(content, []byte("pinned_flows"), []byte("/run/.data/m"))
	path := filepath.Join(t.TempDir(), "thief.o")
	must.Succeed(t, os.WriteFile(path, content, 0o600))
	thief := answer(c, c.load, &gobpfman.LoadRequest{
		Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: path}}, Info: []*gobpfman.LoadInfo{tcx("pinned")},
	}).GetPrograms()[0]
	if !slices.Equal(thief.GetKernelInfo().GetMapIds(), victim.GetKernelInfo().GetMapIds()) {
		t.Errorf("maps %v, not the victim's %v: the daemon is mended", thief.GetKernelInfo().GetMapIds(), victim.GetKernelInfo().GetMapIds())
	}
	if _, err := object.Describe(content, &object.Kernel{}); err == nil || !strings.Contains(err.Error(), `the name of its map "/run/.data/m"`) {
		t.Errorf("the reader accepts the object: %v", err)
	}
}
