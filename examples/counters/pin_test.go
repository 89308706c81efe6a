// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package counters

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

const (
	envReader = "COUNTERS_TEST_READER"
	nobody    = 65534
)

// TestMain runs the unprivileged reader in the process that TestPinFollows starts.
func TestMain(m *testing.M) {
	if path := os.Getenv(envReader); path != "" {
		if err := readPin(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// readPin prints the id of the map that the pin refers to: once, again for each line of
// input, and again when the directory has changed.
func readPin(path string) error {
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	if _, err := unix.InotifyAddWatch(watch, filepath.Dir(path), unix.IN_MOVED_TO); err != nil {
		return fmt.Errorf("watch the volume: %w", err)
	}
	pin := &Pin{Path: path}
	defer pin.Close()
	printID := func() error {
		m, err := pin.Map()
		if err != nil {
			return err
		}
		info, err := m.Info()
		if err != nil {
			return err
		}
		id, _ := info.ID()
		fmt.Println(id)
		return nil
	}
	if err := printID(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "wait" {
			if _, err := unix.Read(watch, make([]byte, 4096)); err != nil {
				return fmt.Errorf("wait for a change of the volume: %w", err)
			}
		}
		if err := printID(); err != nil {
			return err
		}
	}
	return nil
}

// TestPinFollows replaces a map while a reader without user, group, or capabilities has
// it open, like the CSI plugin after a reload. The reader finds the new map when it
// checks, and can also wait for it.
func TestPinFollows(t *testing.T) {
	volume := bpffs(t)
	path := filepath.Join(volume, "counts")
	first := pinMap(t, path)
	reader := startReader(t, path)
	reader.expect(t, first)
	reader.say(t, "look", first)

	second := pinMap(t, path)
	reader.say(t, "look", second)
	reader.say(t, "wait", second) // the change that it hasn't waited for yet
	reader.say(t, "look", second)

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	reader.say(t, "look", "look at map: stat "+path+": no such file or directory")
}

// bpffs mounts a bpffs like a volume with an fsGroup.
func bpffs(t *testing.T) string {
	t.Helper()
	prerequisite.NeedsRoot(t, "mounting a bpffs needs CAP_SYS_ADMIN")
	directory, err := os.MkdirTemp("", "counters") //nolint:usetesting // other users can't search TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	volume := filepath.Join(directory, "volume")
	sandbox.MountBPFFS(t, volume)
	if err := os.Chown(volume, 0, nobody); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(volume, 0o750); err != nil {
		t.Fatal(err)
	}
	return volume
}

// pinMap pins a new map at path, replaces an existing pin, and returns the map's id.
func pinMap(t *testing.T, path string) string {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		prerequisite.Missing(t, "make a map: "+err.Error(), prerequisite.BPF)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	temporary := filepath.Join(filepath.Dir(path), "new")
	if err := m.Pin(temporary); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Chown(temporary, 0, nobody), os.Chmod(temporary, 0o440), os.Rename(temporary, path),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprint(id)
}

// unprivileged is the reader, in another process.
type unprivileged struct {
	input  io.Writer
	output *bufio.Reader
}

func startReader(t *testing.T, path string) unprivileged {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, "/proc/self/exe")
	command.Env = append(os.Environ(), envReader+"="+path)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = command.Wait()
	})
	return unprivileged{input, bufio.NewReader(output)}
}

func (u unprivileged) say(t *testing.T, line, want string) {
	t.Helper()
	if _, err := fmt.Fprintln(u.input, line); err != nil {
		t.Fatal(err)
	}
	u.expect(t, want)
}

func (u unprivileged) expect(t *testing.T, want string) {
	t.Helper()
	got, err := u.output.ReadString('\n')
	if strings.TrimSpace(got) != want {
		t.Fatalf("the reader says %q, %v, not %q", got, err, want)
	}
}
