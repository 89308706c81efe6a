// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"
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

// pass waits until packets pass through all networks, and returns an error if nothing listens, or if they were lost for too
// long. Lost packets are sent again.
func pass(ctx context.Context, networks []*Network) error {
	var lost <-chan time.Time
	for {
		var changed <-chan struct{}
		up := true
		for _, n := range networks {
			reach, next := n.Reach()
			switch reach {
			case Refusing:
				return errRefused
			case Silent:
				up, changed = false, next
			case Up:
			}
		}
		if up {
			return nil
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
	// discovers means that discovery takes no time: controller-runtime's mapper holds a mutex meanwhile, and virtual time
	// doesn't pass while another goroutine waits for that.
	discovers bool
}

// RoundTrip implements [http.RoundTripper].
func (c *connection) RoundTrip(q *http.Request) (*http.Response, error) {
	ctx, stop := context.WithCancelCause(q.Context())
	end := context.AfterFunc(c.alive, func() { stop(errCrashed) })
	body, err := c.send(q.WithContext(ctx)) //nolint:bodyclose // it is returned
	if err != nil {
		end()
		stop(err)
		return nil, err
	}
	body.Body = &stream{ReadCloser: body.Body, close: func() { end(); stop(nil) }}
	return body, nil
}

// stream is the body of a response.
type stream struct {
	io.ReadCloser

	close func()
}

func (s *stream) Close() error {
	defer s.close()
	return s.ReadCloser.Close()
}

func (c *connection) send(q *http.Request) (*http.Response, error) {
	ctx := q.Context()
	e := requestEvent(c.Name, q)
	if c.discovers && e.Resource == "" {
		return c.discover(q)
	}
	next := c.requests
	if e.Verb == "watch" {
		next = c.watches
		if c.watching.Err() != nil {
			return nil, errCrashed
		}
	}
	if err := c.world.travel(ctx, c.networks); err != nil {
		return nil, err
	}
	if err := c.happen(ctx, e); err != nil {
		return failed(q, err)
	}
	watch, lose := context.WithCancelCause(ctx)
	response, err := next.RoundTrip(q.WithContext(watch)) //nolint:bodyclose // it is returned
	if err != nil {
		lose(err)
		return nil, err
	}
	e.Done = true
	err = c.happen(ctx, e)
	if err == nil {
		err = pass(ctx, c.networks)
	}
	if err != nil {
		lose(err)
		_ = response.Body.Close()
		return failed(q, err)
	}
	if e.Verb == "watch" {
		go c.follow(watch, lose)
		response.Body = &arriving{ReadCloser: response.Body, ctx: watch, networks: c.networks}
	}
	response.Body = &stream{ReadCloser: response.Body, close: func() { lose(nil) }}
	return response, nil
}

// discover answers immediately, or not at all.
func (c *connection) discover(q *http.Request) (*http.Response, error) {
	for _, n := range c.networks {
		if reach, _ := n.Reach(); reach != Up {
			return nil, errRefused // after a lost connection, the client would wait before its next try
		}
	}
	return c.requests.RoundTrip(q)
}

// follow ends a watch whose connection is lost.
func (c *connection) follow(watch context.Context, lose context.CancelCauseFunc) {
	for watch.Err() == nil {
		if err := pass(watch, c.networks); err != nil {
			lose(err)
			return
		}
		if !anyChange(watch, c.networks) {
			return
		}
	}
}

// anyChange waits until one of the networks changes. It returns false if ctx ends.
func anyChange(ctx context.Context, networks []*Network) bool {
	changes := [2]<-chan struct{}{}
	for i, n := range networks {
		_, changes[i] = n.Reach()
	}
	select {
	case <-changes[0]:
	case <-changes[1]:
	case <-ctx.Done():
		return false
	}
	return true
}

// arriving is the body of a watch, whose events arrive when packets pass.
type arriving struct {
	io.ReadCloser

	ctx      context.Context //nolint:containedctx // of the request
	networks []*Network
}

func (b *arriving) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		if lost := pass(b.ctx, b.networks); lost != nil {
			return 0, io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// dial returns a new connection, on which the API server answers one request.
func (c *connection) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if c.alive.Err() != nil {
		return nil, errCrashed
	}
	if err := c.world.travel(ctx, c.networks); err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	go func() {
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
