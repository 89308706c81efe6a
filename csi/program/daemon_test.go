// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/csi/maps"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// fakeDaemon answers List.
type fakeDaemon struct {
	gobpfman.UnimplementedBpfmanServer
	list func(context.Context, *gobpfman.ListRequest) (*gobpfman.ListResponse, error)
}

func (f fakeDaemon) List(ctx context.Context, request *gobpfman.ListRequest) (*gobpfman.ListResponse, error) {
	return f.list(ctx, request)
}

func (f fakeDaemon) serve(t *testing.T, socket string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	gobpfman.RegisterBpfmanServer(server, f)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
}

func newDaemon(t *testing.T) (*Daemon, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "bpfman.sock")
	daemon, err := NewDaemon(socket, "/run/bpfman/fs/maps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Close() })
	return daemon, socket
}

func listCounter(_ context.Context, request *gobpfman.ListRequest) (*gobpfman.ListResponse, error) {
	switch request.GetMatchMetadata()["bpfman.io/ProgramName"] {
	case "counter":
	case "":
		return nil, status.Error(codes.ResourceExhausted, "the list of all programs is too large")
	default:
		return &gobpfman.ListResponse{}, nil
	}
	return &gobpfman.ListResponse{Results: []*gobpfman.ListResponse_ListResult{
		{KernelInfo: &gobpfman.KernelProgramInfo{Id: 7}, Info: &gobpfman.ProgramInfo{
			MapPinPath: "/run/bpfman/fs/maps/7",
			Metadata:   map[string]string{"bpfman.io/ProgramName": "counter", "bpfman.io/namespace": "team", "bpfman.io/kind": "TcxNsProgram"},
		}},
	}}, nil
}

func TestFind(t *testing.T) {
	daemon, socket := newDaemon(t)
	fakeDaemon{list: listCounter}.serve(t, socket)
	programs, err := daemon.Find(t.Context(), Query{Name: "counter", Namespace: "team"}, time.Now())
	want := Program{ID: 7, Name: "counter", Namespace: "team", Kind: "TcxNsProgram", Pins: "/run/bpfman/fs/maps/7"}
	if err != nil || len(programs) != 1 || programs[0] != want {
		t.Errorf("Find = %+v, %v", programs, err)
	}
	if _, err := daemon.Find(t.Context(), Query{Name: "other", Namespace: "team"}, time.Now()); !errors.Is(err, ErrNotFound) {
		t.Errorf("Find of an unknown program: %v", err)
	}
}

func TestFindTellsTheDaemonsWords(t *testing.T) {
	daemon, socket := newDaemon(t)
	fakeDaemon{list: func(context.Context, *gobpfman.ListRequest) (*gobpfman.ListResponse, error) {
		return nil, status.Error(codes.Aborted, "database is locked")
	}}.serve(t, socket)
	_, err := daemon.Find(t.Context(), Query{Name: "counter"}, time.Now())
	if !errors.Is(err, ErrDaemon) || !strings.Contains(err.Error(), "database is locked") {
		t.Errorf("Find: %v", err)
	}
}

func TestFindFailsFastWhileTheDaemonIsDown(t *testing.T) {
	daemon, socket := newDaemon(t)
	start := time.Now()
	_, err := daemon.Find(t.Context(), Query{Name: "counter"}, time.Now())
	if !errors.Is(err, ErrDaemon) || !strings.Contains(err.Error(), socket) {
		t.Errorf("Find: %v", err)
	}
	if took := time.Since(start); took > connectTimeout/2 {
		t.Errorf("took %v", took)
	}

	fakeDaemon{list: listCounter}.serve(t, socket)
	ctx, cancel := context.WithTimeout(t.Context(), 2*maxReconnectDelay)
	defer cancel()
	for err != nil && ctx.Err() == nil {
		if state := daemon.connection.GetState(); state == connectivity.TransientFailure || state == connectivity.Connecting {
			daemon.connection.WaitForStateChange(ctx, state)
		}
		_, err = daemon.Find(ctx, Query{Name: "counter", Namespace: "team"}, time.Now())
	}
	if err != nil {
		t.Errorf("the daemon's return wasn't noticed: %v", err)
	}
}

func TestFindGivesUpOnASilentDaemon(t *testing.T) {
	daemon, socket := newDaemon(t)
	fakeDaemon{list: func(ctx context.Context, _ *gobpfman.ListRequest) (*gobpfman.ListResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}.serve(t, socket)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := daemon.Find(ctx, Query{Name: "counter"}, time.Now()); !errors.Is(err, ErrDaemon) {
		t.Errorf("Find: %v", err)
	}
}

func TestMapsStayBelowTheRoot(t *testing.T) {
	daemon, _ := newDaemon(t)
	_, err := daemon.Maps([]Program{{ID: 7, Name: "counter", Pins: "/run/bpfman/fs/maps/../../../../etc"}}, nil)
	if !errors.Is(err, ErrDaemon) || !errors.Is(err, maps.ErrPath) {
		t.Errorf("Maps: %v", err)
	}
	if _, err := daemon.Maps([]Program{{ID: 7, Name: "counter"}}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("Maps without a pin directory: %v", err)
	}
}
