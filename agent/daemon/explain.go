// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/internal/uprobe"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Explained returns a client that adds to a failed Attach of a uprobe in a container why the daemon's helper bpfman-ns
// couldn't attach it. dir is the directory of the daemon's socket.
func Explained(rpc gobpfman.BpfmanClient, dir string) gobpfman.BpfmanClient {
	return explained{rpc, dir}
}

type explained struct {
	gobpfman.BpfmanClient

	dir string
}

func (e explained) Attach(ctx context.Context, in *gobpfman.AttachRequest, options ...grpc.CallOption) (*gobpfman.AttachResponse, error) {
	if in.GetAttach().GetUprobeAttachInfo().GetContainerPid() == 0 || uprobe.Clear(e.dir) != nil {
		return e.BpfmanClient.Attach(ctx, in, options...) //nolint:wrapcheck // it is the daemon's status
	}
	response, err := e.BpfmanClient.Attach(ctx, in, options...)
	if err == nil || status.Code(err) != codes.Aborted {
		return response, err //nolint:wrapcheck // it is the daemon's status
	}
	if reason := uprobe.Reason(e.dir); reason != "" {
		failed := status.Convert(err)
		err = status.Errorf(failed.Code(), "%s: %s", failed.Message(), reason)
	}
	return response, err
}
