// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bpfman/bpfman-operator/examples/events"
)

// headerTimeout bounds how long a client can take for its request. The response has no end.
const headerTimeout = 5 * time.Second

// forward prints the events of a ring buffer, and serves them to clients.
func forward(ctx context.Context, path, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	hub := &events.Hub{}
	mux := http.NewServeMux()
	mux.Handle("GET /events", hub)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error {
		if err := server.Serve(listener); ctx.Err() == nil {
			return fmt.Errorf("serve events: %w", err)
		}
		return nil
	})
	tasks.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	tasks.Go(func() error {
		out := json.NewEncoder(os.Stdout)
		return events.Read(ctx, path, func(e events.Event) {
			hub.Emit(e)
			_ = out.Encode(e) // without an output, clients still get it
		})
	})
	return tasks.Wait()
}
