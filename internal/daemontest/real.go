// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package daemontest runs the bpfman daemon for tests: the real one, in namespaces of its
// own, or one in memory.
package daemontest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// binaryVariable names the environment variable with the path of the daemon's binary:
	// bpfman-rpc, or bpfman if it is the daemon in Go.
	binaryVariable = "BPFMAN_RPC"
	// launcherVariable names the environment variable with a command that starts the
	// daemon on machines where RLIMIT_MEMLOCK can't be raised.
	launcherVariable = "BPFMAN_LAUNCHER"

	startTimeout = 2 * time.Minute // in an emulated machine
	// logTail is how much of the daemon's log a failed test shows, in bytes.
	logTail = 4096
)

// Environment contains the environment variables with which the operator runs the daemon:
// operator/deploy/daemonset.yaml.
func Environment() []string {
	return []string{"SSL_CERT_FILE=/dev/null", "SSL_CERT_DIR=/dev/null", "MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=1000000"}
}

// Real is a running daemon, which is bpfman itself.
type Real struct {
	// Client is a client of the daemon.
	Client gobpfman.BpfmanClient
	// Conn is the connection to it.
	Conn *grpc.ClientConn
	// Socket is the path of its socket.
	Socket string
	// Place is where it runs, or nil if that is where the test runs.
	Place *Place
	PID   int

	command *exec.Cmd
	ended   <-chan struct{}
}

// Binary returns the path of the daemon's binary. It skips the test if there is none.
func Binary(tb testing.TB) string {
	tb.Helper()
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		prerequisite.Missing(tb, binaryVariable+" isn't set to the path of bpfman-rpc", prerequisite.Daemon)
	}
	return binary
}

// StartHere runs the daemon in the test's own namespaces, until it is killed or the test
// ends. It skips the test if there is no daemon.
func StartHere(tb testing.TB) *Real {
	tb.Helper()
	return start(tb, nil, Binary(tb), nil)
}

// start runs a daemon with a command that enters its namespaces.
func start(tb testing.TB, enter []string, binary string, env []string) *Real {
	tb.Helper()
	dir := tb.TempDir()
	d := &Real{Socket: filepath.Join(dir, "bpfman.sock")}
	args := enter
	if launcher := os.Getenv(launcherVariable); launcher != "" {
		args = append(args, launcher, "--")
	}
	args = append(append(args, binary), arguments(tb, binary, dir)...)
	args = append(args, "--socket-path", d.Socket)
	d.command = exec.CommandContext(tb.Context(), args[0], args[1:]...) //nolint:gosec // whoever runs the tests chooses it
	d.command.Env = slices.Concat(os.Environ(), Environment(), env)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		tb.Fatal(err)
	}
	d.command.Stdout, d.command.Stderr = log, log
	if err := d.command.Start(); err != nil {
		tb.Fatalf("start daemon: %v", err)
	}
	d.PID = d.command.Process.Pid
	ended := make(chan struct{})
	d.ended = ended
	go func() {
		defer close(ended)
		// It is killed at the end of the test, so there is always an error.
		_ = d.command.Wait()
	}()
	tb.Cleanup(func() {
		d.Kill()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && tb.Failed() {
			tb.Logf("the end of the daemon's log:\n%s", text[max(0, len(text)-logTail):])
		}
	})
	if d.Conn, err = grpc.NewClient("unix:"+d.Socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		tb.Fatalf("connect to daemon: %v", err)
	}
	tb.Cleanup(func() { _ = d.Conn.Close() })
	d.Client = gobpfman.NewBpfmanClient(d.Conn)
	d.awaitReady(tb)
	return d
}

// arguments returns those with which a daemon serves until it is killed. Only v0.6.0 ends without calls.
func arguments(tb testing.TB, binary, dir string) []string {
	tb.Helper()
	help, err := exec.CommandContext(tb.Context(), binary, "--help").CombinedOutput()
	if err != nil {
		tb.Fatalf("ask %s for its arguments: %v: %s", binary, err, help)
	}
	if bytes.Contains(help, []byte("--timeout")) {
		return []string{"--timeout", "0"}
	}
	return []string{"serve", "--image-cache-dir", filepath.Join(dir, "images")}
}

// Kill kills the daemon, as a node finally does when it replaces the daemon's pod.
func (d *Real) Kill() {
	_ = d.command.Process.Kill() // an error means that it has ended
	<-d.ended
}

func (d *Real) awaitReady(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	ready := make(chan error, 1)
	go func() {
		_, err := d.Client.List(ctx, &gobpfman.ListRequest{}, grpc.WaitForReady(true))
		ready <- err
	}()
	select {
	case err := <-ready:
		if err != nil {
			tb.Fatalf("daemon not ready: %v", err)
		}
	case <-d.ended:
		tb.Fatal("daemon ended at its start")
	}
}
