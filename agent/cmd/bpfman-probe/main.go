// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-probe is the liveness probe of the daemon's container, whose image has none. It makes a call, and fails
// if the daemon doesn't answer it.
//
// The daemon serves one call at a time. So the probe waits longer than the longest call that another client waits
// for, and a daemon that loads a large program isn't mistaken for one that hangs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

func main() {
	socket := flag.String("daemon-socket", "/run/bpfman-sock/bpfman.sock", "Unix socket of the bpfman daemon.")
	timeout := flag.Duration("timeout", bpfman.MaxSilence, "How long to wait for the daemon's answer.")
	flag.Parse()
	if err := probe(*socket, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "bpfman-probe:", err)
		os.Exit(1)
	}
}

func probe(socket string, timeout time.Duration) (err error) {
	connection, err := bpfman.Dial(socket)
	if err != nil {
		return fmt.Errorf("probe the daemon: %w", err)
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := bpfman.Ask(ctx, gobpfman.NewBpfmanClient(connection)); err != nil {
		return fmt.Errorf("the daemon hasn't answered for %s: %w", timeout, err)
	}
	return nil
}
