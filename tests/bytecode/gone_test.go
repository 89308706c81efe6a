// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/tests/eventually"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// dropTimeout is how long the maps of global variables can outlive a program. The daemon in Go has them until its memory is
// collected, at least every two minutes. The kernel frees other objects after a moment.
const dropTimeout = 3 * time.Minute

// featurePins are the pins that the daemon creates once, with the first program for a
// dispatcher, to detect features of the kernel.
const featurePins = "/run/bpfman/fs/dispatcher-test"

// pins returns the daemon's pins for programs.
func (f *fixture) pins(t *testing.T) []string {
	t.Helper()
	root := f.Path("/run/bpfman/fs")
	features := f.Path(featurePins)
	var pins []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Dir(path) != features {
			pins = append(pins, path)
		}
		return err
	})
	if err != nil {
		t.Fatalf("list pins: %v", err)
	}
	return pins
}

// checkGone fails the test if something of the unloaded programs is left in the daemon,
// in the kernel, or in the daemon's file system. pins are the pins from before.
func (f *fixture) checkGone(t *testing.T, unloaded []*gobpfman.LoadResponseInfo, pins []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	all := true
	list, err := f.Client.List(ctx, &gobpfman.ListRequest{BpfmanProgramsOnly: &all})
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	for _, left := range list.Results {
		t.Errorf("the daemon still lists program %d, %s", left.KernelInfo.Id, left.Info.Name)
	}
	for _, left := range f.pins(t) {
		if !slices.Contains(pins, left) {
			t.Errorf("left pinned: %s", left)
		}
	}
	shared := f.sharedMaps(t)
	for _, u := range unloaded {
		err := eventually.Succeeds(ctx, dropTimeout, pollInterval, func(context.Context) error {
			program, err := ebpf.NewProgramFromID(ebpf.ProgramID(u.KernelInfo.Id))
			if err == nil {
				err = program.Close()
			}
			if !errors.Is(err, os.ErrNotExist) {
				return errors.Join(fmt.Errorf("program %d is still there", u.KernelInfo.Id), err)
			}
			for _, id := range u.KernelInfo.MapIds {
				if slices.Contains(shared, id) {
					continue
				}
				m, err := ebpf.NewMapFromID(ebpf.MapID(id))
				if err == nil {
					err = m.Close()
				}
				if !errors.Is(err, os.ErrNotExist) {
					return errors.Join(fmt.Errorf("map %d is still there", id), err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("the kernel drops %s: %v", u.Info.Name, err)
		}
	}
}

// sharedMaps returns the maps that bytecode pins by name. The daemon pins them in the
// machine's bpffs, and never removes the pins, so they outlive programs.
func (f *fixture) sharedMaps(t *testing.T) []uint32 {
	t.Helper()
	dir := f.Path("/sys/fs/bpf")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("list maps pinned by name: %v", err)
	}
	var shared []uint32
	for _, entry := range entries {
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, entry.Name()), nil)
		if err != nil {
			continue // a file of the kernel, or not a map
		}
		info, err := m.Info()
		if err := errors.Join(err, m.Close()); err != nil {
			t.Fatalf("look at pinned map %s: %v", entry.Name(), err)
		}
		if id, ok := info.ID(); ok {
			shared = append(shared, uint32(id))
		}
	}
	return shared
}
