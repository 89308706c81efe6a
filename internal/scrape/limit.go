// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package scrape

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// maxConnections is the maximum number of connections of a server. A few scrapers and the kubelet have less than ten.
const maxConnections = 256

// connections are the open connections of a server. Every pod can open some, without a token. With too many, the first one of
// the host with the most of them is closed, so that neither a scrape nor the kubelet's probe has to wait for a free one.
type connections struct {
	most int

	mu    sync.Mutex
	order uint64
	open  map[net.Conn]opened
	of    map[string]int // by host
}

// opened is a connection's host, and its place in the order in which connections were opened.
type opened struct {
	host  string
	order uint64
}

// changed is a [http.Server.ConnState].
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if excess := c.add(conn); excess != nil {
			_ = plain(excess).Close() // the server notices
		}
	case http.StateClosed, http.StateHijacked:
		c.remove(conn)
	case http.StateActive, http.StateIdle:
	}
}

// plain returns the connection below TLS, whose Close would first write to a client that perhaps doesn't read. The server accepts
// nothing meanwhile.
func plain(conn net.Conn) net.Conn {
	if encrypted, is := conn.(*tls.Conn); is {
		return encrypted.NetConn()
	}
	return conn
}

// add adds a connection, and returns the one to close, or nil.
func (c *connections) add(conn net.Conn) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.of = map[net.Conn]opened{}, map[string]int{}
	}
	host := hostOf(conn)
	c.order++
	c.open[conn] = opened{host, c.order}
	c.of[host]++
	if len(c.open) <= c.most {
		return nil
	}
	var first net.Conn
	for other, is := range c.open {
		if other != conn && (first == nil || c.earlier(is, c.open[first])) {
			first = other
		}
	}
	c.forget(first)
	return first
}

// earlier reports whether a connection is to be closed earlier than another one.
func (c *connections) earlier(a, b opened) bool {
	if c.of[a.host] != c.of[b.host] {
		return c.of[a.host] > c.of[b.host]
	}
	return a.order < b.order
}

func (c *connections) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(conn)
}

// forget removes a connection, unless it was removed. The caller holds mu.
func (c *connections) forget(conn net.Conn) {
	is, found := c.open[conn]
	if !found {
		return
	}
	delete(c.open, conn)
	if c.of[is.host]--; c.of[is.host] == 0 {
		delete(c.of, is.host)
	}
}

// hostOf returns the address of a connection's client without the port.
func hostOf(conn net.Conn) string {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
