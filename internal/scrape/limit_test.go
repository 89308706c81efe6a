// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package scrape

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// from is a connection from an address.
type from struct {
	net.Conn
	address string
	closed  bool
}

func (c *from) RemoteAddr() net.Addr { return address(c.address) }

func (c *from) Close() error {
	c.closed = true
	return nil
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// With too many connections, the host with the most loses one, and a new one is never refused.
func TestConnectionsOfEachHost(t *testing.T) {
	c := &connections{most: 4}
	var all []*from
	open := func(host string) {
		conn := &from{address: net.JoinHostPort(host, fmt.Sprint(1000+len(all)))}
		all = append(all, conn)
		c.changed(conn, http.StateNew)
		c.changed(conn, http.StateActive)
		if conn.closed {
			t.Errorf("the connection %d is refused", len(all)-1)
		}
	}
	closed := func(want ...int) {
		t.Helper()
		var got []int
		for i, conn := range all {
			if conn.closed {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the connections %v are closed, want %v", got, want)
		}
	}
	for _, host := range []string{"10.0.0.1", "10.0.0.9", "10.0.0.9", "fd00::1"} { // a scraper, a tenant's pod, and the kubelet
		open(host)
	}
	closed()
	open("10.0.0.9")
	closed(1)
	open("10.0.0.2")
	closed(1, 2)
	open("10.0.0.3") // each has one
	closed(0, 1, 2)
	c.changed(all[0], http.StateClosed) // the server notices
	c.changed(all[3], http.StateClosed)
	open("10.0.0.4")
	closed(0, 1, 2)
	for _, conn := range all {
		c.changed(conn, http.StateClosed)
	}
	if len(c.open)+len(c.of) > 0 {
		t.Errorf("left: %v, %v", c.open, c.of)
	}
}

// A host that keeps connections open doesn't keep others out of the server.
func TestManyConnections(t *testing.T) {
	server := Server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.ConnState = (&connections{most: 8}).changed
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var first net.Conn
	for n := range 20 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if n == 0 {
			first = conn
		}
	}
	_ = first.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := first.Read(make([]byte, 1)); err == nil || n > 0 || isTimeout(err) {
		t.Errorf("the first connection is still open: %v", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener.Addr().String()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
}

// The connection of a client that doesn't read is closed without a message to it, for which the server would wait.
func TestASilentClientIsCutOff(t *testing.T) {
	certified, err := TLS("bpfman-csi")
	if err != nil {
		t.Fatal(err)
	}
	certified.SessionTicketsDisabled = true // the server writes them to the client, too
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		encrypted := tls.Server(server, certified)
		ended := make(chan error, 1)
		go func() {
			ended <- tls.Client(client, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context())
		}()
		err := encrypted.HandshakeContext(t.Context())
		if err = errors.Join(err, <-ended); err != nil {
			t.Fatal(err)
		}
		c, start := &connections{most: 1}, time.Now()
		c.changed(encrypted, http.StateNew)
		c.changed(&from{address: "10.0.0.2:1"}, http.StateNew)
		if waited := time.Since(start); waited > 0 {
			t.Errorf("the server waited for %v", waited)
		}
	})
}

func isTimeout(err error) bool {
	timeout, is := err.(net.Error) //nolint:errorlint // of a connection
	return is && timeout.Timeout()
}
