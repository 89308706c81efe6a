// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package daemon runs the real bpfman daemon for a test. The daemon has its own mount and
// network namespaces, so it doesn't affect the machine's programs, pins, or interfaces,
// and nothing is left when it ends.
package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/node"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// binaryVariable names the environment variable with the path of the daemon's binary,
	// bpfman-rpc.
	binaryVariable = "BPFMAN_RPC"
	// launcherVariable names the environment variable with a command that starts the
	// daemon on machines where RLIMIT_MEMLOCK can't be raised.
	launcherVariable = "BPFMAN_LAUNCHER"

	startTimeout = 20 * time.Second
	// logTail is how much of the daemon's log a failed test shows, in bytes.
	logTail = 4096
)

// Environment contains the environment variables with which the operator runs the daemon:
// operator/deploy/daemonset.yaml.
func Environment() []string {
	return []string{"SSL_CERT_FILE=/dev/null", "SSL_CERT_DIR=/dev/null", "MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=1000000"}
}

// setUp prepares the namespaces, and holds them. The daemon's directories are on separate
// file systems. /etc is an overlay, because the path of the daemon's configuration is
// fixed.
const setUp = `set -e
dir=$1
mount -t tmpfs run /run
mount -t tmpfs state /var/lib
mount -t tmpfs etc "$dir/etc"
mkdir "$dir/etc/upper" "$dir/etc/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$dir/etc/upper,workdir=$dir/etc/work" overlay /etc
mkdir -p /etc/bpfman
printf '[signing]\nverify_enabled = false\nallow_unsigned = true\n' > /etc/bpfman/bpfman.toml
mount -t bpf none /sys/fs/bpf
mountpoint -q /sys/kernel/tracing || mount -t tracefs trace /sys/kernel/tracing
ip link set lo up
echo ready
exec sleep infinity
`

// Place contains the namespaces in which daemons run, with everything that they leave
// there, until the test ends.
type Place struct{ pid int }

// NewPlace creates a place. It skips the test if it lacks the permission.
func NewPlace(tb testing.TB) *Place {
	tb.Helper()
	prerequisite.NeedsRoot(tb, "the daemon needs namespaces of its own")
	dir := tb.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o750); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), "sh", "-c", setUp, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	cmd.Stderr = os.Stderr
	ready, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("make namespaces: %v", err)
	}
	// It is killed at the end of the test, so there is always an error.
	tb.Cleanup(func() { _ = cmd.Wait() })
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil || line != "ready\n" {
		tb.Fatalf("make namespaces: %q, %v", line, err)
	}
	return &Place{pid: cmd.Process.Pid}
}

// Path returns the path at which this process finds a file in the place.
func (p *Place) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(p.pid), "root", path)
}

// Command returns a command that runs in the place's namespaces.
func (p *Place) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target=" + strconv.Itoa(p.pid), "--mount", "--net", "--", name}, args...)...)
}

// InMounts returns a command that sees the place's file systems, and this machine's
// network.
func (p *Place) InMounts(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target=" + strconv.Itoa(p.pid), "--mount", "--", name}, args...)...)
}

// Daemon is a running daemon.
type Daemon struct {
	// Client is a client of the daemon.
	Client gobpfman.BpfmanClient
	// Conn is the connection to it.
	Conn *grpc.ClientConn
	// Socket is the path of its socket.
	Socket string
	// Place is where it runs.
	Place *Place
	pid   int
	ended <-chan struct{}
}

// Start runs the daemon until the test ends, with Environment and additional environment
// variables. For a daemon that pulls images, set SSL_CERT_FILE. Start skips the test if
// there is no daemon, or no permission to run it.
func Start(t *testing.T, env ...string) *Daemon {
	t.Helper()
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		prerequisite.Missing(t, binaryVariable+" isn't set to the path of bpfman-rpc", prerequisite.Daemon)
	}
	return NewPlace(t).Start(t, binary, env...)
}

// Start runs a daemon in the place, until it is killed or the test ends. The variables of
// env have precedence over those of Environment.
func (p *Place) Start(t *testing.T, binary string, env ...string) *Daemon {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "bpfman.sock")
	args := []string{"--target=" + strconv.Itoa(p.pid), "--mount", "--net", "--"}
	if launcher := os.Getenv(launcherVariable); launcher != "" {
		args = append(args, launcher, "--")
	}
	args = append(args, binary, "--timeout", "0", "--socket-path", socket)

	cmd := exec.CommandContext(t.Context(), "nsenter", args...) //nolint:gosec // whoever runs the tests chooses it
	cmd.Env = slices.Concat(os.Environ(), Environment(), env)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start daemon: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// It is killed at the end of the test, so there is always an error.
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		<-ended
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the end of the daemon's log:\n%s", text[max(0, len(text)-logTail):])
		}
	})

	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("connect to daemon: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	d := &Daemon{Client: gobpfman.NewBpfmanClient(conn), Conn: conn, Socket: socket, Place: p, pid: cmd.Process.Pid, ended: ended}
	d.awaitReady(t)
	return d
}

// Kill kills the daemon, as a node finally does when it replaces the daemon's pod.
func (d *Daemon) Kill(t *testing.T) {
	t.Helper()
	if err := unix.Kill(d.pid, unix.SIGKILL); err != nil {
		t.Fatalf("kill daemon: %v", err)
	}
	<-d.ended
}

func (d *Daemon) awaitReady(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	ready := make(chan error, 1)
	go func() {
		_, err := d.Client.List(ctx, &gobpfman.ListRequest{}, grpc.WaitForReady(true))
		ready <- err
	}()
	select {
	case err := <-ready:
		if err != nil {
			t.Fatalf("daemon not ready: %v", err)
		}
	case <-d.ended:
		t.Fatal("daemon ended at its start")
	}
}

// PeakMemory returns the maximum memory that the daemon has used, in bytes.
func (d *Daemon) PeakMemory() (int64, error) {
	memory, err := node.MemoryOf(d.pid)
	return int64(memory.Peak), err //nolint:wrapcheck // it names the process
}

// Path returns the path at which this process finds a file in the daemon's file system.
func (d *Daemon) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(d.pid), "root", path)
}

// Command returns a command that sees and changes the daemon's file systems. Its mounts
// disappear with the daemon.
func (d *Daemon) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	mounts := filepath.Join("/proc", strconv.Itoa(d.pid), "ns/mnt")
	return exec.CommandContext(ctx, "nsenter", append([]string{"--mount=" + mounts, "--", name}, args...)...)
}

// InNetwork runs a function in the daemon's network namespace.
func (d *Daemon) InNetwork(f func() error) error { return inNetwork(d.pid, f) }

// InNetwork runs a function in the place's network namespace.
func (p *Place) InNetwork(f func() error) error { return inNetwork(p.pid, f) }

func inNetwork(pid int, f func() error) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked, so that the thread ends with the goroutine. Nothing else must
		// run in that namespace.
		runtime.LockOSThread()
		result <- enterNetwork(pid, f)
	}()
	return <-result
}

func enterNetwork(pid int, f func() error) (err error) {
	ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns/net"))
	if err != nil {
		return fmt.Errorf("open daemon's network namespace: %w", err)
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter daemon's network namespace: %w", err)
	}
	return f()
}
