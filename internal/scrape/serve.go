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
	// The maximum times to read the headers of a request, to read all of it, to handle it and write the response, and that a
	// connection is kept without a request. Every pod can open connections, without a token.
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 2 * time.Minute
	idleTimeout   = 2 * time.Minute
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
	server := Server(handler)
	server.TLSConfig, server.ErrorLog = certified, slog.NewLogLogger(log.Handler(), slog.LevelDebug)
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

// Server returns a server that ends connections of clients that are slow, or don't do anything, and those that are too many.
func Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ConnState: (&connections{most: maxConnections}).changed,
	}
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
