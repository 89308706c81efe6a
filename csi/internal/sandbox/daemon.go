// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package sandbox

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// DaemonMaps is the directory where the daemon pins maps.
	DaemonMaps = "/run/bpfman/fs/maps"

	// envDaemon contains the path of the daemon's binary. envLauncher contains a command
	// that starts it on machines where RLIMIT_MEMLOCK can't be raised.
	envDaemon   = "BPFMAN_RPC"
	envLauncher = "BPFMAN_LAUNCHER"

	offlineConfig = "[signing]\nverify_enabled = false\nallow_unsigned = true\n"
	startTimeout  = 20 * time.Second
)

// StartDaemon runs the real bpfman daemon in the sandbox, on an empty /run. It returns
// the daemon's socket, a client, and a function that stops it early. It skips the test
// if there is no daemon.
func StartDaemon(tb testing.TB) (socket string, client gobpfman.BpfmanClient, stop func()) {
	tb.Helper()
	directory := Root(tb)
	binary := os.Getenv(envDaemon)
	if binary == "" {
		prerequisite.Missing(tb, envDaemon+" doesn't name bpfman-rpc", prerequisite.Daemon)
	}
	mountConfig(tb, directory)
	socket = filepath.Join(directory, "bpfman.sock")
	arguments := []string{binary, "--timeout", "0", "--socket-path", socket}
	if launcher := os.Getenv(envLauncher); launcher != "" {
		arguments = append([]string{launcher, "--"}, arguments...)
	}
	command := exec.CommandContext(tb.Context(), arguments[0], arguments[1:]...) //nolint:gosec // whoever runs the tests names it
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := os.Create(filepath.Join(directory, "log"))
	if err != nil {
		tb.Fatal(err)
	}
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		tb.Fatalf("start daemon: %v", err)
	}
	stop = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	tb.Cleanup(func() {
		stop()
		output.Close()
		if text, err := os.ReadFile(output.Name()); err == nil && tb.Failed() {
			tb.Logf("the daemon's log:\n%s", text)
		}
	})
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { connection.Close() })
	client = gobpfman.NewBpfmanClient(connection)
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	if _, err := client.List(ctx, &gobpfman.ListRequest{}, grpc.WaitForReady(true)); err != nil {
		tb.Fatalf("daemon not ready: %v", err)
	}
	return socket, client, stop
}

// mountConfig mounts an empty /run for the daemon in this mount namespace, and an /etc
// with its configuration, which has a fixed path.
func mountConfig(tb testing.TB, directory string) {
	tb.Helper()
	upper, work := filepath.Join(directory, "upper"), filepath.Join(directory, "work")
	for _, path := range []string{filepath.Join(upper, "bpfman"), work} {
		if err := os.MkdirAll(path, 0o750); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(upper, "bpfman/bpfman.toml"), []byte(offlineConfig), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir="+upper+",workdir="+work); err != nil {
		tb.Fatalf("mount /etc: %v", err)
	}
	tb.Cleanup(func() { _ = unix.Unmount("/etc", unix.MNT_DETACH) })
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		tb.Fatalf("mount /run: %v", err)
	}
	tb.Cleanup(func() { _ = unix.Unmount("/run", unix.MNT_DETACH) })
}
