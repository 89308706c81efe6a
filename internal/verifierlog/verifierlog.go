// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package verifierlog keeps the whole errors of Loads that the node's kernel refuses, which begin with their causes and have the
// logs of the kernel's verifier. A log can have megabytes, and the status of an object has room for 32 KiB. Agents write the
// files, and inspectors read them for `kubectl bpfman why --log`.
package verifierlog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// Dir is the directory, below that of the store of bytecode. NodeDir is its path on nodes.
const (
	Dir     = "verifier-logs"
	NodeDir = "/var/lib/bpfman/bytecode/" + Dir
)

// maxSize is the maximum size of all files together in bytes, and so of one. The oldest ones of the namespace with the most go
// first, so that a namespace doesn't displace the logs of others: the agent writes them again at its next attempt, which is
// within an hour.
const maxSize = 32 << 20

const (
	suffix   = ".log"
	dirMode  = 0o700
	fileMode = 0o600
)

// Owner is a user's object. Namespace is empty if its kind is cluster-scoped.
type Owner struct{ Kind, Namespace, Name string }

// Store keeps logs in a directory, or none if the path is empty. Its methods can be called concurrently for different owners.
type Store struct{ Dir string }

// file returns the name of the file about one Load of an owner, which the names of all its files have as prefix.
func (o Owner) file(load string) string {
	return o.prefix() + digest(load) + suffix
}

func (o Owner) prefix() string { return digest(o.Namespace) + "-" + digest(o.Kind+"/"+o.Name) + "-" }

// namespace returns the part of a file's name that all files of a namespace have.
func namespace(file string) string {
	of, _, _ := strings.Cut(file, "-")
	return of
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Put stores the error of a Load in place of its previous one. load distinguishes the Loads of an owner.
func (s Store) Put(owner Owner, load, text string) error {
	if s.Dir == "" {
		return nil
	}
	if len(text) > maxSize {
		return fmt.Errorf("a log of the verifier has %d bytes, and the limit is %d", len(text), maxSize)
	}
	if err := os.MkdirAll(s.Dir, dirMode); err != nil {
		return fmt.Errorf("create the directory of the verifier's logs: %w", err)
	}
	path := filepath.Join(s.Dir, owner.file(load))
	if err := s.makeRoom(path, int64(len(text))); err != nil {
		return err
	}
	if err := renameio.WriteFile(path, []byte(text), fileMode, renameio.WithTempDir(s.Dir)); err != nil {
		return fmt.Errorf("write a log of the verifier: %w", err)
	}
	return nil
}

// makeRoom removes files until another one has room in place of what is at its path.
func (s Store) makeRoom(path string, size int64) error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("list the verifier's logs: %w", err)
	}
	kept, sizes := map[string][]fs.FileInfo{}, map[string]int64{namespace(filepath.Base(path)): size}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || filepath.Join(s.Dir, info.Name()) == path {
			continue // it is gone, or is replaced
		}
		of := namespace(info.Name())
		kept[of] = append(kept[of], info)
		sizes[of] += info.Size()
		size += info.Size()
	}
	for _, files := range kept {
		slices.SortFunc(files, func(a, b fs.FileInfo) int {
			return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
		})
	}
	for size > maxSize {
		most := slices.MaxFunc(slices.Sorted(maps.Keys(sizes)), func(a, b string) int { return cmp.Compare(sizes[a], sizes[b]) })
		if len(kept[most]) == 0 {
			return errors.New("store a log of the verifier: it is too long beside those of other namespaces")
		}
		oldest := kept[most][0]
		if err := removed(filepath.Join(s.Dir, oldest.Name())); err != nil {
			return err
		}
		kept[most] = kept[most][1:]
		sizes[most] -= oldest.Size()
		size -= oldest.Size()
	}
	return nil
}

// Remove removes what is stored about a Load.
func (s Store) Remove(owner Owner, load string) error {
	if s.Dir == "" {
		return nil
	}
	return removed(filepath.Join(s.Dir, owner.file(load)))
}

func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a log of the verifier: %w", err)
	}
	return nil
}

// Read returns the errors of an owner's Loads, in no particular order.
func (s Store) Read(owner Owner) ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the verifier's logs: %w", err)
	}
	var texts []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), owner.prefix()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.Dir, entry.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
		case err != nil:
			return nil, fmt.Errorf("read a log of the verifier: %w", err)
		default:
			texts = append(texts, string(text))
		}
	}
	return texts, nil
}
