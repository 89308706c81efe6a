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

// Pace is how a Keeper looks after the registration.
type Pace struct {
	// Check is the time between two looks at the socket, each a connection to it.
	Check time.Duration
	// Sidecar is how long node-driver-registrar has to put its socket back.
	Sidecar time.Duration
	// Kubelet is how long a kubelet has to find a new socket, before the log says that
	// none does.
	Kubelet time.Duration
}

// DefaultPace leaves the sidecar time to be restarted. A kubelet finds a socket within
// about a second.
var DefaultPace = Pace{Check: 5 * time.Second, Sidecar: 20 * time.Second, Kubelet: time.Minute}

// Keeper keeps the plugin registered. A kubelet forgets a plugin whose registration
// socket is removed from its directory, and finds none after its own restart when the
// socket is dead: pods then wait for their volumes. Nothing restarts
// node-driver-registrar for that, whose exec probe always succeeds since v2.9. So the
// plugin looks at the socket itself, and serves one wherever none is served. It asks no
// one else: what the API server knows (CSINode) is what a kubelet wrote there once, not
// what the kubelet knows now.
type Keeper struct {
	*Plugin
	Pace
	// Self is set when no sidecar registers the plugin: it does so from the start.
	Self bool

	own *service
	// lost is since when no socket is served, zero while one is.
	lost time.Time
	// said is the last failure in the log.
	said string
}

// service is the plugin's own registration socket being served.
type service struct {
	listener *socket.Listener
	since    time.Time
	silent   bool // no kubelet has found it in time, and the log says so
	stop     context.CancelFunc
	ended    chan struct{}
}

// Run keeps the plugin registered until the context ends. It fails where only a
// restart of the container helps: the kubelet's directory was replaced, and the
// container has the old one mounted.
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

// look looks at the socket once, and replaces one that is lost.
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
		return nil //nolint:nilerr // of a node without memory or descriptors: nothing is known of the socket
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

// dialTimeout is more than a socket of the node itself ever takes.
const dialTimeout = 5 * time.Second

// dial connects to the registration socket, whoever serves it.
func (k *Keeper) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", k.SocketPath())
	if err != nil {
		return err //nolint:wrapcheck // names the socket
	}
	return connection.Close()
}

// restore serves a socket in place of the lost one, when its owner had time to.
func (k *Keeper) restore(ctx context.Context, lost error) error {
	if k.lost.IsZero() {
		k.lost = time.Now()
	}
	if ctx.Err() != nil || !k.Self && time.Since(k.lost) < k.Sidecar {
		return nil //nolint:nilerr // its end is no failure
	}
	err := k.serve(ctx) // tried again at the next look
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
		_ = socket.Serve(ctx, listener, server) // the next look tells whether it is served
	}()
	k.own = own
	return nil
}

// end stops serving; a socket that has taken this one's place stays.
func (s *service) end() {
	s.stop()
	<-s.ended
}
