// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// replaced is a daemon that counts how often it is asked which one it is.
type replaced struct {
	gobpfman.BpfmanClient
	names int
}

func (r *replaced) Attach(ctx context.Context, request *gobpfman.AttachRequest, options ...grpc.CallOption) (*gobpfman.AttachResponse, error) {
	r.names++
	return r.BpfmanClient.Attach(ctx, request, options...)
}

// The daemon logs the question which one it is as an error. It isn't asked in each round, but again after a failure.
func TestNameIsAskedForOnce(t *testing.T) {
	rust, fails, unknown := daemontest.New(t.TempDir()), daemontest.New(t.TempDir()), daemontest.New(t.TempDir())
	fails.SetFault(func(string, proto.Message, bool) error { return status.Error(codes.Unavailable, "restarting") })
	unknown.NoAttach = true
	client := &replaced{}
	d := &Daemon{client: client}
	for i, round := range []struct {
		is        *daemontest.Daemon
		fails     bool
		want      bpfman.Implementation
		wantNames int
	}{
		{is: rust, want: bpfman.Rust, wantNames: 1},
		{is: rust, want: bpfman.Rust, wantNames: 1},
		{is: fails, fails: true, wantNames: 1},
		{is: daemontest.NewGo(t.TempDir()), want: bpfman.Go, wantNames: 2},
		{is: fails, fails: true, wantNames: 2},
		{is: unknown, wantNames: 3},
		{is: unknown, wantNames: 4},
	} {
		client.BpfmanClient = round.is
		got, err := d.Ask(t.Context())
		if (err != nil) != round.fails || got.Name != string(round.want) || (got.Owners == nil) != round.fails || client.names != round.wantNames {
			t.Errorf("round %d: %+v, %v, and asked for the name %d times; want %+v", i, got, err, client.names, round)
		}
	}
}
