// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package gate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
)

var errRefused = errors.New("the registry refuses connections")

// read returns what reads an image with a result, and counts the reads.
func read(reads *int, err error) func() (bytecode.Bytecode, error) {
	return func() (bytecode.Bytecode, error) {
		*reads++
		return bytecode.Bytecode{}, err
	}
}

// While an image that failed is read again, its last error is what is known.
func TestFailureStaysWhileTheImageIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, id, reads := newFailures(), reading{owner: program.Key{Name: "x"}}, 0
		pending := &bytecode.PendingError{Reference: "quay.io/x"}
		if _, err := f.try(id, read(&reads, pending)); !errors.Is(err, pending) {
			t.Errorf("the first read is in progress: %v", err)
		}
		_, _ = f.try(id, read(&reads, errRefused))
		<-time.After(firstReread)
		if _, err := f.try(id, read(&reads, pending)); !errors.Is(err, errRefused) || reads != 3 {
			t.Errorf("the second read is in progress: %v after %d reads", err, reads)
		}
		if _, err := f.try(id, read(&reads, nil)); err != nil {
			t.Error(err)
		}
		if _, err := f.try(id, read(&reads, pending)); !errors.Is(err, pending) {
			t.Errorf("a read after a success is in progress: %v", err)
		}
	})
}

// The failures of a namespace don't displace those of others.
func TestFailuresOfANamespaceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, reads := newFailures(), 0
		other := reading{owner: program.Key{Namespace: "other", Name: "x"}}
		_, _ = f.try(other, read(&reads, errRefused))
		for generation := range int64(3 * maxFailures) {
			_, _ = f.try(reading{owner: program.Key{Namespace: "tenant", Name: "x"}, generation: generation}, read(&reads, errRefused))
		}
		before := reads
		if _, err := f.try(other, read(&reads, errRefused)); !errors.Is(err, errRefused) || reads != before {
			t.Errorf("%d reads of another namespace before its delay has ended: %v", reads-before, err)
		}
	})
}
