// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
)

// A daemon that answers with an error doesn't hang, and a restart wouldn't help.
func TestProbe(t *testing.T) {
	hang := make(chan struct{})
	for name, c := range map[string]struct {
		timeout time.Duration
		fault   func(string, proto.Message, bool) error
		fails   bool
	}{
		"answers": {bpfman.MaxSilence, nil, false},
		"answers with an error": {bpfman.MaxSilence, func(string, proto.Message, bool) error {
			return status.Error(codes.Aborted, "Failed to acquire database lock")
		}, false},
		"hangs": {100 * time.Millisecond, func(string, proto.Message, bool) error { <-hang; return nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := daemontest.New(t.TempDir())
			d.Fault = c.fault
			socket := filepath.Join(t.TempDir(), "bpfman.sock")
			d.Serve(t, socket)
			if err := probe(socket, c.timeout); (err != nil) != c.fails {
				t.Errorf("error: %v", err)
			}
			if c.fails {
				close(hang)
			}
		})
	}
	t.Run("doesn't run", func(t *testing.T) {
		if err := probe(filepath.Join(t.TempDir(), "bpfman.sock"), 100*time.Millisecond); err == nil {
			t.Error("no error")
		}
	})
}
