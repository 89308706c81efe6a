// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/uprobe"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Explained returns a client that tells the daemon's helper bpfman-ns in which container it attaches a uprobe, and adds to a
// failed Attach why the helper couldn't. dir is the directory of the daemon's socket.
func Explained(rpc gobpfman.BpfmanClient, dir string) gobpfman.BpfmanClient {
	return explained{rpc, dir}
}

type explained struct {
	gobpfman.BpfmanClient

	dir string
}

func (e explained) Attach(ctx context.Context, in *gobpfman.AttachRequest, options ...grpc.CallOption) (*gobpfman.AttachResponse, error) {
	if in.GetAttach().GetUprobeAttachInfo().GetContainerPid() == 0 || errors.Join(uprobe.Announce(e.dir, containerOf(ctx)), uprobe.Clear(e.dir)) != nil {
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

type process struct{}

// withProcess returns the context of an Attach that refers to a process, or to none.
func withProcess(ctx context.Context, of *program.Process) context.Context {
	return context.WithValue(ctx, process{}, of)
}

// containerOf returns the container of the process that an Attach refers to, as far as it is known.
func containerOf(ctx context.Context) uprobe.Container {
	of, _ := ctx.Value(process{}).(*program.Process)
	if of == nil {
		return uprobe.Container{}
	}
	return uprobe.Container{Namespace: of.Namespace, ID: of.Of}
}
