// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/apis/reader"
)

func never() error { return nil }

// Concurrent requests for the same question share a process. Complete answers are
// cached without expiry. Others are requested again after a while.
func TestAnswersAreKept(t *testing.T) {
	signed := reader.Finding{Authority: "p/a", Signer: "s"}
	for name, c := range map[string]struct {
		answer reader.Answer
		again  int32 // number of further requests after a while
	}{
		"signed":      {reader.Answer{Signatures: []reader.Finding{signed}}, 0},
		"nothing":     {reader.Answer{}, 0},
		"not by all":  {reader.Answer{Signatures: []reader.Finding{signed, {Authority: "p/b"}}}, 1},
		"attestation": {reader.Answer{Attestations: []reader.Finding{{Authority: "p/a"}}}, 1},
		"error":       {reader.Answer{Error: "no"}, 1},
		"bytecode":    {reader.Answer{BytecodeError: "no"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				v := Verifier{Verify: func(context.Context, *reader.Request) reader.Answer {
					asked.Add(1)
					return c.answer
				}}
				ask := func() {
					if _, ok := v.Ask(t.Context(), &reader.Request{Image: "i"}, never, nil); !ok {
						t.Error("no answer")
					}
				}
				var all sync.WaitGroup
				for range 10 {
					all.Go(ask)
				}
				all.Wait()
				ask()
				if got := asked.Load(); got != 1 {
					t.Errorf("asked %d times", got)
				}
				<-time.After(lack + time.Second)
				ask()
				if got := asked.Load() - 1; got != c.again {
					t.Errorf("asked %d times more, want %d", got, c.again)
				}
			})
		})
	}
}

// A different image, key, or credentials make a different question.
func TestQuestionsAreToldApart(t *testing.T) {
	var asked atomic.Int32
	v := Verifier{Verify: func(context.Context, *reader.Request) reader.Answer {
		asked.Add(1)
		return reader.Answer{}
	}}
	requests := []reader.Request{
		{Image: "i"},
		{Image: "i", Manifest: "m"},
		{Image: "i", Bytecode: true},
		{Image: "i", Authorities: []reader.Authority{{Name: "p/a", Keys: []string{"k"}}}},
		{Image: "i", Authorities: []reader.Authority{{Name: "p/a", Keys: []string{"rotated"}}}},
		{Image: "i", Credentials: &reader.Credentials{Username: "u", Password: "p"}},
		{Image: "i", Credentials: &reader.Credentials{Username: "u", Password: "q"}},
	}
	for range 2 {
		for i := range requests {
			if _, ok := v.Ask(t.Context(), &requests[i], never, nil); !ok {
				t.Error("no answer")
			}
		}
	}
	if got := int(asked.Load()); got != len(requests) {
		t.Errorf("asked %d times, want %d", got, len(requests))
	}
}

// Ask doesn't wait long for an answer, and calls a function when it is available. The
// number of concurrent processes is limited.
func TestSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		v := Verifier{Verify: func(context.Context, *reader.Request) reader.Answer {
			most.Store(max(most.Load(), running.Add(1)))
			<-time.After(time.Minute)
			running.Add(-1)
			return reader.Answer{Helpers: []string{"late"}}
		}}
		const questions = 6
		var told atomic.Int32
		request := func(n int) *reader.Request { return &reader.Request{Image: fmt.Sprint(n)} }
		start := time.Now()
		for n := range questions {
			if _, ok := v.Ask(t.Context(), request(n), never, func() { told.Add(1) }); ok {
				t.Error("an answer")
			}
		}
		if took := time.Since(start); took != questions*patience {
			t.Errorf("it took %s", took)
		}
		<-time.After(questions * time.Minute)
		synctest.Wait()
		if told.Load() != questions || most.Load() != atOnce {
			t.Errorf("told %d times, %d at a time", told.Load(), most.Load())
		}
		if answer, ok := v.Ask(t.Context(), request(0), never, nil); !ok || len(answer.Helpers) != 1 {
			t.Errorf("%+v, %v", answer, ok)
		}
	})
}

// If a registry is known not to respond, Ask doesn't start a process, but it still
// returns cached answers.
func TestSilentRegistry(t *testing.T) {
	v := Verifier{Verify: func(context.Context, *reader.Request) reader.Answer { return reader.Answer{} }}
	silent := func() error { return errors.New("it doesn't answer") }
	request := &reader.Request{Image: "i"}
	if answer, ok := v.Ask(t.Context(), request, silent, nil); !ok || answer.Error != "it doesn't answer" {
		t.Errorf("%+v, %v", answer, ok)
	}
	for _, silence := range []func() error{never, silent} {
		if answer, ok := v.Ask(t.Context(), request, silence, nil); !ok || answer.Error != "" {
			t.Errorf("%+v, %v", answer, ok)
		}
	}
}
