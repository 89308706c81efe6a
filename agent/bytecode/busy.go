// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// maxBusy is the maximum number of registries that are known to be busy. One that is forgotten is asked too early.
const maxBusy = 1024

// BusyError means that a registry asked to wait.
type BusyError struct {
	// Reason and Text are what the registry answered, and Until is the time until which it isn't asked again.
	Reason problem.Reason
	Text   string
	Until  time.Time
}

// Problem implements the method of errors that name their problem.
func (e *BusyError) Problem() problem.Reason { return e.Reason }

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s; it accepts requests again at %s", e.Text, e.Until.UTC().Format(time.RFC3339))
}

// busy are the registries that asked to wait (Retry-After). Registries limit users apart from each other.
type busy struct {
	known *lru.Cache // *BusyError by registryKey
}

func newBusy() *busy { return &busy{lru.New(maxBusy)} }

// registryKey identifies a registry and one of its users.
func registryKey(request *reader.Request) string {
	user := cmp.Or(request.Credentials, &reader.Credentials{})
	return hash(fmt.Appendf(nil, "%q %q %q", hostOf(request.Image), user.Username, user.Password))
}

// answer returns what the registry answered while it was busy, or nil if it can be asked.
func (b *busy) answer(request *reader.Request) *BusyError {
	known, _ := b.known.Get(registryKey(request))
	if e, _ := known.(*BusyError); e != nil && time.Now().Before(e.Until) {
		return e
	}
	return nil
}

// note remembers what a registry answered, and returns it, if the registry asked to wait.
func (b *busy) note(request *reader.Request, answer *reader.Answer) *BusyError {
	if answer.RetryAfter <= 0 {
		return nil
	}
	e := &BusyError{answer.Problem, answer.Error, time.Now().Add(time.Duration(answer.RetryAfter) * time.Second)}
	b.known.Add(registryKey(request), e)
	return e
}
