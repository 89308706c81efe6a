// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"fmt"
	"net"
)

// ending is a socket through which another process ends what this process does. It has an abstract name, in the
// network namespace.
type ending struct {
	net.Listener
	// called is closed when end was called with the same name.
	called chan struct{}
}

func listenForEnd(ctx context.Context, name string) (ending, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", endSocket(name))
	if err != nil {
		return ending{}, fmt.Errorf("listen for the end of %s: %w", name, err)
	}
	e := ending{listener, make(chan struct{})}
	go func() {
		defer close(e.called)
		if conn, err := listener.Accept(); err == nil {
			_ = conn.Close()
		}
	}()
	return e, nil
}

// end ends what another process does.
func end(ctx context.Context, name string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", endSocket(name))
	if err != nil {
		return fmt.Errorf("end %s: %w", name, err)
	}
	return conn.Close()
}

func endSocket(name string) string { return "@node-probe-" + name }
