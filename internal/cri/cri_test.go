// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cri

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocket(t *testing.T) {
	run := t.TempDir()
	for _, dir := range []string{"containerd", "crio"} {
		if err := os.Mkdir(filepath.Join(run, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// A file of another runtime isn't a socket.
	if err := os.WriteFile(filepath.Join(run, "containerd/containerd.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if socket, err := Socket(run); err == nil || !strings.Contains(err.Error(), run) {
		t.Errorf("found %q, %v", socket, err)
	}
	want := filepath.Join(run, "crio/crio.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", want)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if socket, err := Socket(run); err != nil || socket != want {
		t.Errorf("found %q, %v, want %q", socket, err, want)
	}
}
