// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package gate

import (
	"cmp"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/recent"
)

const (
	// The shortest and the longest time after which an image that couldn't be read is read again.
	firstReread = 200 * time.Millisecond
	lastReread  = 30 * time.Second
	// maxFailures is the maximum number of failed reads that are known of each namespace.
	maxFailures = 1024
	// forgetAfter is the time after which the failures of a namespace without new ones are forgotten.
	forgetAfter = 10 * time.Minute
)

// failures delays reads of images that failed, more after each one. An owner is also queued by events that say nothing about
// its image, such as a new interface of the node: registries would be asked each time.
type failures struct {
	kept *recent.Values[reading, failure]
}

func newFailures() *failures {
	return &failures{recent.New[reading, failure](maxFailures, forgetAfter)}
}

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

// try calls read, unless it failed recently. In that case, and while the image is read again, it returns the same result. So
// a PendingError is about an image that hasn't failed.
func (f *failures) try(id reading, read func() (bytecode.Bytecode, error)) (bytecode.Bytecode, error) {
	last := f.kept.Get(id.owner.Namespace, id)
	if time.Now().Before(last.until) {
		return last.found, last.err
	}
	found, err := read()
	switch pending := (*bytecode.PendingError)(nil); {
	case err == nil:
		f.kept.Remove(id.owner.Namespace, id)
	case !errors.As(err, &pending):
		delay := min(cmp.Or(2*last.delay, firstReread), lastReread)
		f.kept.Put(id.owner.Namespace, id, failure{found, err, delay, time.Now().Add(delay)})
	case last.err != nil:
		return last.found, last.err
	}
	return found, err
}
