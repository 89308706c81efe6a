// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/tests/bytecodetest"
)

// ResourceRegistry is the resource of events in which an agent reads an image. Their verb is read, and their name the image. A
// hook can make them slow, as a registry that drips, or fail them.
const ResourceRegistry = "registry"

// readerDeadline is the timeout of bpfman-reader.
const readerDeadline = 30 * time.Second

// Registry has all images.
type Registry struct {
	mu      sync.Mutex
	digests map[string]string // by reference
}

// Push makes a reference lead to another image. Its content only depends on the text.
func (r *Registry) Push(reference, content string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.digests == nil {
		r.digests = map[string]string{}
	}
	r.digests[reference] = bytecodetest.DigestOf(content)
}

func (r *Registry) resolve(_ context.Context, reference string) (digest, manifest string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.digests[reference], r.digests[reference], nil
}

// read reads an image as bpfman-reader does. Its second event is at its end, even if it failed.
func (p *process) read(ctx context.Context, request *reader.Request, files *bytecode.Files) reader.Answer {
	ctx, stop := context.WithTimeout(ctx, readerDeadline)
	defer stop()
	e := Event{Actor: p.Name, Verb: "read", Resource: ResourceRegistry, Name: request.Image}
	var answer reader.Answer
	err := p.happen(ctx, e)
	if err == nil {
		err = p.world.travel(ctx, nil)
	}
	if err == nil {
		answer = bytecodetest.Reader{Resolve: p.world.Registry.resolve}.Read(ctx, request, files)
	}
	e.Done = true
	if err := errors.Join(err, p.happen(ctx, e)); err != nil {
		return reader.Answer{Error: err.Error()}
	}
	return answer
}
