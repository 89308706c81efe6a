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
	"syscall"
	"time"
)

const (
	// headerTimeout is the maximum time to read the headers of a request.
	headerTimeout = 10 * time.Second
	// retryInterval is the time between attempts to listen.
	retryInterval = time.Second
)

// Serve serves HTTP at a TCP address until ctx ends, or HTTPS if certified isn't nil. It
// returns nil if ctx has ended. If it can't listen, it logs the error and retries: on the
// host's network, other software can use the port, and that must not stop the component.
// If that is still so when ctx ends, it returns the error, because the kubelet restarts a
// component that doesn't answer its probe, and the error is the cause.
func Serve(ctx context.Context, address string, handler http.Handler, certified *tls.Config, log *slog.Logger) error {
	listener, err := listen(ctx, address, log)
	if listener == nil {
		return err
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

// listen returns no listener if ctx ends first, and the error if other software uses the address.
func listen(ctx context.Context, address string, log *slog.Logger) (net.Listener, error) {
	var inUse error
	for attempt := 1; ; attempt++ {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		switch {
		case err == nil && attempt > 1:
			log.Info("Listening after earlier attempts failed", "address", address, "attempts", attempt)
			return listener, nil
		case err == nil:
			return listener, nil
		case attempt == 1 && ctx.Err() == nil:
			log.Error("Can't listen, retrying", "address", address, "error", err)
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			inUse = err
		}
		select {
		case <-ctx.Done():
			return nil, inUse
		case <-time.After(retryInterval):
		}
	}
}
