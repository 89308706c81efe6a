// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
)

// The user and group of the example application.
const nobody = 65534

// TestUnprivilegedReader runs the example application without capabilities, as in its pods,
// with pins of several modes in a separate bpffs.
func TestUnprivilegedReader(t *testing.T) {
	f := setUp(t)
	counters := build(t, "counters")
	app := application(f.target)
	loaded, err := f.load(t.Context(), adapted(t, app.name), nil, app.programs...)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	for i, p := range app.programs {
		f.attachAndCount(t, p, loaded.Programs[i])
	}
	maps := f.Path(loaded.Programs[0].Info.MapPinPath)

	for name, c := range map[string]struct {
		mode  fs.FileMode
		group uint32
		want  []string
	}{
		"read-only":     {0o440, nobody, []string{"CapEff 0000000000000000", "\ntcx_stats_map: packets=", "\ntracepoint_stats_map: events=", "\nuprobe_stats_map: events="}},
		"read-write":    {0o660, nobody, []string{"CapEff 0000000000000000", "\ntcx_stats_map: packets="}},
		"another group": {0o440, nobody - 1, []string{"CapEff 0000000000000000", "tcx_stats_map", "permission denied"}},
		"owner alone":   {0o600, nobody, []string{"CapEff 0000000000000000", "tcx_stats_map", "permission denied"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := readAs(t.Context(), c.group, c.mode, maps, counters, "--once", "--maps", shownMaps)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}

// readAs pins the maps with the group nobody and the mode. It returns what the command prints
// when user nobody runs it in the group. The command finds the maps in shownMaps.
func readAs(ctx context.Context, group uint32, mode fs.FileMode, maps, command string, args ...string) (string, error) {
	var out string
	var err error
	daemontest.OnOwnThread(func() { out, err = readInNamespace(ctx, group, mode, maps, command, args...) })
	return out, err
}

// The mount point is a directory that every system has. Nothing outside of the namespace sees
// the mount.
const (
	shownDir  = "/mnt"
	shownMaps = shownDir + "/maps"
)

func readInNamespace(ctx context.Context, group uint32, mode fs.FileMode, maps, command string, args ...string) (string, error) {
	if err := errors.Join(
		unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", shownDir, "tmpfs", 0, "mode=0755"),
		os.Mkdir(shownMaps, 0o755),
		unix.Mount("bpf", shownMaps, "bpf", 0, "mode=0755"),
	); err != nil {
		return "", fmt.Errorf("prepare mounts: %w", err)
	}
	if err := repin(maps, shownMaps, mode); err != nil {
		return "", err
	}
	binary, err := os.ReadFile(command)
	if err != nil {
		return "", err
	}
	copied := filepath.Join(shownDir, filepath.Base(command))
	if err := os.WriteFile(copied, binary, 0o755); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, copied, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: group}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("run %s: %w", command, err)
	}
	return string(out), nil
}

func repin(from, to string, mode fs.FileMode) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		m, err := ebpf.LoadPinnedMap(filepath.Join(from, entry.Name()), nil)
		if err != nil {
			return err
		}
		pin := filepath.Join(to, entry.Name())
		clone, err := m.Clone()
		if err != nil {
			return errors.Join(err, m.Close())
		}
		err = errors.Join(clone.Pin(pin), os.Chown(pin, 0, nobody), os.Chmod(pin, mode), clone.Close(), m.Close())
		if err != nil {
			return fmt.Errorf("pin %s: %w", pin, err)
		}
	}
	return nil
}
