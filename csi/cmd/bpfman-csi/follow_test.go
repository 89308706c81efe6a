// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/driver"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/program"
)

// If programs can't be watched, the plugin continues, and volumes follow later.
func TestFollowWithoutAWatch(t *testing.T) {
	directory := t.TempDir()
	unwatchable := filepath.Join(directory, "maps") // a file can't be watched as a directory
	if err := os.WriteFile(unwatchable, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	daemon, err := program.NewDaemon(filepath.Join(directory, "bpfman.sock"), unwatchable)
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	reader, writer := io.Pipe()
	log := slog.New(slog.NewTextHandler(writer, nil))
	plugin := driver.New(driver.Options{
		Programs: daemon, Volumes: maps.NewVolumes(directory, ""), Policy: access.All{}, Denied: func() {}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	servers, running := errgroup.WithContext(ctx)
	follow(running, servers, daemon, plugin, unwatchable, log)
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil || !strings.Contains(line, "Failed to watch programs") {
		t.Fatalf("the log says %q, %v", line, err)
	}
	if err := running.Err(); err != nil {
		t.Errorf("the plugin ends: %v", err)
	}
	cancel()
	if err := servers.Wait(); err != nil {
		t.Error(err)
	}
}
