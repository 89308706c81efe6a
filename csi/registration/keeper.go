// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bpfman/bpfman-operator/csi/internal/socket"
)

const (
	// CheckInterval is a good interval between checks of the registration socket.
	CheckInterval = 5 * time.Second
	// SidecarGrace is enough time for node-driver-registrar to restart.
	SidecarGrace = 20 * time.Second

	// dialTimeout is longer than a local connection ever takes.
	dialTimeout = 5 * time.Second
)

// Keeper keeps the plugin registered. A kubelet forgets a plugin when the registration
// socket is removed from its directory. After its own restart, a kubelet doesn't find a
// plugin whose socket is dead. Pods then wait for their volumes. Nothing restarts
// node-driver-registrar in these cases, because its exec probe always succeeds since
// v2.9. The plugin therefore checks the socket itself, and serves one if nobody does. It
// doesn't use the API server: a CSINode shows what a kubelet wrote once, not what the
// kubelet knows now.
type Keeper struct {
	*Plugin
	// Check is the interval between checks of the socket. Each check connects to it.
	Check time.Duration
	// Grace is how long the sidecar has to restore its socket.
	Grace time.Duration

	served atomic.Bool
	// lost is the time since when no socket is served. It is zero while one is served.
	lost time.Time
	// end stops serving the plugin's own socket.
	end func()
}

// Served reports whether the last check found that a registration socket is served.
func (k *Keeper) Served() bool { return k.served.Load() }

// Run keeps the plugin registered until the context ends. It returns an error if only a
// restart of the container helps: the kubelet's directory was replaced, and the
// container still has the old one mounted.
func (k *Keeper) Run(ctx context.Context) error {
	k.end = func() {}
	defer func() { k.end() }()
	tick := time.NewTicker(k.Check)
	defer tick.Stop()
	for {
		if err := k.check(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// check connects to the socket, no matter which process serves it, and replaces a lost
// one after its owner had time to do so.
func (k *Keeper) check(ctx context.Context) error {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connection, found := (&net.Dialer{}).DialContext(dialing, "unix", k.SocketPath())
	switch {
	case found == nil:
		connection.Close()
		k.lost = time.Time{}
		k.served.Store(true)
		return nil
	case !errors.Is(found, fs.ErrNotExist) && !errors.Is(found, syscall.ECONNREFUSED), ctx.Err() != nil:
		return nil // the node lacks memory or file descriptors, so the socket's state isn't known
	}
	k.served.Store(false)
	if k.lost.IsZero() {
		k.lost = time.Now()
	}
	if time.Since(k.lost) < k.Grace {
		return nil
	}
	err := k.serve(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the kubelet's registration directory was replaced, and must be mounted again: %w", err)
	}
	if err != nil {
		k.Log.Error("Failed to serve the registration socket", "found", found, "error", err)
		k.lost = time.Now() // the next attempt
		return nil
	}
	k.Log.Warn("The registration socket wasn't served; the plugin now serves it", "found", found, "socket", k.SocketPath())
	return nil
}

// serve serves the plugin's own socket. If the sidecar replaces it, the sidecar's stays.
func (k *Keeper) serve(ctx context.Context) error {
	k.end()
	k.end = func() {}
	listener, err := socket.Listen(ctx, k.SocketPath())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = socket.Serve(ctx, listener, k.server()) // the next check finds out whether it is served
	}()
	k.end = func() {
		stop()
		<-ended
	}
	return nil
}
