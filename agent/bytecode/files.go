// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Files are the files of an object that is being read.
type Files struct {
	// Object is for reader.ObjectFile, and Adapted for reader.AdaptedFile.
	Object, Adapted *os.File
}

// Create returns files for a new object. Callers must discard them, even after Put.
func (s *Store) Create() (files *Files, err error) {
	files = &Files{}
	defer func() {
		if err != nil {
			files.Discard()
			files, err = nil, problem.Errorf(problem.StoreUnusable, "create a file in the store of bytecode: %w", err)
		}
	}()
	if err := os.MkdirAll(s.Dir, dirMode); err != nil {
		return files, err
	}
	if files.Object, err = os.CreateTemp(s.Dir, newPrefix); err != nil {
		return files, err
	}
	files.Adapted, err = os.CreateTemp(s.Dir, newPrefix)
	return files, err
}

// Copy is like Create, with the image's object in its file.
func (s *Store) Copy(image Image) (*Files, error) {
	base, err := s.base(image)
	if err != nil {
		return nil, err
	}
	from, err := os.Open(base + objectSuffix)
	if err != nil {
		return nil, problem.Errorf(problem.StoreUnusable, "read object: %w", err)
	}
	defer from.Close()
	files, err := s.Create()
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(files.Object, from)
	if _, failed := files.Object.Seek(0, io.SeekStart); err != nil || failed != nil {
		files.Discard()
		return nil, problem.Errorf(problem.StoreUnusable, "copy object: %w", errors.Join(err, failed))
	}
	return files, nil
}

// Discard removes the files that weren't moved into the store.
func (f *Files) Discard() {
	if f == nil {
		return
	}
	for _, file := range []*os.File{f.Object, f.Adapted} {
		if file != nil {
			_ = file.Close()
			_ = os.Remove(file.Name()) // Open removes what is left
		}
	}
}

// isWritten returns an error unless a file has this content.
func isWritten(file *os.File, digest string, size int64) error {
	written, length, err := digestOf(file.Name())
	if err != nil {
		return err
	}
	if written != digest || length != size {
		return problem.Errorf(problem.ReadAgain, "its object is %s with %d bytes instead of %s with %d", written, length, digest, size)
	}
	return nil
}

// move moves a file to a path.
func move(from **os.File, path string) error {
	file := *from
	if err := errors.Join(file.Chmod(objectMode), file.Sync(), file.Close(), os.Rename(file.Name(), path)); err != nil {
		return err
	}
	*from = nil
	return nil
}

// digestOf returns the digest and the size of a file.
func digestOf(path string) (string, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, problem.Errorf(problem.StoreUnusable, "read object: %w", err)
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		return "", 0, problem.Errorf(problem.StoreUnusable, "read object: %w", err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), size, nil
}
