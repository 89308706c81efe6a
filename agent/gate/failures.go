// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package gate

import (
	"cmp"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
)

const (
	// The shortest and the longest time after which an image that couldn't be read is read again.
	firstReread = 200 * time.Millisecond
	lastReread  = 30 * time.Second
	// maxFailures is the maximum number of failed reads that are known.
	maxFailures = 1024
)

// failures delays reads of images that failed, more after each one. An owner is also queued by events that say nothing about
// its image, such as a new interface of the node: registries would be asked each time.
type failures struct {
	kept *lru.Cache // failure by reading
}

func newFailures() *failures { return &failures{lru.New(maxFailures)} }

// reading identifies what an owner reads. When it changes, the image is read immediately.
type reading struct {
	owner      program.Key
	uid        types.UID
	generation int64
	image      bytecode.Image
	object     bool
}

// failure is the last result of a read.
type failure struct {
	found bytecode.Bytecode
	err   error
	delay time.Duration
	until time.Time
}

// try calls read, unless it failed recently. In that case, it returns the same result.
func (f *failures) try(id reading, read func() (bytecode.Bytecode, error)) (bytecode.Bytecode, error) {
	kept, _ := f.kept.Get(id)
	last, _ := kept.(failure)
	if time.Now().Before(last.until) {
		return last.found, last.err
	}
	found, err := read()
	switch pending := (*bytecode.PendingError)(nil); {
	case err == nil:
		f.kept.Remove(id)
	case !errors.As(err, &pending):
		delay := min(cmp.Or(2*last.delay, firstReread), lastReread)
		f.kept.Add(id, failure{found, err, delay, time.Now().Add(delay)})
	}
	return found, err
}
