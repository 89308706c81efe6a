// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Dir is the directory of the Store, on the node and in the containers of the agent and
// of the daemon.
const Dir = "/var/lib/bpfman/bytecode"

// Store keeps eBPF objects on the node's disk, so that programs can be loaded without a
// registry, even after a reboot. The daemon loads them from there: their paths contain
// the image and its digest, so that `bpfman list` on the node shows what a program is.
//
//	images/<repository>@<digest of the manifest>.o          the image's object, without debug sections
//	images/<repository>@<digest of the manifest>.adapted.o  what the daemon loads, if it isn't the former
//	images/<repository>@<digest of the manifest>.json       what they contain
//	references/<hash>.json                                  what a reference was resolved to
//	findings/<hash>.json                                    who signed an image
//
// Files are written atomically. A file that is missing or damaged is the same as an
// image that the node never had. If only what the daemon loads is missing, or is for
// another kernel or version of bpfman, it can be made again from the image's object.
// Earlier versions had no such file: the daemon loaded the image's object.
type Store struct {
	// Dir is the directory, which must be at the same path for the daemon.
	Dir string
	// Limit is the maximum size of all objects, in bytes.
	Limit int64
	// Kernel identifies the node's kernel, as reader.Kernel does.
	Kernel string
	// Used returns the images that objects on this node use, whose objects stay. Without
	// a digest, an image is what its reference was last resolved to.
	Used func() []Image
	// Uses returns the same with the namespaces of the objects, which have limits. It can be nil: then there are none.
	Uses func() []Use
	// Unknown returns why Used can lack images, or nil if it is complete. Until then, nothing is removed. Unknown can be nil.
	Unknown func() error

	mu sync.Mutex // serializes Put
	// storedFor contains the namespaces whose objects asked for the images that this process has stored, by path without
	// suffixes. Those without a namespace aren't in it.
	storedFor map[string]string
}

const (
	imagesDir     = "images"
	referencesDir = "references"
	findingsDir   = "findings"

	objectSuffix = ".o"
	adapted      = ".adapted"
	recordSuffix = ".json"

	dirMode    = 0o755
	objectMode = 0o444
	recordMode = 0o600

	// newPrefix is the prefix of the names of objects that are being read. Those of files that are being written begin with
	// a dot (renameio). If the agent crashes, they are removed after abandoned.
	newPrefix = "new-"
	abandoned = time.Hour

	// maxRecords is the maximum number of images, of references, and of findings. With more, the
	// ones that weren't used for the longest time are removed, but not those of images that
	// objects on the node use. Small objects take more space on the disk than their size. Of
	// findings, each image in use keeps the last maxKept: there are others for each policy and
	// for each pull Secret.
	maxRecords = 1024
	maxKept    = 16
)

// resolution is what a reference was last resolved to.
type resolution struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest"`
	Manifest  string `json:"manifest"`
}

// Resolved returns the image that a reference was resolved to when it was last read, and marks it as used.
func (s *Store) Resolved(url string) (Image, bool) {
	image, ok := s.resolved(url)
	if ok {
		mark(s.reference(url))
	}
	return image, ok
}

func (s *Store) resolved(url string) (Image, bool) {
	var r resolution
	if s.peek(s.reference(url), &r) != nil || r.Reference != url {
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
	if err := s.put(s.reference(image.Reference), resolution(image)); err != nil {
		return err
	}
	return s.prune(referencesDir, func(path string) string {
		var r resolution
		_ = s.peek(path, &r) // then nothing uses it
		return r.Reference
	})
}

func (s *Store) reference(url string) string {
	return filepath.Join(s.Dir, referencesDir, hash([]byte(url))+recordSuffix)
}

// Object returns the path of what the daemon loads for an image, and what the image's object
// contains. It returns false if the node doesn't have it for this kernel, or if the file isn't
// what was stored.
func (s *Store) Object(image Image) (path string, object reader.Object, ok bool) {
	base, err := s.base(image)
	if err != nil || s.get(base+recordSuffix, &object) != nil || !object.Adapted.Fits(s.Kernel) {
		return "", reader.Object{}, false
	}
	path = base + suffixOf(object)
	if digest, _, err := digestOf(path); err != nil || digest != object.Adapted.Digest {
		return "", reader.Object{}, false
	}
	mark(path)
	return path, object, true
}

// suffixOf returns the suffix of the file that the daemon loads.
func suffixOf(object reader.Object) string {
	if object.Adapted.Digest == object.Digest {
		return objectSuffix
	}
	return adapted + objectSuffix
}

// ImageObject returns what an image's object contains, from which the node can make what the
// daemon loads. It returns false if the node doesn't have it, or if it isn't what was stored.
func (s *Store) ImageObject(image Image) (object reader.Object, ok bool) {
	base, err := s.base(image)
	if err != nil || s.get(base+recordSuffix, &object) != nil {
		return reader.Object{}, false
	}
	digest, _, err := digestOf(base + objectSuffix)
	return object, err == nil && digest == object.Digest
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
	parents, name := path.Split(named.Repository)
	return filepath.Join(s.Dir, imagesDir, filepath.FromSlash(parents), fileName(name, image.Manifest)+"@"+image.Manifest), nil
}

// longestName is the maximum length of a file's name, in bytes. beside is what a name has beside the repository and the
// digest: "@", the longest suffix, and what renameio adds while it writes the file.
const (
	longestName = 255
	beside      = 32
)

// fileName returns the last part of a repository, or the beginning of it with a hash if that makes a file's name too long. No
// repository's name has "=".
func fileName(name, digest string) string {
	most := longestName - beside - len(digest)
	if len(name) <= most {
		return name
	}
	sum := "=" + hash([]byte(name))
	return name[:most-len(sum)] + sum
}

// Put stores an image's object, which was written to files of Create, for an object of a namespace, or without one. It removes
// others if there is no space. It returns the path of what the daemon loads.
func (s *Store) Put(namespace string, image Image, files *Files, object reader.Object) (path string, err error) {
	base, err := s.base(image)
	if err == nil {
		err = areWritten(files, object) // it reads the files, so others needn't wait for it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		path, err = s.place(claim{namespace: namespace, image: image, base: base}, files, object)
	}
	if err != nil {
		err = fmt.Errorf("store image %s: %w", image.Reference, err)
		if _, kept := s.ImageObject(image); base != "" && !kept { // files without a record can't be used
			err = errors.Join(err, s.remove(base))
		}
		return "", err
	}
	return path, nil
}

// areWritten returns an error unless the files have an image's object, and what is adapted of it.
func areWritten(files *Files, object reader.Object) error {
	if err := isWritten(files.Object, object.Digest, object.Size); err != nil {
		return err
	}
	if suffixOf(object) == objectSuffix {
		return nil
	}
	return isWritten(files.Adapted, object.Adapted.Digest, object.Adapted.Size)
}

// place moves files to where those of an image are, and writes its record. The caller holds mu.
func (s *Store) place(c claim, files *Files, object reader.Object) (path string, err error) {
	base := c.base
	path, c.size = base+suffixOf(object), object.Size
	if path != base+objectSuffix {
		c.size += object.Adapted.Size
	}
	if err := s.makeRoom(c); err != nil {
		return "", err
	}
	s.remember(c)
	// Until the record is written, it has another digest for what the daemon loads, or there is none. The image's object
	// is always the same.
	if err := errors.Join(os.MkdirAll(filepath.Dir(base), dirMode), move(&files.Object, base+objectSuffix)); err != nil {
		return "", err
	}
	if path != base+objectSuffix {
		if err := move(&files.Adapted, path); err != nil {
			return "", err
		}
	}
	if err := s.put(base+recordSuffix, object); err != nil {
		return "", err
	}
	if path == base+objectSuffix { // another version of bpfman may have adapted it
		if err := os.Remove(base + adapted + objectSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return path, nil
}

// remove removes the files of an image, and the directories that are empty without them.
func (s *Store) remove(base string) error {
	var failed error
	for _, suffix := range []string{recordSuffix, adapted + objectSuffix, objectSuffix} {
		if err := os.Remove(base + suffix); !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	images := filepath.Join(s.Dir, imagesDir)
	for dir := filepath.Dir(base); dir != images && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
	}
	return failed
}

// signed is who signed an image.
type signed struct {
	Findings

	// Image is the path of the image below the directory of images, without suffixes. Earlier versions didn't write it.
	Image string `json:"image,omitempty"`
}

// Findings returns stored findings.
func (s *Store) Findings(key string) (Findings, bool) {
	var found signed
	err := s.get(filepath.Join(s.Dir, findingsDir, key+recordSuffix), &found)
	return found.Findings, err == nil
}

// KeepFindings stores findings about an image, which must not change later.
func (s *Store) KeepFindings(key string, image Image, found Findings) error {
	base, err := s.base(image)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(filepath.Join(s.Dir, imagesDir), base)
	if err != nil {
		return fmt.Errorf("store findings: %w", err)
	}
	if err := s.put(filepath.Join(s.Dir, findingsDir, key+recordSuffix), signed{found, name}); err != nil {
		return err
	}
	return s.prune(findingsDir, func(path string) string {
		var found signed
		_ = s.peek(path, &found) // then nothing uses it
		return filepath.Join(s.Dir, imagesDir, found.Image)
	})
}

// stored are the files of an image in the store, or another file.
type stored struct {
	path string // of an image without its suffixes
	size int64
	used time.Time
}

// objects returns all objects, the one that wasn't used for the longest time first.
func (s *Store) objects() ([]stored, error) {
	all := map[string]stored{}
	err := filepath.WalkDir(filepath.Join(s.Dir, imagesDir), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		base, ok := strings.CutSuffix(path, objectSuffix)
		if err != nil || entry.IsDir() || !ok {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another agent has removed it since
		}
		if err != nil {
			return err
		}
		base = strings.TrimSuffix(base, adapted)
		o := all[base]
		o.path, o.size = base, o.size+info.Size()
		if info.ModTime().After(o.used) {
			o.used = info.ModTime()
		}
		all[base] = o
		return nil
	})
	if err != nil {
		return nil, problem.Errorf(problem.StoreUnusable, "list the store of bytecode: %w", err)
	}
	return slices.SortedFunc(maps.Values(all), func(a, b stored) int { return a.used.Compare(b.used) }), nil
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
// more, or for another version of one. It removes none if that isn't enough. A namespace with much gives up what it has stored
// itself first. If the store is nearly empty, who uses what doesn't matter.
func (s *Store) makeRoom(c claim) error {
	size := c.size
	all, err := s.objects()
	if err != nil || s.hasAmpleRoom(c, all) {
		return err
	}
	uses := s.uses()
	used := s.kept(all, uses)
	var unused []stored
	var inUse, total int64
	for _, o := range all {
		switch {
		case o.path == c.base:
			continue // it is replaced
		case used[o.path]:
			inUse += o.size
		default:
			unused = append(unused, o)
		}
		total += o.size
	}
	if inUse+size > s.Limit {
		return problem.Errorf(problem.StoreFull, "the node's store of bytecode is full: %d MiB of %d are in use; increase bpfman.bytecode.store.size in the ConfigMap bpfman-config", inUse>>20, s.Limit>>20)
	}
	if err := s.unknown(); err != nil && (total+size > s.Limit || len(all) >= maxRecords) {
		return problem.Errorf(problem.ReadAgain, "the node's store of bytecode is full, and it isn't known yet which images are in use: %w", err)
	}
	own := s.tenancy(c, all, used, uses)
	if err := own.refuse(); err != nil {
		return err
	}
	count := len(all)
	for _, needed := range []func(stored) bool{
		own.crowds,
		func(stored) bool { return total+size > s.Limit || count >= maxRecords },
	} {
		var kept []stored
		for _, o := range unused {
			if !needed(o) {
				kept = append(kept, o)
				continue
			}
			if err := s.remove(o.path); err != nil {
				return problem.Errorf(problem.StoreUnusable, "remove an unused object: %w", err)
			}
			total -= o.size
			count--
			own.gaveUp(o)
		}
		unused = kept
	}
	return nil
}

// used returns the images that objects on this node use, by path without suffixes.
func (s *Store) used() map[string]bool {
	bases, paths := s.bases(), map[string]bool{}
	for _, image := range s.images() {
		if base := bases(image); base != "" {
			paths[base] = true
		}
	}
	return paths
}

// bases returns a function that returns the path without suffixes of an image that objects use, or "" if it isn't known. It reads
// what a reference was resolved to once, because many objects can use the same image.
func (s *Store) bases() func(Image) string {
	known := map[Image]string{}
	return func(image Image) string {
		base, ok := known[image]
		if !ok {
			base, _ = s.base(s.resolvedUse(image))
			known[image] = base
		}
		return base
	}
}

// unknown returns why images can lack some, or nil.
func (s *Store) unknown() error {
	if s.Unknown == nil {
		return nil
	}
	return s.Unknown()
}

// images returns the images that objects on this node use.
func (s *Store) images() []Image {
	if s.Used == nil {
		return nil
	}
	return s.Used()
}

// Open removes what a crash has left, also of what others keep in its directory.
func (s *Store) Open() error {
	var left []string
	err := filepath.WalkDir(s.Dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // another agent has removed it since
		case err != nil || entry.IsDir():
			return err
		}
		writing := strings.HasPrefix(entry.Name(), newPrefix) && filepath.Dir(path) == s.Dir || strings.HasPrefix(entry.Name(), ".")
		if info, failed := entry.Info(); writing && failed == nil && time.Since(info.ModTime()) > abandoned {
			left = append(left, path)
		}
		return nil
	})
	for _, path := range left {
		if failed := os.Remove(path); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return problem.Errorf(problem.StoreUnusable, "open the store of bytecode: %w", err)
	}
	return nil
}

// Clear removes everything from the store, except what others keep in its directory, by name.
func (s *Store) Clear(except ...string) error {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if slices.Contains(except, entry.Name()) {
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.Dir, entry.Name())))
	}
	if err != nil {
		return problem.Errorf(problem.StoreUnusable, "clear the store of bytecode: %w", err)
	}
	return nil
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
