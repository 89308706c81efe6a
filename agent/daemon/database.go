// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const (
	// databaseDir is the directory of the sled database of the daemon of v0.6.0.
	databaseDir = "/run/bpfman/db"
	// unfinished matches the snapshots that sled 0.34 is writing. If one is left after a full
	// disk or a crash, sled uses it as the newest snapshot, and can't open the database.
	unfinished = "snap.*.generating"
	// abandoned is the minimum age of a file to remove. Writing a snapshot takes milliseconds.
	abandoned = 10 * time.Second
	// noDatabase is the daemon's message for each failure to open its database.
	noDatabase = "Failed to acquire database lock"
)

// Refresh gets the list of programs from the daemon. It returns the owners whose programs,
// links or users of maps have changed. If the daemon can't open its database after a full
// disk, Refresh repairs the database. It removes the pins that a killed daemon left.
func (i *Inventory) Refresh(ctx context.Context) ([]program.Key, error) {
	changed, err := i.refresh(ctx)
	for errors.Is(err, errUnfinished) && ctx.Err() == nil { // other calls can be made in between
		changed, err = i.refresh(ctx)
	}
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

// lacksDatabase reports whether the daemon refused a call because it can't open its database, or may not answer for this
// reason: it tries for five minutes with the default configuration.
func lacksDatabase(err error) bool {
	failed := (*Error)(nil)
	if !errors.As(err, &failed) {
		return false
	}
	cause := status.Convert(failed.Cause)
	return cause.Code() == codes.DeadlineExceeded || failed.Refused() && strings.Contains(cause.Message(), noDatabase)
}

// mendDatabase removes the abandoned snapshots below root, which is the daemon's file system,
// and returns their paths. No data is lost, because the database contains everything that is
// in a snapshot.
func mendDatabase(root string, now time.Time) (removed []string, err error) {
	files, err := filepath.Glob(filepath.Join(root, databaseDir, unfinished))
	if err != nil {
		return nil, problem.Errorf(problem.DaemonStateUnusable, "look for unfinished snapshots: %w", err)
	}
	for _, file := range files {
		info, err := os.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && isRecent(now.Sub(info.ModTime()))) {
			continue
		}
		if err == nil {
			err = os.Remove(file)
		}
		if err != nil {
			return removed, problem.Errorf(problem.DaemonStateUnusable, "remove an unfinished snapshot of the daemon's database: %w", err)
		}
		removed = append(removed, file)
	}
	return removed, nil
}

// isRecent reports whether a file of this age may still be written. A file from the future is from before the clock was set
// back.
func isRecent(age time.Duration) bool { return age >= 0 && age < abandoned }

// DatabaseSize returns the size of the daemon's database below root, in bytes.
func DatabaseSize(root string) int64 {
	var size int64
	// What disappears meanwhile isn't counted.
	_ = filepath.WalkDir(filepath.Join(root, databaseDir), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // see above
		}
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}
