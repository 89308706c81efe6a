// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package live implements the commands that clients run through `kubectl exec` in the
// inspector's container. Package internal/live defines their output, and when they end.
package live

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/bpfman/bpfman-operator/internal/live"
)

// whileRead returns a context that ends when in ends, or sends nothing for longer than
// allowed. The client has then disconnected. Without this, a command would continue
// after kubectl or the connection dies.
func whileRead(ctx context.Context, in io.Reader, allowed time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	silence := time.AfterFunc(allowed, cancel)
	go func() {
		defer cancel()
		buffer := make([]byte, 64)
		for {
			if _, err := in.Read(buffer); err != nil {
				return
			}
			silence.Reset(allowed)
		}
	}()
	return ctx, cancel
}

// lines writes messages, with one line for each.
type lines struct{ out *bufio.Writer }

func linesTo(w io.Writer) lines { return lines{bufio.NewWriter(w)} }

// write buffers a message. flush sends it.
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

// silence is a variable so that tests can change it.
var silence = live.Silence
