// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

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

// counter returns a daemon with one program, which lists no more than that.
func counter(t *testing.T) *daemontest.Daemon {
	t.Helper()
	fake := daemontest.New(t.TempDir())
	fake.Fault = func(_ string, request proto.Message, _ bool) error {
		if list, ok := request.(*gobpfman.ListRequest); ok && len(list.GetMatchMetadata()) == 0 {
			return status.Error(codes.ResourceExhausted, "the list of all programs is too large")
		}
		return nil
	}
	if _, err := fake.Load(t.Context(), &gobpfman.LoadRequest{
		Info:     []*gobpfman.LoadInfo{{Name: "f"}},
		Metadata: map[string]string{"bpfman.io/ProgramName": "counter", "bpfman.io/namespace": "team", "bpfman.io/kind": "TcxNsProgram"},
	}); err != nil {
		t.Fatal(err)
	}
	return fake
}

func TestFind(t *testing.T) {
	daemon, socket := newDaemon(t)
	counter(t).Serve(t, socket)
	programs, err := daemon.Find(t.Context(), Query{Name: "counter", Namespace: "team"}, time.Now())
	want := Program{ID: 101, Name: "counter", Namespace: "team", Kind: "TcxNsProgram", Pins: "/run/bpfman/fs/maps/101"}
	if err != nil || len(programs) != 1 || programs[0] != want {
		t.Errorf("Find = %+v, %v", programs, err)
	}
	if _, err := daemon.Find(t.Context(), Query{Name: "other", Namespace: "team"}, time.Now()); !errors.Is(err, ErrNotFound) {
		t.Errorf("Find of an unknown program: %v", err)
	}
}

func TestFindTellsTheDaemonsWords(t *testing.T) {
	daemon, socket := newDaemon(t)
	fake := daemontest.New(t.TempDir())
	fake.Fault = func(string, proto.Message, bool) error { return status.Error(codes.Aborted, "database is locked") }
	fake.Serve(t, socket)
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
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}

	counter(t).Serve(t, socket)
	ctx, cancel := context.WithTimeout(t.Context(), 2*bpfman.MaxReconnectDelay)
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
	fake := daemontest.New(t.TempDir())
	fake.Fault = func(string, proto.Message, bool) error {
		<-t.Context().Done()
		return t.Context().Err()
	}
	fake.Serve(t, socket)
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
