// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package registry serves the cluster's OCI registry over TLS.
package registry

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Options are the options of the registry.
type Options struct {
	Addresses []string // host:port
	Blobs     string   // the directory for layers; manifests are kept in memory
	Cert, Key string   // files
}

// Serve serves until the context ends or a listener fails.
func Serve(ctx context.Context, o Options) error {
	server := &http.Server{
		Handler: registry.New(
			registry.WithBlobHandler(registry.NewDiskBlobHandler(o.Blobs)),
			registry.Logger(log.New(io.Discard, "", 0)),
		),
		ReadHeaderTimeout: 10 * time.Second,
		// Ignore clients that don't trust the certificate.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	defer server.Close()
	failed := make(chan error, len(o.Addresses))
	for _, address := range o.Addresses {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		go func() { failed <- server.ServeTLS(listener, o.Cert, o.Key) }()
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve the registry: %w", err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
