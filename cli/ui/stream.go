// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// stream sends views as server-sent events.
type stream struct {
	out   http.ResponseWriter
	flush *http.ResponseController
}

// sendTimeout is how long a browser may take to accept an event.
const sendTimeout = 30 * time.Second

// serveStream returns a handler that runs a function until the browser leaves. The error of the function is the last
// event.
func serveStream(run func(ctx context.Context, r *http.Request, send func(any) error) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		s := &stream{out: w, flush: http.NewResponseController(w)}
		err := run(r.Context(), r, func(v any) error { return s.send("view", v) })
		if err != nil && r.Context().Err() == nil {
			_ = s.send("problem", told(err)) // fails if the browser has left
		}
	}
}

// told returns the text of an error of the API server or of an inspector.
func told(err error) string {
	if apierrors.IsUnauthorized(err) {
		return "the API server doesn't accept the credentials of your kubeconfig, for example because they have expired: log in again, and restart kubectl bpfman ui"
	}
	return err.Error()
}

// visible returns JSON in which characters that change the direction of text, or aren't visible, are their escapes, such as \u202e.
// Messages, labels, and names have what others chose, and one line must not be able to pass for another.
func visible(encoded []byte) []byte {
	hidden := func(r rune) bool { return r >= utf8.RuneSelf && !strconv.IsPrint(r) }
	if !bytes.ContainsFunc(encoded, hidden) {
		return encoded
	}
	var out []byte
	for _, r := range string(encoded) {
		if hidden(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			out = append(append(out, '\\'), quoted[1:len(quoted)-1]...)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

func (s *stream) send(event string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a view: %w", err)
	}
	data = visible(data)
	_ = s.flush.SetWriteDeadline(time.Now().Add(sendTimeout)) // not supported by tests' recorders
	if _, err := fmt.Fprintf(s.out, "event: %s\ndata: %s\n\n", event, data); err != nil {
		return fmt.Errorf("send a view: %w", err)
	}
	if err := s.flush.Flush(); err != nil {
		return fmt.Errorf("send a view: %w", err)
	}
	return nil
}

// Changes are collected for settle. A view that takes long to compute is computed less often, so that the server uses
// at most a quarter of a processor's time for it.
const (
	settle = 250 * time.Millisecond
	share  = 4
)

// onChange calls show now, after each change of the facts, and at the latest after an interval.
func (f *facts) onChange(ctx context.Context, atLatest time.Duration, show func(*facts) error) error {
	for {
		changed := f.next()
		began := time.Now()
		if err := show(f); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(settle, (share-1)*time.Since(began))):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(atLatest):
		}
	}
}
