// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package verify

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/apis/reader"
)

const (
	// maxAnswers is the maximum number of cached answers.
	maxAnswers = 512
	// atOnce is the maximum number of concurrent processes.
	atOnce = 2
	// patience is the maximum time that Ask waits for an answer.
	patience = 2 * time.Second
	// lack is how long an answer with an error or a missing signature is cached. The
	// image might be signed later.
	lack = 10 * time.Second
)

// Verifier caches answers. An answer only depends on the question, which contains the
// digest of the image and the material of authorities. So answers without errors or
// missing signatures don't expire.
type Verifier struct {
	// Verify returns the answer to a request. It must return when its context ends.
	Verify func(context.Context, *reader.Request) reader.Answer
	// Observe, if not nil, is called with the duration of a verification, and whether
	// it failed.
	Observe func(took time.Duration, failed bool)

	once    sync.Once
	slots   chan struct{}
	mu      sync.Mutex
	answers *lru.Cache // maps question to *run
}

type question [sha256.Size]byte

// run is the verification for a question, in progress or completed.
type run struct {
	done   chan struct{} // closed after answer and until are set
	answer reader.Answer
	until  time.Time // zero if it doesn't expire
}

// Ask returns the answer to a question, or false if it isn't available within two
// seconds. In that case, Ask calls later when it is available, unless ctx ended first.
// Credentials are part of the question, so that answers for one user aren't returned to
// another. If there is no answer yet, and silent returns an error because the registry
// doesn't respond, that error is the answer.
func (v *Verifier) Ask(ctx context.Context, request *reader.Request, silent func() error, later func()) (reader.Answer, bool) {
	v.once.Do(func() { v.answers, v.slots = lru.New(maxAnswers), make(chan struct{}, atOnce) })
	key := questionOf(request)
	r := v.known(key)
	if r == nil {
		if err := silent(); err != nil {
			return reader.Answer{Error: err.Error()}, true
		}
		r = v.start(ctx, key, request)
	}

	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-r.done:
		return r.answer, true
	case <-ctx.Done():
	case <-wait.C:
		go func() {
			<-r.done // each process has a timeout
			later()
		}()
	}
	return reader.Answer{}, false
}

// known returns the run for a question, or nil if there is none or it has expired.
func (v *Verifier) known(key question) *run {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, _ := v.answers.Get(key)
	r, _ := found.(*run)
	if r == nil || r.expired() {
		return nil
	}
	return r
}

// start starts a run, unless another caller has started it since.
func (v *Verifier) start(ctx context.Context, key question, request *reader.Request) *run {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, _ := v.answers.Get(key)
	if r, _ := found.(*run); r != nil && !r.expired() {
		return r
	}
	r := &run{done: make(chan struct{})}
	v.answers.Add(key, r)
	go v.find(context.WithoutCancel(ctx), request, r)
	return r
}

func (v *Verifier) find(ctx context.Context, request *reader.Request, r *run) {
	v.slots <- struct{}{}
	defer func() { <-v.slots }()
	start := time.Now()
	r.answer = v.Verify(ctx, request)
	if v.Observe != nil {
		v.Observe(time.Since(start), r.answer.Error != "")
	}
	if !complete(&r.answer) {
		r.until = time.Now().Add(lack)
	}
	close(r.done)
}

func (r *run) expired() bool {
	select {
	case <-r.done:
		return !r.until.IsZero() && time.Now().After(r.until)
	default:
		return false
	}
}

// complete reports whether an answer has no errors or missing signatures that could
// change later.
func complete(a *reader.Answer) bool {
	for _, findings := range [][]reader.Finding{a.Signatures, a.Attestations} {
		for _, f := range findings {
			if f.Signer == "" {
				return false
			}
		}
	}
	return a.Error == "" && a.BytecodeError == ""
}

func questionOf(request *reader.Request) question {
	content, _ := json.Marshal(request) //nolint:errchkjson // strings always encode
	return sha256.Sum256(content)
}
