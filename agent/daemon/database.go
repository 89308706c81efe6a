// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/program"
)

const (
	// databaseDir is where the daemon of v0.6.0 has its database, which is sled's.
	databaseDir = "/run/bpfman/db"
	// unfinished are the snapshots that sled 0.34 is writing. It takes one that a full disk or
	// a crash has left for the newest snapshot, and then can't open the database any more.
	unfinished = "snap.*.generating"
	// abandoned is how old such a file must be: a snapshot takes milliseconds to write.
	abandoned = 10 * time.Second
	// noDatabase is what the daemon says of every failure to open its database.
	noDatabase = "Failed to acquire database lock"
)

// Refresh asks the daemon for all it holds and returns the owners whose
// programs, links or users of maps differ from what was known. It gets a daemon
// going again that a full disk has left without its database.
func (i *Inventory) Refresh(ctx context.Context) ([]program.Key, error) {
	changed, err := i.refresh(ctx)
	if !lacksDatabase(err) {
		return changed, err
	}
	removed, failed := mendDatabase(i.root, time.Now())
	if len(removed) == 0 {
		return nil, errors.Join(err, failed)
	}
	logr.FromContextOrDiscard(ctx).Info("Removed unfinished snapshots that kept the daemon from opening its database", "files", removed)
	return i.refresh(ctx)
}

// lacksDatabase tells that a daemon refuses calls because it can't open its database.
func lacksDatabase(err error) bool {
	failed := (*Error)(nil)
	return errors.As(err, &failed) && failed.Refused() && strings.Contains(words(status.Convert(failed.Cause).Message()), noDatabase)
}

// mendDatabase removes the snapshots that were abandoned below root, the daemon's file system,
// and returns their paths. The database has everything that they were to have.
func mendDatabase(root string, now time.Time) (removed []string, err error) {
	files, err := filepath.Glob(filepath.Join(root, databaseDir, unfinished))
	if err != nil {
		return nil, fmt.Errorf("look for unfinished snapshots: %w", err)
	}
	for _, file := range files {
		info, err := os.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && now.Sub(info.ModTime()) < abandoned) {
			continue
		}
		if err == nil {
			err = os.Remove(file)
		}
		if err != nil {
			return removed, fmt.Errorf("remove an unfinished snapshot of the daemon's database: %w", err)
		}
		removed = append(removed, file)
	}
	return removed, nil
}
