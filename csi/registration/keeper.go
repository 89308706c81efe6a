// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/bpfman/bpfman-operator/csi/internal/socket"
)

// Pace contains the intervals and delays of a Keeper.
type Pace struct {
	// Check is the interval between checks of the socket. Each check connects to it.
	Check time.Duration
	// Sidecar is how long the Keeper waits for node-driver-registrar to recreate its
	// socket.
	Sidecar time.Duration
	// Kubelet is how long the Keeper waits for a kubelet to find a new socket, before it
	// logs that none does.
	Kubelet time.Duration
}

// DefaultPace gives the sidecar time to restart. A kubelet finds a socket within about a
// second.
var DefaultPace = Pace{Check: 5 * time.Second, Sidecar: 20 * time.Second, Kubelet: time.Minute}

// Keeper keeps the plugin registered. A kubelet forgets a plugin when the registration
// socket is removed from its directory. After its own restart, a kubelet doesn't find a
// plugin whose socket is dead. Pods then wait for their volumes. Nothing restarts
// node-driver-registrar in these cases, because its exec probe always succeeds since
// v2.9. The plugin therefore checks the socket itself, and serves one if nobody does. It
// doesn't use the API server: a CSINode shows what a kubelet wrote once, not what the
// kubelet knows now.
type Keeper struct {
	*Plugin
	Pace
	// Self means that no sidecar registers the plugin, so the Keeper registers it from
	// the start.
	Self bool

	own *service
	// lost is the time since when no socket is served. It is zero while one is served.
	lost time.Time
	// said is the last failure that was logged.
	said string
}

// service serves the plugin's own registration socket.
type service struct {
	listener *socket.Listener
	since    time.Time
	silent   bool // no kubelet found it in time, and this was logged
	stop     context.CancelFunc
	ended    chan struct{}
}

// Run keeps the plugin registered until the context ends. It returns an error if only a
// restart of the container helps: the kubelet's directory was replaced, and the
// container still has the old one mounted.
func (k *Keeper) Run(ctx context.Context) error {
	defer func() {
		if k.own != nil {
			k.own.end()
		}
	}()
	if k.Self {
		if err := k.serve(ctx); err != nil {
			return err
		}
	}
	tick := time.NewTicker(k.Check)
	defer tick.Stop()
	for {
		if err := k.look(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look checks the socket once, and replaces a lost one.
func (k *Keeper) look(ctx context.Context) error {
	if k.own != nil && !k.own.listener.Current() {
		k.own.end()
		k.own = nil
	}
	switch err := k.dial(ctx); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		k.registered.Store(false)
		return k.restore(ctx, err)
	case err != nil:
		return nil //nolint:nilerr // the node lacks memory or file descriptors, so the socket's state isn't known
	}
	k.lost, k.said = time.Time{}, ""
	k.registered.Store(k.own == nil || k.asked.Load())
	if k.own != nil && !k.own.silent && !k.asked.Load() && time.Since(k.own.since) > k.Kubelet {
		k.own.silent = true
		k.Log.Error("No kubelet has found the plugin's registration socket; check that bpfman.kubelet.root is the kubelet's root directory",
			"socket", k.SocketPath(), "endpoint", k.Endpoint)
	}
	return nil
}

// dialTimeout is longer than a local connection ever takes.
const dialTimeout = 5 * time.Second

// dial connects to the registration socket, no matter which process serves it.
func (k *Keeper) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", k.SocketPath())
	if err != nil {
		return err //nolint:wrapcheck // it names the socket
	}
	return connection.Close()
}

// restore replaces a lost socket, after its owner had time to do so.
func (k *Keeper) restore(ctx context.Context, lost error) error {
	if k.lost.IsZero() {
		k.lost = time.Now()
	}
	if ctx.Err() != nil || !k.Self && time.Since(k.lost) < k.Sidecar {
		return nil //nolint:nilerr // the end of the context isn't a failure
	}
	err := k.serve(ctx) // the next check retries
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the kubelet's registration directory was replaced, and must be mounted again: %w", err)
	}
	switch {
	case err == nil:
		k.Log.Warn("The registration socket wasn't served; the plugin now serves it", "found", lost, "socket", k.SocketPath())
	case k.said != err.Error():
		k.said = err.Error()
		k.Log.Error("Failed to serve the registration socket", "found", lost, "error", err)
	}
	return nil
}

// serve serves the plugin's own socket.
func (k *Keeper) serve(ctx context.Context) error {
	if k.own != nil {
		k.own.end()
		k.own = nil
	}
	listener, err := socket.Listen(ctx, k.SocketPath())
	if err != nil {
		return err
	}
	k.asked.Store(false)
	server := grpc.NewServer()
	k.register(server)
	ctx, stop := context.WithCancel(ctx)
	own := &service{listener: listener, since: time.Now(), stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(own.ended)
		_ = socket.Serve(ctx, listener, server) // the next check finds out whether it is served
	}()
	k.own = own
	return nil
}

// end stops serving. It doesn't remove a socket that has replaced this one.
func (s *service) end() {
	s.stop()
	<-s.ended
}
