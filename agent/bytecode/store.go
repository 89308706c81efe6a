// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Dir is the directory of the Store, on the node and in the containers of the agent and
// of the daemon.
const Dir = "/var/lib/bpfman/bytecode"

// Store keeps eBPF objects on the node's disk, so that programs can be loaded without a
// registry, also after a reboot. The daemon loads them from there: their paths contain
// the image and its digest, so that `bpfman list` on the node shows what a program is.
//
//	images/<repository>@<digest of the manifest>.o     what the daemon loads
//	images/<repository>@<digest of the manifest>.json  what it contains
//	references/<hash>.json                             what a reference was resolved to
//	findings/<hash>.json                               who signed an image
//
// Files are written atomically. A file that is missing or damaged is the same as an
// image that the node never had.
type Store struct {
	// Dir is the directory, which must be at the same path for the daemon.
	Dir string
	// Limit is the maximum size of all objects, in bytes.
	Limit int64
	// Used returns the images that objects on this node use, whose objects stay. Without
	// a digest, an image is what its reference was last resolved to.
	Used func() []Image

	mu sync.Mutex // serializes Put
}

const (
	imagesDir     = "images"
	referencesDir = "references"
	findingsDir   = "findings"

	objectSuffix = ".o"
	recordSuffix = ".json"

	dirMode    = 0o755
	objectMode = 0o444
	recordMode = 0o600

	// newPrefix is the prefix of the names of objects that are being read. If the agent
	// crashes, they are removed after abandoned.
	newPrefix = "new-"
	abandoned = time.Hour

	// maxRecords is the maximum number of references, and of findings. With more, the
	// ones that weren't used for the longest time are removed.
	maxRecords = 1024
)

// resolution is what a reference was last resolved to.
type resolution struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest"`
	Manifest  string `json:"manifest"`
}

// Resolved returns the image that a reference was resolved to when it was last read.
func (s *Store) Resolved(url string) (Image, bool) {
	var r resolution
	if s.get(s.reference(url), &r) != nil || r.Reference != url {
		return Image{}, false
	}
	image := Image(r)
	return image, image.check() == nil
}

// Keep stores what a reference was resolved to.
func (s *Store) Keep(image Image) error {
	if err := image.check(); err != nil {
		return err
	}
	return s.putBounded(s.reference(image.Reference), resolution(image))
}

func (s *Store) reference(url string) string {
	return filepath.Join(s.Dir, referencesDir, hash([]byte(url))+recordSuffix)
}

// Object returns the path of an image's object, and what the object contains. It returns
// false if the node doesn't have it, or if the file isn't what was stored.
func (s *Store) Object(image Image) (path string, object reader.Object, ok bool) {
	base, err := s.base(image)
	if err != nil || s.get(base+recordSuffix, &object) != nil {
		return "", reader.Object{}, false
	}
	path = base + objectSuffix
	if digest, _, err := digestOf(path); err != nil || digest != object.Digest {
		return "", reader.Object{}, false
	}
	mark(path)
	return path, object, true
}

// base returns the path of an image's files without their suffixes.
func (s *Store) base(image Image) (string, error) {
	named, err := parse(image.Reference)
	if err != nil {
		return "", err
	}
	if err := image.check(); err != nil {
		return "", err
	}
	return filepath.Join(s.Dir, imagesDir, filepath.FromSlash(named.Repository)+"@"+image.Manifest), nil
}

// Create returns a file for a new object. Callers must pass it to Put or Discard.
func (s *Store) Create() (*os.File, error) {
	if err := os.MkdirAll(s.Dir, dirMode); err != nil {
		return nil, fmt.Errorf("create the store of bytecode: %w", err)
	}
	file, err := os.CreateTemp(s.Dir, newPrefix)
	if err != nil {
		return nil, fmt.Errorf("create a file in the store of bytecode: %w", err)
	}
	return file, nil
}

// Discard removes a file of Create.
func (*Store) Discard(file *os.File) {
	_ = file.Close()
	_ = os.Remove(file.Name()) // Open removes what is left
}

// Put stores an image's object, which was written to a file of Create, and removes others
// if there is no space. It returns the object's path.
func (s *Store) Put(image Image, file *os.File, object reader.Object) (path string, err error) {
	defer func() {
		if err != nil {
			s.Discard(file)
			err = fmt.Errorf("store image %s: %w", image.Reference, err)
		}
	}()
	base, err := s.base(image)
	if err != nil {
		return "", err
	}
	path = base + objectSuffix
	digest, size, err := digestOf(file.Name())
	if err != nil {
		return "", err
	}
	if digest != object.Digest || size != object.Size {
		return "", fmt.Errorf("its object is %s with %d bytes instead of %s with %d", digest, size, object.Digest, object.Size)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(path, size); err != nil {
		return "", err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(base), dirMode), file.Chmod(objectMode), file.Sync(), file.Close()); err != nil {
		return "", err
	}
	// The record without its object, or with another one, is the same as no record.
	if err := os.Rename(file.Name(), path); err != nil {
		return "", err
	}
	if err := s.put(base+recordSuffix, object); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}

// Findings returns stored findings.
func (s *Store) Findings(key string) (Findings, bool) {
	var found Findings
	err := s.get(filepath.Join(s.Dir, findingsDir, key+recordSuffix), &found)
	return found, err == nil
}

// KeepFindings stores findings, which must not change later.
func (s *Store) KeepFindings(key string, found Findings) error {
	return s.putBounded(filepath.Join(s.Dir, findingsDir, key+recordSuffix), found)
}

// stored is an object in the store.
type stored struct {
	path string
	size int64
	used time.Time
}

// objects returns all objects, the one that wasn't used for the longest time first.
func (s *Store) objects() ([]stored, error) {
	var all []stored
	err := filepath.WalkDir(filepath.Join(s.Dir, imagesDir), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, objectSuffix) {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another agent has removed it since
		}
		if err != nil {
			return err
		}
		all = append(all, stored{path, info.Size(), info.ModTime()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the store of bytecode: %w", err)
	}
	slices.SortFunc(all, func(a, b stored) int { return a.used.Compare(b.used) })
	return all, nil
}

// Size returns the size of all objects, in bytes.
func (s *Store) Size() int64 {
	all, _ := s.objects() // what can't be listed isn't counted
	var size int64
	for _, o := range all {
		size += o.size
	}
	return size
}

// makeRoom removes objects that nothing on this node uses until there is space for one
// more, or for another version of one. It removes none if that isn't enough.
func (s *Store) makeRoom(path string, size int64) error {
	all, err := s.objects()
	if err != nil {
		return err
	}
	used := s.used()
	var unused []stored
	var inUse, total int64
	for _, o := range all {
		switch {
		case o.path == path:
			continue // it is replaced
		case used[o.path]:
			inUse += o.size
		default:
			unused = append(unused, o)
		}
		total += o.size
	}
	if inUse+size > s.Limit {
		return fmt.Errorf("the node's store of bytecode is full: %d MiB of %d are in use; increase bpfman.bytecode.store.size in the ConfigMap bpfman-config", inUse>>20, s.Limit>>20)
	}
	for n := 0; total+size > s.Limit; n++ {
		o := unused[n]
		for _, file := range []string{o.path, strings.TrimSuffix(o.path, objectSuffix) + recordSuffix} {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove an unused object: %w", err)
			}
		}
		total -= o.size
	}
	return nil
}

// used returns the paths of the objects that objects on this node use.
func (s *Store) used() map[string]bool {
	paths := map[string]bool{}
	if s.Used == nil {
		return paths
	}
	images := s.Used()
	for _, image := range images {
		if resolved, ok := s.Resolved(image.Reference); ok && image.Manifest == "" {
			image = resolved
		}
		if base, err := s.base(image); err == nil {
			paths[base+objectSuffix] = true
		}
	}
	return paths
}

// Open removes what a crash has left.
func (s *Store) Open() error {
	left, err := filepath.Glob(filepath.Join(s.Dir, newPrefix+"*"))
	for _, file := range left {
		if info, failed := os.Stat(file); failed == nil && time.Since(info.ModTime()) > abandoned {
			err = errors.Join(err, os.Remove(file))
		}
	}
	if err != nil {
		return fmt.Errorf("open the store of bytecode: %w", err)
	}
	return nil
}

// Clear removes everything from the store.
func (s *Store) Clear() error {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.Dir, entry.Name())))
	}
	if err != nil {
		return fmt.Errorf("clear the store of bytecode: %w", err)
	}
	return nil
}

// putBounded writes a record, and removes the oldest ones of its directory if they are too
// many. The records of objects are removed with their objects instead.
func (s *Store) putBounded(path string, record any) error {
	if err := s.put(path, record); err != nil {
		return err
	}
	return prune(filepath.Dir(path))
}

// put writes a record.
func (*Store) put(path string, record any) error {
	content, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("store bytecode: %w", err)
	}
	if err := renameio.WriteFile(path, content, recordMode, renameio.WithTempDir(dir)); err != nil {
		return fmt.Errorf("store bytecode: %w", err)
	}
	return nil
}

// get reads a record, and marks it as used.
func (*Store) get(path string, record any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	if err := json.Unmarshal(content, record); err != nil {
		return fmt.Errorf("read record %s: %w", path, err)
	}
	mark(path)
	return nil
}

// mark marks a file as used. One that couldn't be marked is removed earlier.
func mark(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now)
}

// prune removes the records that weren't used for the longest time.
func prune(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= maxRecords {
		return err
	}
	var all []stored
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			all = append(all, stored{filepath.Join(dir, entry.Name()), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b stored) int { return a.used.Compare(b.used) })
	// Others can have removed some since.
	for _, o := range all[:max(0, len(all)-maxRecords*9/10)] {
		if failed := os.Remove(o.path); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// digestOf returns the digest and the size of a file.
func digestOf(path string) (string, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, fmt.Errorf("read object: %w", err)
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		return "", 0, fmt.Errorf("read object: %w", err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), size, nil
}
