// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package live answers, in the inspector's container, what somebody asks by
// `kubectl exec`: the messages and the rule by which it ends are those of apis/live.
package live

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/bpfman/bpfman-operator/apis/live"
)

// whileRead returns a context that ends when in does, or is silent for longer than
// allowed: then nobody reads any more. A command that is run by exec isn't ended when
// kubectl or the connection dies.
func whileRead(ctx context.Context, in io.Reader, allowed time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		buffer := make([]byte, 64)
		for {
			if _, err := in.Read(buffer); err != nil {
				return
			}
			select {
			case heard <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		defer cancel()
		silence := time.NewTimer(allowed)
		defer silence.Stop()
		for {
			select {
			case _, more := <-heard:
				if !more {
					return
				}
				silence.Reset(allowed)
			case <-silence.C:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// lines writes messages, a line each, as soon as they are there.
type lines struct{ out *bufio.Writer }

func linesTo(w io.Writer) lines { return lines{bufio.NewWriter(w)} }

// write writes a message; flush sends it.
func (l lines) write(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	if _, err := l.out.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write an answer: %w", err)
	}
	return nil
}

func (l lines) flush() error {
	if err := l.out.Flush(); err != nil {
		return fmt.Errorf("write answers: %w", err)
	}
	return nil
}

// silence is a variable for tests.
var silence = live.Silence
