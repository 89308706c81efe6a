// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/cri"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// onNode runs a test in which run is the host's /run. Mounts in shared propagate to
// container, as from /run/bpfman to the directory in the agent's container.
func onNode(t *testing.T, test func(t *testing.T, run, shared, container string)) {
	t.Helper()
	prerequisite.NeedsRoot(t, "mounting needs CAP_SYS_ADMIN")
	base, err := os.MkdirTemp("", "run") //nolint:usetesting // short, because the path of a socket has at most 108 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	daemontest.OnOwnThread(func() {
		run, shared, container := filepath.Join(base, "run"), filepath.Join(base, "shared"), filepath.Join(base, "container")
		err := errors.Join(
			unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			os.Mkdir(run, 0o755), os.Mkdir(shared, 0o755), os.Mkdir(container, 0o755),
			unix.Mount("tmpfs", run, "tmpfs", 0, ""),
			unix.Mount("tmpfs", shared, "tmpfs", 0, ""), unix.Mount("", shared, "", unix.MS_SHARED, ""),
			unix.Mount(shared, container, "", unix.MS_BIND, ""), unix.Mount("", container, "", unix.MS_SLAVE, ""),
		)
		if err != nil {
			t.Error(err)
			return
		}
		test(t, run, filepath.Join(shared, "cri"), filepath.Join(container, "cri"))
	})
}

func listen(t *testing.T, run, socket string) net.Listener {
	t.Helper()
	path := filepath.Join(run, socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Error(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Error(err)
	}
	return listener
}

func answers(t *testing.T, dir, socket string) bool {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", filepath.Join(dir, socket))
	if err == nil {
		conn.Close()
	}
	return err == nil
}

func mountsBelow(t *testing.T, dir string) int {
	t.Helper()
	table, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		t.Error(err)
	}
	return strings.Count(string(table), " "+dir+"/")
}

func TestShareRuntime(t *testing.T) {
	for _, socket := range cri.Sockets {
		t.Run(socket, func(t *testing.T) {
			onNode(t, func(t *testing.T, run, shared, container string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(run, "other"), nil, 0o600); err != nil {
					t.Error(err)
				}
				first := listen(t, run, socket)
				defer first.Close()
				for range 3 { // only the first call mounts
					if got, err := ShareRuntime(run, shared); got != socket || err != nil {
						t.Errorf("got %q, %v", got, err)
						return
					}
				}
				if mounts := mountsBelow(t, shared); mounts != 1 {
					t.Errorf("%d mounts", mounts)
				}
				if !answers(t, container, socket) {
					t.Error("the agent can't reach the runtime")
				}
				if _, err := os.Stat(filepath.Join(container, "other")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the agent sees the rest of /run: %v", err)
				}
				beside := filepath.Join(container, filepath.Dir(socket), "new")
				if err := os.WriteFile(beside, nil, 0o600); filepath.Dir(socket) != "." && !errors.Is(err, unix.EROFS) {
					t.Errorf("the agent can write there: %v", err)
				}
			})
		})
	}
}

// A runtime that restarts creates a new socket in its directory. If the directory or the
// runtime changes, the node's pod restarts too.
func TestSharedRuntimeChanges(t *testing.T) {
	const containerd, crio = "containerd/containerd.sock", "crio/crio.sock"
	onNode(t, func(t *testing.T, run, shared, container string) {
		t.Helper()
		if got, err := ShareRuntime(run, shared); got != "" || err != nil {
			t.Errorf("without a runtime: %q, %v", got, err)
		}
		expect := func(what, socket string) {
			t.Helper()
			if got, err := ShareRuntime(run, shared); got != socket || err != nil {
				t.Errorf("%s: got %q, %v", what, got, err)
			}
			if mounts := mountsBelow(t, shared); mounts != 1 {
				t.Errorf("%s: %d mounts", what, mounts)
			}
			if !answers(t, container, socket) {
				t.Errorf("%s: the agent can't reach the runtime", what)
			}
		}
		runtime := listen(t, run, containerd)
		expect("the first", containerd)
		runtime.Close()
		runtime = listen(t, run, containerd)
		if !answers(t, container, containerd) {
			t.Error("the socket of a runtime that has started again isn't there")
		}
		runtime.Close()
		if err := os.RemoveAll(filepath.Join(run, "containerd")); err != nil {
			t.Error(err)
		}
		runtime = listen(t, run, containerd)
		expect("another directory", containerd)
		runtime.Close()
		runtime = listen(t, run, crio)
		expect("another runtime", crio)
		runtime.Close()
		if err := os.RemoveAll(filepath.Join(run, "crio")); err != nil {
			t.Error(err)
		}
		if got, err := ShareRuntime(run, shared); got != "" || err != nil || mountsBelow(t, shared) != 0 {
			t.Errorf("the runtime gone: %q, %v, %d mounts", got, err, mountsBelow(t, shared))
		}
	})
}
