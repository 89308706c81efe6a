// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"
	"github.com/go-logr/logr"
	"github.com/google/renameio/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/program"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// After the daemon of a node was changed, the new one knows nothing, and everything that the former one attached stays
// attached. Whose programs these are is in the reports of the agent. Each one is removed when its successor is attached, so
// that none runs twice, and those of others stay. A report is overwritten before that if the successor can't be loaded, so
// they are also in a file.

// Former is a program that the former daemon has loaded for an owner.
type Former struct {
	Owner    program.Key `json:"owner"`
	Function string      `json:"function"`
	ID       uint32      `json:"id"`
}

// formerRecord is the content of the file.
type formerRecord struct {
	// Boot identifies the start of the node. The kernel reuses IDs after the next one.
	Boot     string   `json:"boot"`
	Programs []Former `json:"programs"`
}

// RecordFormer has the inventory keep former programs in a file, and reads those that it has from the same start of the
// node. The boot ID comes from proc. Call it before the first Refresh.
func (i *Inventory) RecordFormer(path, proc string) error {
	boot, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return fmt.Errorf("read the boot ID: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil { //nolint:mnd // its owner's
		return fmt.Errorf("record the programs of the former daemon: %w", err)
	}
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the programs of the former daemon: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.formerFile, i.boot = path, strings.TrimSpace(string(boot))
	var record formerRecord
	if json.Unmarshal(content, &record) == nil && record.Boot == i.boot { // otherwise, it is of no use
		i.former = record.Programs
	}
	return nil
}

// Inherit records a program that an owner's report has, if it is one of the former daemon.
func (i *Inventory) Inherit(f Former) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, listed := i.programs[f.ID]
	recorded := slices.ContainsFunc(i.former, func(other Former) bool { return other.ID == f.ID })
	if f.ID == 0 || !i.known || listed || recorded || !i.isThere(f) || !otherDatabase(i.root, i.dialect) {
		return nil
	}
	return i.setFormer(append(slices.Clone(i.former), f))
}

// isThere reports whether a program is still pinned.
func (i *Inventory) isThere(f Former) bool {
	_, err := os.Lstat(i.programPin(f.ID))
	return err == nil
}

func (i *Inventory) programPin(id uint32) string {
	return filepath.Join(i.root, pinsDir, programPins+decimal(id))
}

func (i *Inventory) setFormer(former []Former) error {
	if i.formerFile != "" {
		content, err := json.Marshal(formerRecord{i.boot, former})
		if err == nil {
			err = renameio.WriteFile(i.formerFile, content, 0o600) //nolint:mnd // its owner's
		}
		if err != nil {
			return fmt.Errorf("record the programs of the former daemon: %w", err)
		}
	}
	i.former = former
	return nil
}

// Retire removes the former programs of an owner for certain functions.
func (i *Inventory) Retire(ctx context.Context, owner program.Key, certain func(function string) bool) error {
	i.mu.Lock()
	none := !slices.ContainsFunc(i.former, func(f Former) bool { return f.Owner == owner && certain(f.Function) })
	i.mu.Unlock()
	if none {
		return nil
	}
	return i.Exclusively(ctx, func() error { return i.retire(ctx, owner, certain) })
}

// retire is Retire for a caller that is in the lane.
func (i *Inventory) retire(ctx context.Context, owner program.Key, certain func(function string) bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, f := range slices.Clone(i.former) {
		if f.Owner != owner || !certain(f.Function) {
			continue
		}
		if _, listed := i.programs[f.ID]; !listed { // otherwise, the daemon was changed back
			if err := i.removeFormer(f); err != nil {
				return fmt.Errorf("remove program %d of the former daemon: %w", f.ID, err)
			}
			logr.FromContextOrDiscard(ctx).Info("Removed a program of the former daemon", "object", owner.String(), "function", f.Function, "program", f.ID)
		}
		if err := i.setFormer(slices.DeleteFunc(slices.Clone(i.former), func(other Former) bool { return other.ID == f.ID })); err != nil {
			return err
		}
	}
	return nil
}

// removeFormer removes the pins of a program: first those of its links, which detaches it, and last its own, by which it is
// found again after a crash.
func (i *Inventory) removeFormer(f Former) error {
	var pins []string
	for _, pattern := range []string{linkPins + "/*", "tcx-*/link_*"} {
		links, err := filepath.Glob(filepath.Join(i.root, pinsDir, pattern))
		if err != nil {
			return fmt.Errorf("look for pins: %w", err)
		}
		for _, path := range links {
			switch leads, err := leadsTo(path, f.ID); {
			case err != nil:
				return err
			case leads:
				pins = append(pins, path)
			}
		}
	}
	pins = append(pins, filepath.Join(i.root, pinsDir, mapPins, decimal(f.ID)), i.programPin(f.ID))
	for _, path := range pins {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove a pin: %w", err)
		}
	}
	return nil
}

// leadsTo reports whether a pin is a link of a program. The daemons number links independently of each other.
func leadsTo(path string, id uint32) (bool, error) {
	pinned, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open a pinned link: %w", err)
	}
	defer pinned.Close()
	info, err := pinned.Info()
	if err != nil {
		return false, fmt.Errorf("read a pinned link: %w", err)
	}
	return uint32(info.Program) == id, nil
}

// succeed prepares the attachment of a program to a place: the one that the former daemon has attached there is removed.
// Those in a dispatcher, which XDP and TC programs share, can't be removed one by one.
func (i *Inventory) succeed(ctx context.Context, id uint32, info *gobpfman.AttachInfo) error {
	i.mu.Lock()
	p := i.programs[id]
	dispatched := info.GetXdpAttachInfo() != nil || info.GetTcAttachInfo() != nil
	found := slices.ContainsFunc(i.former, func(f Former) bool { return f.Owner == p.Owner && f.Function == p.Function })
	i.mu.Unlock()
	switch {
	case !found:
		return nil
	case dispatched:
		return status.Error(codes.FailedPrecondition, "the program of the former daemon is still attached, in a dispatcher: "+
			"restart the node, after which nothing of that daemon is left")
	}
	if err := i.retire(ctx, p.Owner, func(function string) bool { return function == p.Function }); err != nil {
		return status.Error(codes.Aborted, err.Error())
	}
	return nil
}

// otherDatabase reports whether there is a database of another daemon than the one with a dialect.
func otherDatabase(root string, d dialect) bool {
	return slices.ContainsFunc(databases, func(database string) bool {
		_, err := os.Lstat(filepath.Join(root, database))
		return database != d.database() && !errors.Is(err, os.ErrNotExist)
	})
}

// removeOtherDatabases removes the databases of other daemons if nothing that they have loaded is pinned.
func (i *Inventory) removeOtherDatabases(d dialect, list *gobpfman.ListResponse) error {
	if !otherDatabase(i.root, d) {
		return nil
	}
	listed := map[string]bool{}
	for _, result := range list.GetResults() {
		listed[i.programPin(result.GetKernelInfo().GetId())] = true
	}
	pins, err := filepath.Glob(filepath.Join(i.root, pinsDir, programPins+"*"))
	if err != nil {
		return fmt.Errorf("look for pins: %w", err)
	}
	if slices.ContainsFunc(pins, func(pin string) bool { return !listed[pin] }) {
		return nil
	}
	for _, other := range slices.Sorted(maps.Keys(databaseFiles)) {
		if other == d.database() {
			continue
		}
		for _, pattern := range databaseFiles[other] {
			files, err := filepath.Glob(filepath.Join(i.root, pattern))
			if err != nil {
				return fmt.Errorf("look for the former daemon's database: %w", err)
			}
			for _, file := range files {
				if err := os.RemoveAll(file); err != nil {
					return fmt.Errorf("remove the former daemon's database: %w", err)
				}
			}
		}
	}
	return nil
}

// databaseFiles are the files of each daemon, by that of its dialect. The latter is the last one, by which the others are
// found again after a crash.
var databaseFiles = map[string][]string{
	rust{}.database(): {
		databaseDir + "/db", databaseDir + "/blobs", databaseDir + "/snap.*", databaseDir + "/conf",
	},
	newGolang().database(): {"/run/bpfman/programs", "/run/bpfman/.staging", databaseDir + "/store.db*", "/run/bpfman/.lock"},
}
