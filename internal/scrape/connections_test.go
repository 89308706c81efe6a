// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package scrape

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are in memory.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client that opens connections, and then doesn't do anything or is slow, can't keep them.
func TestIdleConnectionsEnd(t *testing.T) {
	for name, sends := range map[string]string{
		"nothing":                       "",
		"half of the headers":           "GET /metrics HTTP/1.1\r\nHost: x\r\n",
		"a request":                     "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		"half of a body":                "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf",
		"a request, and doesn't listen": "GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := &pipes{make(chan net.Conn), make(chan struct{})}
				server := Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/large" {
						_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
					}
				}))
				ended := make(chan net.Conn, 1)
				server.ConnState = func(c net.Conn, state http.ConnState) {
					if state == http.StateClosed {
						ended <- c
					}
				}
				go func() { _ = server.Serve(listener) }()
				defer server.Close()
				ours, theirs := net.Pipe()
				defer ours.Close()
				listener.accepted <- theirs
				go func() { _, _ = io.WriteString(ours, sends) }()
				if !strings.Contains(sends, "/large") {
					go func() { _, _ = io.Copy(io.Discard, ours) }()
				}
				select {
				case <-ended:
				case <-time.After(5 * time.Minute):
					t.Error("the connection is still open after five minutes")
				}
			})
		})
	}
}
