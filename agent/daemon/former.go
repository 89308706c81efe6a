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
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// After the daemon of a node was changed, the new one knows nothing, and everything that the former one attached stays
// attached. Each of these programs is removed when its successor is attached, so that none runs twice, and those of others
// stay. Whose programs they are is in the reports of the agent, and in a file: the daemon can be changed before a program is
// reported, and a report is overwritten if the successor can't be loaded.

// Former is a program that the former daemon has loaded for an owner.
type Former struct {
	Owner    program.Key `json:"owner"`
	Function string      `json:"function"`
	ID       uint32      `json:"id"`
}

// formerRecord is the first line of the file. Each further line is a program that was loaded later. Nothing is synced to the
// disk then, because the record is of no use after the node restarts.
type formerRecord struct {
	// Boot identifies the start of the node. The kernel reuses IDs after the next one.
	Boot string `json:"boot"`
	// Daemon is the one that answered last, and Before the highest ID of a program that was pinned when it answered first.
	Daemon   bpfman.Implementation `json:"daemon,omitempty"`
	Before   uint32                `json:"before,omitempty"`
	Programs []Former              `json:"programs"`
}

// former is what is known about programs of the daemon that the node ran before.
type former struct {
	formerRecord
	// file is the path of the file, or "", and lines how many it has after the first. damaged means that it is missing, outdated,
	// or ends with a part of a line, so that it has to be written again.
	file    string
	lines   int
	damaged bool
}

// maxLines is how many lines the file can have after the first, in addition to two for each program.
const maxLines = 1000

// RecordFormer has the inventory keep what it has loaded in a file, and reads what is there from the same start of the node:
// after a change of the daemon, these are former programs. The boot ID comes from proc. Call it before the first Refresh.
func (i *Inventory) RecordFormer(path, proc string) error {
	boot, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return fmt.Errorf("read the boot ID: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil { //nolint:mnd // its owner's
		return fmt.Errorf("record what the daemon has loaded: %w", err)
	}
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read what the former daemon has loaded: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.former = former{formerRecord: formerRecord{Boot: strings.TrimSpace(string(boot))}, file: path, damaged: !strings.HasSuffix(string(content), "\n")}
	first, rest, _ := strings.Cut(string(content), "\n")
	var record formerRecord
	if json.Unmarshal([]byte(first), &record) != nil || record.Boot != i.former.Boot {
		return nil // it is of no use
	}
	i.former.formerRecord = record
	for line := range strings.Lines(rest) {
		var f Former
		if json.Unmarshal([]byte(line), &f) == nil { // otherwise, the agent was killed while it wrote the line
			i.former.Programs = append(i.former.Programs, f)
		}
		i.former.lines++
	}
	return nil
}

// Inherit records a program that an owner's report has, if it is one of the former daemon.
func (i *Inventory) Inherit(f Former) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, listed := i.programs[f.ID]
	if f.ID == 0 || !i.known || listed || i.former.has(f.ID) || !i.isThere(f) || !otherDatabase(i.root, i.dialect) {
		return nil
	}
	return i.setFormer(append(slices.Clone(i.former.Programs), f))
}

func (f former) has(id uint32) bool {
	return slices.ContainsFunc(f.Programs, func(other Former) bool { return other.ID == id })
}

// isThere reports whether a program is still pinned.
func (i *Inventory) isThere(f Former) bool {
	_, err := os.Lstat(i.programPin(f.ID))
	return err == nil
}

func (i *Inventory) programPin(id uint32) string {
	return filepath.Join(i.root, pinsDir, programPins+decimal(id))
}

// setFormer records these former programs, and those that the daemon has now.
func (i *Inventory) setFormer(programs []Former) error {
	if i.former.file != "" {
		record := i.former.formerRecord
		record.Programs = slices.Clone(programs)
		for _, p := range i.programs {
			record.Programs = append(record.Programs, Former{p.Owner, p.Function, p.ID})
		}
		content, err := json.Marshal(record)
		if err == nil {
			err = renameio.WriteFile(i.former.file, append(content, '\n'), 0o600) //nolint:mnd // its owner's
		}
		if err != nil {
			i.former.damaged = true
			return fmt.Errorf("record what the daemon has loaded: %w", err)
		}
	}
	i.former.Programs, i.former.lines, i.former.damaged = programs, 0, false
	return nil
}

// recordLoaded records what a Load has loaded, before it is attached. If that fails, the reports have to do.
func (i *Inventory) recordLoaded(ctx context.Context, response *gobpfman.LoadResponse) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var lines []byte
	for _, loaded := range response.GetPrograms() {
		p, ours := i.programOf(loaded.GetInfo(), loaded.GetKernelInfo())
		line, err := json.Marshal(Former{p.Owner, p.Function, p.ID})
		if !ours || err != nil || i.former.file == "" {
			continue
		}
		lines = append(append(lines, line...), '\n')
		i.former.lines++
	}
	if len(lines) == 0 {
		return
	}
	var err error
	if i.former.damaged || i.former.lines > maxLines+2*len(i.programs) {
		err = i.setFormer(i.former.Programs) // without the new programs, which the inventory doesn't have yet
	}
	if appended := appendTo(i.former.file, lines); appended != nil {
		i.former.damaged, err = true, errors.Join(err, appended)
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to record what the daemon has loaded; if the daemon is changed before it is reported, it stays attached")
	}
}

func appendTo(path string, lines []byte) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("record what the daemon has loaded: %w", err)
	}
	_, err = file.Write(lines)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("record what the daemon has loaded: %w", err)
	}
	return nil
}

// before returns the highest ID of a program that was pinned when the daemon answered first. The kernel's IDs increase, so
// programs with higher ones aren't those of a former daemon. An error is about the record.
func (i *Inventory) before() (uint32, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.former.Daemon == i.recognized {
		return i.former.Before, nil
	}
	pins, err := filepath.Glob(filepath.Join(i.root, pinsDir, programPins+"*"))
	if err != nil {
		return 0, problem.Errorf(problem.DaemonStateUnusable, "look for pins: %w", err)
	}
	highest := uint32(0)
	for _, path := range pins {
		if id, ok := idOf(path); ok {
			highest = max(highest, id)
		}
	}
	i.former.Daemon, i.former.Before = i.recognized, highest
	return highest, i.setFormer(i.former.Programs)
}

// sortOut makes those programs former that aren't listed anymore because the daemon was changed, and no others.
func (i *Inventory) sortOut(listed map[uint32]Program) {
	for id, p := range i.programs {
		if _, still := listed[id]; !still && !i.former.has(id) {
			i.former.Programs = append(i.former.Programs, Former{p.Owner, p.Function, id})
		}
	}
	if len(i.former.Programs) == 0 {
		return
	}
	changed := otherDatabase(i.root, i.dialect)
	i.former.Programs = slices.DeleteFunc(slices.Clone(i.former.Programs), func(f Former) bool {
		_, current := listed[f.ID]
		return current || !changed || !i.isThere(f)
	})
}

// Retire removes the former programs of an owner for certain functions.
func (i *Inventory) Retire(ctx context.Context, owner program.Key, certain func(function string) bool) error {
	i.mu.Lock()
	none := !slices.ContainsFunc(i.former.Programs, func(f Former) bool { return f.Owner == owner && certain(f.Function) })
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
	for _, f := range slices.Clone(i.former.Programs) {
		if f.Owner != owner || !certain(f.Function) {
			continue
		}
		if _, listed := i.programs[f.ID]; !listed { // otherwise, the daemon was changed back
			if err := i.removeFormer(f); err != nil {
				return problem.Errorf(problem.FormerDaemonLeft, "remove program %d of the former daemon: %w", f.ID, err)
			}
			logr.FromContextOrDiscard(ctx).Info("Removed a program of the former daemon", "object", owner.String(), "function", f.Function, "program", f.ID)
		}
		if err := i.setFormer(slices.DeleteFunc(slices.Clone(i.former.Programs), func(other Former) bool { return other.ID == f.ID })); err != nil {
			return err
		}
	}
	return nil
}

// removeFormer removes the pins of a program: first those of its links, which detaches it, and last its own, by which it is
// found again after a crash.
func (i *Inventory) removeFormer(f Former) error {
	var pins []string
	for _, pattern := range []string{linkPins + "/*", tcxPins} {
		links, err := filepath.Glob(filepath.Join(i.root, pinsDir, pattern))
		if err != nil {
			return problem.Errorf(problem.DaemonStateUnusable, "look for pins: %w", err)
		}
		for _, path := range links {
			switch id, err := linked(path); {
			case err != nil:
				return err
			case id == f.ID:
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

// linked returns the program of a pinned link, or 0 if it isn't there anymore. The daemons number links independently of each
// other.
func linked(path string) (uint32, error) {
	pinned, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open a pinned link: %w", err)
	}
	defer pinned.Close()
	info, err := pinned.Info()
	if err != nil {
		return 0, fmt.Errorf("read a pinned link: %w", err)
	}
	return uint32(info.Program), nil
}

// succeed prepares the attachment of a program to a place: the one that the former daemon has attached there is removed.
// Those in a dispatcher, which XDP and TC programs share, can't be removed one by one.
func (i *Inventory) succeed(ctx context.Context, id uint32, info *gobpfman.AttachInfo) error {
	i.mu.Lock()
	p := i.programs[id]
	dispatched := info.GetXdpAttachInfo() != nil || info.GetTcAttachInfo() != nil
	found := slices.ContainsFunc(i.former.Programs, func(f Former) bool { return f.Owner == p.Owner && f.Function == p.Function })
	i.mu.Unlock()
	switch {
	case !found:
		return nil
	case dispatched:
		return refuse(problem.FormerDaemonAttached, codes.FailedPrecondition, "the program of the former daemon is still attached, in a dispatcher: "+
			"restart the node, after which nothing of that daemon is left")
	}
	if err := i.retire(ctx, p.Owner, func(function string) bool { return function == p.Function }); err != nil {
		return &refusedError{problem.Of(err), status.New(codes.Aborted, err.Error())}
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
		return problem.Errorf(problem.DaemonStateUnusable, "look for pins: %w", err)
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
