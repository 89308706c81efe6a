// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpfman

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Implementation names a bpfman daemon for users. There are two, with one API.
type Implementation string

// The implementations.
const (
	// Rust is the daemon of bpfman v0.6.
	Rust Implementation = "bpfman v0.6 (Rust)"
	// Go is the daemon that replaces it upstream. It has no release yet.
	Go Implementation = "bpfman (Go)"
)

// UnsupportedDaemon describes a daemon that is neither. That of bpfman v0.5 has neither Attach nor Detach, and misreads
// a Load.
var UnsupportedDaemon = problem.Notef(problem.DaemonUnsupported, "the daemon in container bpfman has an incompatible API (bpfman v0.5?): "+
	"this agent requires the daemon of bpfman v0.6, or the one in Go; set bpfman.image in the ConfigMap bpfman-config").Text

// Recognize returns which daemon answers, by its answer to an Attach of nothing, which both refuse before they do
// anything. If it is neither, the error has code Unimplemented. All other errors come from the connection.
func Recognize(ctx context.Context, rpc gobpfman.BpfmanClient) (Implementation, error) {
	_, err := rpc.Attach(ctx, &gobpfman.AttachRequest{})
	switch status.Code(err) {
	case codes.Aborted:
		return Rust, nil
	case codes.InvalidArgument:
		return Go, nil
	case codes.OK, codes.Unimplemented, codes.NotFound, codes.FailedPrecondition:
		return "", status.Error(codes.Unimplemented, UnsupportedDaemon)
	default:
		return "", err //nolint:wrapcheck // the caller adds context
	}
}
