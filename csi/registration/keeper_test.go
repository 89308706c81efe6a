// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registration

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/bpfman/bpfman-operator/csi/internal/socket"
)

// grace makes what the plugin does happen immediately.
const grace = 20 * time.Millisecond

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// kept is a running keeper.
type kept struct {
	*Keeper
	log   *lines
	stop  context.CancelFunc
	ended chan error
}

func keep(t *testing.T, grace time.Duration) *kept {
	t.Helper()
	log := &lines{}
	k := &kept{log: log, ended: make(chan error, 1), Keeper: &Keeper{
		Plugin: &Plugin{
			Name: "csi.bpfman.io", Endpoint: "/kubelet/csi.sock", Directory: t.TempDir(),
			Log: slog.New(slog.NewTextHandler(io.MultiWriter(log, t.Output()), nil)),
		},
		Check: time.Millisecond, Grace: grace,
	}}
	return k
}

func (k *kept) start(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	k.stop = stop
	go func() { k.ended <- k.Run(ctx) }()
	t.Cleanup(stop)
}

// end stops the keeper, which must not return an error.
func (k *kept) end(t *testing.T) {
	t.Helper()
	k.stop()
	if err := <-k.ended; err != nil {
		t.Error(err)
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("not within 10 s: %s", what)
		case <-tick.C:
		}
	}
}

// registers simulates a kubelet that finds a socket, and reports whether it gets the
// plugin.
func (k *kept) registers(ctx context.Context) bool {
	connection, err := grpc.NewClient("unix:"+k.SocketPath(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false
	}
	defer connection.Close()
	info, err := registerapi.NewRegistrationClient(connection).GetInfo(ctx, &registerapi.InfoRequest{})
	return err == nil && info.GetEndpoint() == k.Endpoint
}

// sidecar serves a registration socket like node-driver-registrar, until stop is called.
func (k *kept) sidecar(t *testing.T) (stop func()) {
	t.Helper()
	listener, err := socket.Listen(t.Context(), k.SocketPath())
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, &Plugin{Endpoint: "the sidecar's", Log: k.Log})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

// TestRegistrationIsRestoredAgain checks that the plugin also restores its own socket, and
// removes it when it ends.
func TestRegistrationIsRestoredAgain(t *testing.T) {
	k := keep(t, grace)
	k.start(t)
	eventually(t, "registered without the sidecar", func() bool { return k.registers(t.Context()) && k.Served() })
	for range 3 {
		if err := os.Remove(k.SocketPath()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "registered again", func() bool { return k.registers(t.Context()) && k.Served() })
	}
	if got := strings.Count(k.log.String(), "The registration socket wasn't served"); got != 4 {
		t.Errorf("%d lines about 4 losses", got)
	}
	k.end(t)
	if _, err := os.Lstat(k.SocketPath()); !os.IsNotExist(err) {
		t.Errorf("socket left behind: %v", err)
	}
}

func TestSidecarsRegistrationIsRestored(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, k *kept, stop func()){
		"socket removed": func(t *testing.T, k *kept, _ func()) {
			t.Helper()
			if err := os.Remove(k.SocketPath()); err != nil {
				t.Fatal(err)
			}
		},
		"sidecar stopped": func(_ *testing.T, _ *kept, stop func()) { stop() },
		"sidecar killed": func(t *testing.T, k *kept, stop func()) {
			t.Helper()
			dead := k.SocketPath() + ".dead"
			if err := os.Link(k.SocketPath(), dead); err != nil {
				t.Fatal(err)
			}
			stop()
			if err := os.Rename(dead, k.SocketPath()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := keep(t, grace)
			stop := k.sidecar(t)
			k.start(t)
			eventually(t, "registered by the sidecar", k.Served)
			if k.registers(t.Context()) {
				t.Fatal("the plugin serves the socket while the sidecar does")
			}
			lose(t, k, stop)
			eventually(t, "registered by the plugin", func() bool { return k.registers(t.Context()) && k.Served() })

			// The sidecar takes over again when it is back.
			k.sidecar(t)
			eventually(t, "registered by the sidecar again", func() bool { return !k.registers(t.Context()) && k.Served() })
			file, err := os.Lstat(k.SocketPath())
			if err != nil {
				t.Fatal(err)
			}
			k.end(t)
			if now, err := os.Lstat(k.SocketPath()); err != nil || !os.SameFile(now, file) {
				t.Errorf("the plugin took the sidecar's socket along: %v", err)
			}
		})
	}
}

// TestSidecarHasTime checks that the plugin waits for a sidecar that restarts.
func TestSidecarHasTime(t *testing.T) {
	k := keep(t, time.Hour)
	stop := k.sidecar(t)
	k.start(t)
	eventually(t, "registered by the sidecar", k.Served)
	stop()
	eventually(t, "loss noticed", func() bool { return !k.Served() })
	k.sidecar(t)
	eventually(t, "registered by the sidecar again", k.Served)
	if k.registers(t.Context()) {
		t.Error("the plugin serves the socket")
	}
	k.end(t)
}

func TestReplacedDirectoryEndsThePlugin(t *testing.T) {
	k := keep(t, grace)
	k.start(t)
	eventually(t, "registered", func() bool { return k.registers(t.Context()) })
	if err := os.RemoveAll(k.Directory); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-k.ended:
		if err == nil || !strings.Contains(err.Error(), "was replaced") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the plugin goes on without the kubelet's directory")
	}
}

func TestObstacleIsOvercome(t *testing.T) {
	k := keep(t, grace)
	k.start(t)
	eventually(t, "registered", func() bool { return k.registers(t.Context()) })
	obstacle := filepath.Join(k.Directory, "obstacle")
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(obstacle, k.SocketPath()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "obstacle logged", func() bool { return strings.Contains(k.log.String(), "exists and is not a socket") && !k.Served() })
	if err := os.Remove(k.SocketPath()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "registered again", func() bool { return k.registers(t.Context()) && k.Served() })
	k.end(t)
}
