// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package daemontest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

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
// there, until the test ends. They don't affect the machine's programs, pins, or
// interfaces.
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

// Start runs the daemon in a new place. See [Place.Start].
func Start(tb testing.TB, env ...string) *Real {
	tb.Helper()
	return NewPlace(tb).Start(tb, Binary(tb), env...)
}

// Start runs a daemon in the place, until it is killed or the test ends. The variables of
// env have precedence over those of Environment. For a daemon that pulls images, set
// SSL_CERT_FILE.
func (p *Place) Start(tb testing.TB, binary string, env ...string) *Real {
	tb.Helper()
	d := start(tb, []string{"nsenter", "--target=" + strconv.Itoa(p.pid), "--mount", "--net", "--"}, binary, env)
	d.Place = p
	return d
}

// Path returns the path at which this process finds a file in the daemon's file system.
func (d *Real) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(d.PID), "root", path)
}

// Command returns a command that sees and changes the daemon's file systems. Its mounts
// disappear with the daemon.
func (d *Real) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	mounts := filepath.Join("/proc", strconv.Itoa(d.PID), "ns/mnt")
	return exec.CommandContext(ctx, "nsenter", append([]string{"--mount=" + mounts, "--", name}, args...)...)
}

// InNetwork runs a function in the daemon's network namespace.
func (d *Real) InNetwork(f func() error) error { return inNetwork(d.PID, f) }

// InNetwork runs a function in the place's network namespace.
func (p *Place) InNetwork(f func() error) error { return inNetwork(p.pid, f) }

func inNetwork(pid int, f func() error) error {
	var err error
	OnOwnThread(func() { err = enterNetwork(pid, f) })
	return err
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
