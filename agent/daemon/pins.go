// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// pinsDir is the daemon's BPF file system. The daemon of v0.6.0 pins each program as
	// prog_ID, and its maps in maps/ID.
	pinsDir     = "/run/bpfman/fs"
	programPins = "prog_"
	mapPins     = "maps"
	// databaseConfig is a file that sled writes once, when it creates the database.
	databaseConfig = databaseDir + "/conf"
)

// removeOrphans removes the pins below root of programs that aren't in the daemon's list, and
// returns their names. The daemon leaves them if it is killed during a Load of several programs,
// and nobody else would ever remove them. A call of the daemon is completed before the next one,
// so what a list doesn't have isn't being loaded. What is older than the daemon's database is of
// another version.
func removeOrphans(root string, list *gobpfman.ListResponse, now time.Time) (removed []string, err error) {
	config, err := os.Stat(filepath.Join(root, databaseConfig))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // there is no such daemon
	}
	if err != nil {
		return nil, fmt.Errorf("read when the daemon's database was created: %w", err)
	}
	used := map[string]bool{}
	for _, result := range list.GetResults() {
		used[strconv.FormatUint(uint64(result.GetKernelInfo().GetId()), 10)] = true
		if owner := result.GetInfo().MapOwnerId; owner != nil { //nolint:protogetter // nil differs from 0
			used[strconv.FormatUint(uint64(*owner), 10)] = true
		}
	}
	dir := filepath.Join(root, pinsDir)
	programs, err := filepath.Glob(filepath.Join(dir, programPins+"*"))
	if err != nil {
		return nil, fmt.Errorf("look for pins of programs: %w", err)
	}
	maps, err := filepath.Glob(filepath.Join(dir, mapPins, "*"))
	if err != nil {
		return nil, fmt.Errorf("look for pins of maps: %w", err)
	}
	for _, pin := range slices.Concat(programs, maps) {
		id := strings.TrimPrefix(filepath.Base(pin), programPins)
		if _, err := strconv.ParseUint(id, 10, 32); err != nil || used[id] {
			continue
		}
		info, err := os.Lstat(pin)
		if errors.Is(err, os.ErrNotExist) || err == nil && (now.Sub(info.ModTime()) < abandoned || info.ModTime().Before(config.ModTime())) {
			continue
		}
		if err == nil {
			err = os.RemoveAll(pin)
		}
		if err != nil {
			return removed, fmt.Errorf("remove what a killed daemon left: %w", err)
		}
		name, _ := filepath.Rel(dir, pin)
		removed = append(removed, name)
	}
	return removed, nil
}
