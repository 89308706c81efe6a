// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpfman

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// answering answers an Attach of nothing with a code.
type answering struct {
	gobpfman.BpfmanClient

	code codes.Code
}

func (a answering) Attach(context.Context, *gobpfman.AttachRequest, ...grpc.CallOption) (*gobpfman.AttachResponse, error) {
	return nil, status.Error(a.code, "its words")
}

func TestRecognize(t *testing.T) {
	for code, want := range map[codes.Code]struct {
		daemon Implementation
		code   codes.Code
	}{
		codes.Aborted:          {Rust, codes.OK},
		codes.InvalidArgument:  {Go, codes.OK},
		codes.Unimplemented:    {"", codes.Unimplemented},
		codes.OK:               {"", codes.Unimplemented},
		codes.NotFound:         {"", codes.Unimplemented},
		codes.Unavailable:      {"", codes.Unavailable},
		codes.DeadlineExceeded: {"", codes.DeadlineExceeded},
		codes.Canceled:         {"", codes.Canceled},
		codes.Internal:         {"", codes.Internal},
	} {
		daemon, err := Recognize(t.Context(), answering{code: code})
		unsupported := status.Convert(err).Message() == UnsupportedDaemon
		if daemon != want.daemon || status.Code(err) != want.code || unsupported != (want.code == codes.Unimplemented) {
			t.Errorf("%s: %q, %v", code, daemon, err)
		}
	}
}
