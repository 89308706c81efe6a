// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/tests/simulation/apiserver"
)

// Reach is what becomes of packets.
type Reach int

const (
	// Up means that packets arrive.
	Up Reach = iota
	// Silent means that they are lost.
	Silent
	// Refusing means that nothing listens where they arrive.
	Refusing
)

// lostAfter is the time without packets after which a client gives up a connection: ReadIdleTimeout and PingTimeout of
// k8s.io/apimachinery's HTTP/2 transport.
const lostAfter = 45 * time.Second

var (
	errLost    = errors.New("http2: client connection lost")
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errCrashed = errors.New("the process has crashed")
)

// signal tells waiters of changes.
type signal struct {
	mu      sync.Mutex
	changed chan struct{}
}

// next returns a channel that is closed at the next change.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (s *signal) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Network is a part of the way to the API server.
type Network struct {
	mu      sync.Mutex
	reach   Reach
	changed chan struct{}
}

func newNetwork() *Network { return &Network{changed: make(chan struct{})} }

// Set changes what becomes of packets.
func (n *Network) Set(reach Reach) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reach == reach {
		return
	}
	n.reach = reach
	close(n.changed)
	n.changed = make(chan struct{})
}

// Reach returns what becomes of packets, and a channel that is closed when that changes.
func (n *Network) Reach() (Reach, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reach, n.changed
}

// pass waits until packets pass through all networks, in order, and returns an error if nothing listens, or if they were lost
// for too long. Lost packets are sent again.
func pass(ctx context.Context, networks []*Network) error {
	var lost <-chan time.Time
	for {
		reach, changed := Up, (<-chan struct{})(nil)
		for _, n := range networks {
			if reach, changed = n.Reach(); reach != Up { // packets get no further
				break
			}
		}
		switch reach {
		case Up:
			return nil
		case Refusing:
			return errRefused
		case Silent:
		}
		if lost == nil {
			lost = time.After(lostAfter)
		}
		select {
		case <-changed:
		case <-lost:
			return errLost
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// connection is a process's connection to the API server. It implements [http.RoundTripper].
type connection struct {
	*process

	networks          []*Network
	requests, watches http.RoundTripper
	// distrusts reports whether certificates look invalid to the process. It isn't called if it is nil.
	distrusts func() bool
}

// connect returns a process's connection to the API server.
func (p *process) connect(networks ...*Network) *connection {
	c := &connection{process: p, networks: networks}
	c.requests = p.world.API.Transport(p.Name, p.alive, c.intercept)
	c.watches = p.world.API.Transport(p.Name, p.watching, c.intercept)
	return c
}

// config returns the configuration of an API client with the connection.
func (c *connection) config() *rest.Config {
	return &rest.Config{Host: host, UserAgent: c.Name, Transport: c, Dial: c.dial, Proxy: noProxy}
}

// intercept takes the time of a request, and has it meet with the faults of the network and with hooks.
func (c *connection) intercept(q *apiserver.Request) error {
	e := requestEvent(c.Name, q)
	switch q.Phase {
	case apiserver.Arrives:
		if err := c.world.travel(q.Context(), c.networks); err != nil {
			return err
		}
		return c.happen(q.Context(), e)
	case apiserver.Answered:
		e.Done = true
	case apiserver.Delivers:
		e.Delivered = true
	}
	if err := c.happen(q.Context(), e); err != nil {
		return err
	}
	return pass(q.Context(), c.networks)
}

// RoundTrip implements [http.RoundTripper].
func (c *connection) RoundTrip(q *http.Request) (*http.Response, error) {
	info, err := requests.NewRequestInfo(q)
	if err != nil {
		return nil, fmt.Errorf("understand a request: %w", err)
	}
	switch {
	case !info.IsResourceRequest && info.Path != "/version":
		// Discovery takes no time: controller-runtime's mapper holds a mutex meanwhile, for which no virtual time passes.
		if err := now(c.networks); err != nil {
			return nil, err
		}
		return c.requests.RoundTrip(q)
	case info.Verb != "watch":
		return c.requests.RoundTrip(q)
	}
	ctx, lose := context.WithCancelCause(q.Context())
	response, err := c.watches.RoundTrip(q.WithContext(ctx))
	if err != nil {
		lose(err)
		return nil, err
	}
	go c.follow(ctx, lose)
	response.Body = &watch{ReadCloser: response.Body, close: lose}
	return response, nil
}

// watch is the body of a watch.
type watch struct {
	io.ReadCloser

	close context.CancelCauseFunc
}

// Read ends without an error, because client-go's filtered watches can leak a goroutine after one.
func (w *watch) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

func (w *watch) Close() error {
	defer w.close(nil)
	return w.ReadCloser.Close()
}

// follow ends a watch whose connection is lost.
func (c *connection) follow(ctx context.Context, lose context.CancelCauseFunc) {
	for ctx.Err() == nil {
		var changes []<-chan struct{}
		for _, n := range c.networks {
			_, changed := n.Reach()
			changes = append(changes, changed)
		}
		if err := pass(ctx, c.networks); err != nil {
			lose(err)
			return
		}
		if !anyOf(ctx, changes, forever) {
			return
		}
	}
}

// anyOf waits for one of at most five changes, or for a time. It returns false if ctx ends.
func anyOf(ctx context.Context, changes []<-chan struct{}, most time.Duration) bool {
	var five [5]<-chan struct{}
	copy(five[:], changes)
	var passed <-chan time.Time
	if most != forever {
		passed = time.After(most)
	}
	select {
	case <-ctx.Done():
		return false
	case <-five[0]:
	case <-five[1]:
	case <-five[2]:
	case <-five[3]:
	case <-five[4]:
	case <-passed:
	}
	return true
}

const forever = time.Duration(math.MaxInt64)

// now returns an error if packets don't pass through all networks now.
func now(networks []*Network) error {
	for _, n := range networks {
		if reach, _ := n.Reach(); reach != Up {
			return errRefused // after a lost connection, the client would wait before its next try, while the mapper holds its mutex
		}
	}
	return nil
}

// dial returns a new connection, on which the API server answers one request.
func (c *connection) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if c.alive.Err() != nil {
		return nil, errCrashed
	}
	if err := c.world.travel(ctx, c.networks); err != nil {
		return nil, err
	}
	if c.distrusts != nil && c.distrusts() {
		return nil, &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}
	}
	ours, theirs := net.Pipe()
	go func() { //nolint:contextcheck // a connection outlives the dialing
		defer theirs.Close()
		q, err := http.ReadRequest(bufio.NewReader(theirs))
		if err != nil {
			return
		}
		q.RequestURI, q.URL.Scheme, q.URL.Host = "", "http", q.Host
		ctx, stop := context.WithTimeout(c.alive, lostAfter)
		defer stop()
		response, err := c.RoundTrip(q.WithContext(ctx))
		if err != nil {
			return
		}
		defer response.Body.Close()
		_ = response.Write(theirs)
	}()
	return ours, nil
}

func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

// travel takes the time of a request.
func (w *World) travel(ctx context.Context, networks []*Network) error {
	select {
	case <-time.After(w.latency()):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return pass(ctx, networks)
}
