// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpfman

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// MaxLoad is how long the agent waits for the daemon to answer a Load, which is the longest call. The kernel can
	// take long to verify large programs.
	MaxLoad = 2 * time.Minute
	// MaxSilence is how long a daemon that works can take to answer a call. It serves one call at a time, in the order in
	// which they arrive, so a call can wait for a Load, and for the short calls before it.
	MaxSilence = MaxLoad + 30*time.Second
)

// noType isn't the number of a type of programs. No program matches it, or the daemon refuses it.
const noType = 1000

// Ask waits for the daemon to answer a call that changes nothing, until ctx ends. It waits for its turn like
// each other call, and for a daemon that is starting. If the daemon answers with an error, Ask returns nil.
//
// One daemon also lists programs while it can't load or attach any, because something holds its lock. It refuses the number.
// Ask has it take the lock: to detach a link that doesn't exist.
func Ask(ctx context.Context, rpc gobpfman.BpfmanClient) error {
	_, err := rpc.List(ctx, &gobpfman.ListRequest{
		BpfmanProgramsOnly: new(true), ProgramType: new(uint32(noType)), MatchMetadata: map[string]string{v1alpha1.MetadataUUID: "none"},
	}, grpc.WaitForReady(true))
	if status.Code(err) == codes.InvalidArgument {
		_, err = rpc.Detach(ctx, &gobpfman.DetachRequest{})
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable: // from the connection
		return err //nolint:wrapcheck // the caller adds context
	default:
		return nil
	}
}
