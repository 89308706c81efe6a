// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package scrape

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// headerTimeout is the maximum time to read the headers of a request.
const headerTimeout = 10 * time.Second

// Serve serves HTTP at a TCP address until ctx ends, or HTTPS if certified isn't nil. It
// returns nil if ctx has ended.
func Serve(ctx context.Context, address string, handler http.Handler, certified *tls.Config, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", address, err)
	}
	server := &http.Server{
		Handler: handler, TLSConfig: certified, ReadHeaderTimeout: headerTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if certified != nil {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve at %s: %w", address, err)
	}
	return nil
}
