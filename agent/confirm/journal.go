// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package confirm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// journal keeps records on the node's disk, one file for each object. A file is written atomically, and survives a
// crash of the node.
type journal struct{ dir string }

const (
	dirMode  = 0o700
	fileMode = 0o600
	suffix   = ".json"
)

// entry is the content of a file.
type entry struct {
	Key    program.Key `json:"key"`
	Record record      `json:"record"`
}

func (j *journal) path(key program.Key) string {
	sum := sha256.Sum256([]byte(key.String()))
	return filepath.Join(j.dir, hex.EncodeToString(sum[:])+suffix)
}

// read returns all records. A damaged one is removed: its object is new to the node then.
func (j *journal) read() (map[program.Key]record, error) {
	if err := os.MkdirAll(j.dir, dirMode); err != nil {
		return nil, fmt.Errorf("create directory %s: %w", j.dir, err)
	}
	paths, err := filepath.Glob(filepath.Join(j.dir, "*"+suffix))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", j.dir, err)
	}
	records := map[program.Key]record{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the record of a change: %w", err)
		}
		var e entry
		if json.Unmarshal(text, &e) != nil || j.path(e.Key) != path || !e.Record.valid() {
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("remove a damaged record: %w", err)
			}
			continue
		}
		records[e.Key] = e.Record
	}
	return records, nil
}

func (j *journal) write(key program.Key, r record) error {
	text, err := json.Marshal(entry{key, r})
	if err == nil {
		err = renameio.WriteFile(j.path(key), text, fileMode)
	}
	if err == nil {
		err = j.sync()
	}
	if err != nil {
		return problem.Errorf(problem.ChangeNotRecorded, "record a change of %s: %w", key, err)
	}
	return nil
}

// sync makes the names of files survive a crash of the node. A version can cause that crash as soon as it is attached, when
// the file system hasn't written the directory yet.
func (j *journal) sync() error {
	dir, err := os.Open(j.dir)
	if err != nil {
		return fmt.Errorf("open the directory: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (j *journal) remove(key program.Key) error {
	err := os.Remove(j.path(key))
	if err == nil {
		err = j.sync()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of %s: %w", key, err)
	}
	return nil
}

// valid reports whether the record's versions can be decoded.
func (r record) valid() bool {
	for _, v := range r.versions() {
		if _, err := v.Owner(); err != nil || v.Object.Spec == nil {
			return false
		}
	}
	return r.Confirmed != nil || r.Tried != nil
}
