// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package socket serves gRPC on a Unix socket.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
)

// drainTimeout bounds the time that running calls have to finish during a shutdown.
const drainTimeout = 5 * time.Second

// Listener listens on a Unix socket. Another process can replace the socket at its path.
type Listener struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// Listen listens on path, and replaces a socket that exists there.
func Listen(ctx context.Context, path string) (*Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look for a stale socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	unixListener, ok := listener.(*net.UnixListener)
	if !ok {
		listener.Close()
		return nil, fmt.Errorf("listen on %s: %T isn't a Unix socket", path, listener)
	}
	own := &Listener{UnixListener: unixListener, path: path}
	own.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		own.Close()
		return nil, fmt.Errorf("restrict socket: %w", err)
	}
	if own.file, err = os.Lstat(path); err != nil {
		own.Close()
		return nil, fmt.Errorf("check the new socket: %w", err)
	}
	return own, nil
}

// Current reports whether the path still refers to this socket.
func (l *Listener) Current() bool {
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(info, l.file)
}

// Close stops listening, and removes the socket unless another one has replaced it.
func (l *Listener) Close() error {
	if l.file == nil || l.Current() {
		_ = os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

// Serve serves until the context ends. It then gives running calls some time to finish,
// and removes the socket.
func Serve(ctx context.Context, listener *Listener, server *grpc.Server) error {
	stop := context.AfterFunc(ctx, func() {
		force := time.AfterFunc(drainTimeout, server.Stop)
		defer force.Stop()
		server.GracefulStop()
	})
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	return nil
}
