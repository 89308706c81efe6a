// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// put writes a record.
func (*Store) put(path string, record any) error {
	content, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return problem.Errorf(problem.StoreUnusable, "store bytecode: %w", err)
	}
	if err := renameio.WriteFile(path, content, recordMode, renameio.WithTempDir(dir)); err != nil {
		return problem.Errorf(problem.StoreUnusable, "store bytecode: %w", err)
	}
	return nil
}

// get reads a record, and marks it as used.
func (s *Store) get(path string, record any) error {
	err := s.peek(path, record)
	if err == nil {
		mark(path)
	}
	return err
}

// peek reads a record.
func (*Store) peek(path string, record any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return problem.Errorf(problem.StoreUnusable, "read record: %w", err)
	}
	if err := json.Unmarshal(content, record); err != nil {
		return problem.Errorf(problem.StoreUnusable, "read record %s: %w", path, err)
	}
	return nil
}

// mark marks a file as used. One that couldn't be marked is removed earlier.
func mark(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now)
}

// prune removes the records of a directory that weren't used for the longest time, if there are too many, but not those of
// what objects on this node use. The function about returns what a record is about: a reference, or the path of an image
// without suffixes.
func (s *Store) prune(dir string, about func(path string) string) error {
	dir = filepath.Join(s.Dir, dir)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= maxRecords || s.unknown() != nil {
		return err
	}
	var all []stored
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			all = append(all, stored{filepath.Join(dir, entry.Name()), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b stored) int { return b.used.Compare(a.used) })
	used, kept := s.used(), map[string]int{}
	for _, image := range s.images() {
		used[image.Reference] = true
	}
	unused := slices.DeleteFunc(slices.Clone(all), func(o stored) bool {
		subject := about(o.path)
		kept[subject]++
		return used[subject] && kept[subject] <= maxKept
	})
	// Others can have removed some since.
	for _, o := range unused[max(0, len(unused)-max(0, len(all)-maxRecords*9/10)):] {
		if failed := os.Remove(o.path); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
