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

	"github.com/bpfman/bpfman-operator/apis/verification"
)

const (
	// maxAnswers is how many answers are kept.
	maxAnswers = 512
	// atOnce is how many processes run at a time.
	atOnce = 2
	// patience is how long the one who asks waits for an answer.
	patience = 2 * time.Second
	// lack is how long it holds that somebody hasn't signed, or that it couldn't be
	// found out: a signature may come later.
	lack = 10 * time.Second
)

// Verifier keeps answers. An answer depends on the question alone, which names the
// image by its digest and has the material of the authorities in it; so one in which
// nothing lacks holds as long as the agent runs.
type Verifier struct {
	// Verify finds an answer. It ends with its context.
	Verify func(context.Context, *verification.Request) verification.Answer
	// Observe, if set, is told how long finding an answer took, and whether it failed.
	Observe func(took time.Duration, failed bool)

	once    sync.Once
	slots   chan struct{}
	mu      sync.Mutex
	answers *lru.Cache // *run by question
}

type question [sha256.Size]byte

// run is a question that is being, or was, answered.
type run struct {
	done   chan struct{} // closed once answer and until are set
	answer verification.Answer
	until  time.Time // zero for ever
}

// Ask returns the answer to a question; false where it isn't there yet, and then
// calls later once it is. Credentials are part of the question: what somebody can't
// find out another can. A question that is new isn't asked where silent tells why
// nobody would answer.
func (v *Verifier) Ask(ctx context.Context, request *verification.Request, silent func() error, later func()) (verification.Answer, bool) {
	v.once.Do(func() { v.answers, v.slots = lru.New(maxAnswers), make(chan struct{}, atOnce) })
	key := questionOf(request)
	r := v.known(key)
	if r == nil {
		if err := silent(); err != nil {
			return verification.Answer{Error: err.Error()}, true
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
			<-r.done // each process has a deadline
			later()
		}()
	}
	return verification.Answer{}, false
}

// known is the run of a question, nil where it has to be asked.
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

// start has a question answered, unless that has begun meanwhile.
func (v *Verifier) start(ctx context.Context, key question, request *verification.Request) *run {
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

func (v *Verifier) find(ctx context.Context, request *verification.Request, r *run) {
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

// complete tells that nothing lacks which could come later.
func complete(a *verification.Answer) bool {
	for _, findings := range [][]verification.Finding{a.Signatures, a.Attestations} {
		for _, f := range findings {
			if f.Signer == "" {
				return false
			}
		}
	}
	return a.Error == "" && a.BytecodeError == ""
}

func questionOf(request *verification.Request) question {
	content, _ := json.Marshal(request) //nolint:errchkjson // strings always encode
	return sha256.Sum256(content)
}
