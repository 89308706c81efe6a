// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package contract

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
	nodetest "github.com/bpfman/bpfman-operator/tests/node"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const hook = "inode_mkdir"

func lsm(function string) *gobpfman.LoadInfo {
	return &gobpfman.LoadInfo{Name: function, ProgramType: gobpfman.BpfmanProgramType_LSM, Info: &gobpfman.ProgSpecificInfo{
		Info: &gobpfman.ProgSpecificInfo_LsmLoadInfo{LsmLoadInfo: &gobpfman.LsmLoadInfo{HookName: hook}},
	}}
}

var onHook = program.AttachPoint{Name: hook, Digest: hook, Info: &gobpfman.AttachInfo{
	Info: &gobpfman.AttachInfo_LsmAttachInfo{LsmAttachInfo: &gobpfman.LsmAttachInfo{}},
}}

// loadLSM loads an LSM program. It returns false if the daemon is in Rust, which has no such programs: the refusal then names
// the daemon that it needs, and nothing is loaded. It skips the test if the kernel has none.
func loadLSM(n *node, i *daemon.Inventory) bool {
	n.t.Helper()
	err := i.Load(n.t.Context(), request(n.t, "lsm", lsm("deny_mkdir")))
	if i.Daemon() == bpfman.Rust {
		failed := (*daemon.Error)(nil)
		if !errors.As(err, &failed) || !failed.Permanent() || !strings.Contains(err.Error(), "it needs the daemon in Go") || !i.Known() {
			n.t.Errorf("%v, want a lasting refusal that names the daemon", err)
		}
		if left := n.inventory().Of(owner); len(left) > 0 {
			n.t.Errorf("left %+v", left)
		}
		return false
	}
	if err != nil {
		prerequisite.Missing(n.t, err.Error(), prerequisite.LSM)
	}
	return true
}

// An LSM program is loaded and attached once, and an agent that starts later finds it.
func TestLSM(t *testing.T) {
	onEach(t, func(n *node) {
		t := n.t
		i := n.inventory()
		if !loadLSM(n, i) {
			return
		}
		loaded := i.Of(owner)
		if len(loaded) != 1 || loaded[0].Function != "deny_mkdir" {
			t.Fatalf("loaded %+v", loaded)
		}
		if err := i.Attach(t.Context(), loaded[0].ID, onHook); err != nil {
			prerequisite.Missing(t, err.Error(), prerequisite.LSM)
		}
		if diff := cmp.Diff(unlinked(i.Of(owner)), n.inventory().Of(owner)); diff != "" {
			t.Errorf("a later agent finds: %s", diff)
		}
		must.Succeed(t, i.Unload(t.Context(), loaded[0].ID))
		if left := n.inventory().Of(owner); len(left) > 0 {
			t.Errorf("left %+v", left)
		}
	})
}

// The kernel denies an operation while the program is attached, and only to whom the program denies it.
func TestLSMDenies(t *testing.T) {
	n := startReal(t)
	i := n.inventory()
	if !loadLSM(n, i) {
		return
	}
	id := i.Of(owner)[0].ID
	dir, made := t.TempDir(), 0
	tried := func(name string) error {
		made++
		return nodetest.MakeDirectory(name, filepath.Join(dir, name+string(rune('a'+made))))
	}
	allowed := func(when string) {
		for _, name := range []string{"bpfman-denied", "bpfman-other"} {
			if err := tried(name); err != nil {
				t.Errorf("%s, %s: %v", when, name, err)
			}
		}
	}
	attach := func() {
		if err := i.Attach(t.Context(), id, onHook); err != nil {
			prerequisite.Missing(t, err.Error(), prerequisite.LSM)
		}
		if err := tried("bpfman-denied"); !errors.Is(err, os.ErrPermission) {
			t.Errorf("attached: %v, want it denied", err)
		}
		if err := tried("bpfman-other"); err != nil {
			t.Errorf("attached, another process: %v", err)
		}
	}
	allowed("loaded only")
	attach()
	for link := range i.Of(owner)[0].Links {
		must.Succeed(t, i.Detach(t.Context(), id, link))
	}
	allowed("detached")
	attach()
	must.Succeed(t, i.Unload(t.Context(), id))
	allowed("unloaded")
}
