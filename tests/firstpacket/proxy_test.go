// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package firstpacket

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// proxy forwards connections to the API server, until it is away.
type proxy struct {
	address, server string

	mu       sync.Mutex
	listener net.Listener
	open     []net.Conn
}

// newProxy returns a proxy, and a configuration of clients that use it.
func newProxy(tb testing.TB, config *rest.Config) (*proxy, *rest.Config) {
	tb.Helper()
	server, _, err := rest.DefaultServerUrlFor(config)
	must.Succeed(tb, err)
	p := &proxy{address: "127.0.0.1:0", server: server.Host}
	p.back(tb)
	tb.Cleanup(p.away)
	through := rest.CopyConfig(config)
	through.Host = "https://" + p.address
	return p, through
}

// back has the proxy forward connections.
func (p *proxy) back(tb testing.TB) {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", p.address)
	must.Succeed(tb, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener, p.address = listener, listener.Addr().String()
	go p.serve(context.WithoutCancel(tb.Context()), listener)
}

func (p *proxy) serve(ctx context.Context, listener net.Listener) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return // it is away
		}
		to, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.server)
		if err != nil {
			_ = from.Close() // the client sees it
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, from, to)
		p.mu.Unlock()
		for _, ends := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(ends[0], ends[1]) // until one of them is closed
				_ = ends[0].Close()
			}()
		}
	}
}

// away ends all connections, and refuses others.
func (p *proxy) away() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.listener.Close() // fails if it is already away
	for _, conn := range p.open {
		_ = conn.Close()
	}
	p.open = nil
}
