// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemontest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Serve serves the daemon's API at a socket, until stop is called or the test ends, which
// also removes the socket.
func (d *Daemon) Serve(tb testing.TB, socket string) (stop func()) {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "unix", socket)
	if err != nil {
		tb.Fatal(err)
	}
	server := d.Server()
	go func() { _ = server.Serve(listener) }()
	tb.Cleanup(server.Stop)
	return server.Stop
}

// Server returns a server of the daemon's API, for an agent in another process.
func (d *Daemon) Server() *grpc.Server {
	s := grpc.NewServer()
	gobpfman.RegisterBpfmanServer(s, d.Service())
	return s
}

// Service returns the daemon as a server's implementation of its API.
func (d *Daemon) Service() gobpfman.BpfmanServer { return &service{daemon: d} }

// service implements the server's API with the daemon.
type service struct {
	gobpfman.UnimplementedBpfmanServer

	daemon *Daemon
}

func (s *service) Load(ctx context.Context, in *gobpfman.LoadRequest) (*gobpfman.LoadResponse, error) {
	return s.daemon.Load(ctx, in)
}

func (s *service) Unload(ctx context.Context, in *gobpfman.UnloadRequest) (*gobpfman.UnloadResponse, error) {
	return s.daemon.Unload(ctx, in)
}

func (s *service) Attach(ctx context.Context, in *gobpfman.AttachRequest) (*gobpfman.AttachResponse, error) {
	return s.daemon.Attach(ctx, in)
}

func (s *service) Detach(ctx context.Context, in *gobpfman.DetachRequest) (*gobpfman.DetachResponse, error) {
	return s.daemon.Detach(ctx, in)
}

func (s *service) List(ctx context.Context, in *gobpfman.ListRequest) (*gobpfman.ListResponse, error) {
	return s.daemon.List(ctx, in)
}

func (s *service) PullBytecode(ctx context.Context, in *gobpfman.PullBytecodeRequest) (*gobpfman.PullBytecodeResponse, error) {
	return s.daemon.PullBytecode(ctx, in)
}

func (s *service) Get(ctx context.Context, in *gobpfman.GetRequest) (*gobpfman.GetResponse, error) {
	return s.daemon.Get(ctx, in)
}
