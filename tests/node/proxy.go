// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
)

// Proxy runs an HTTP proxy at an address of the node until EndProxy is called, or the context ends. It connects clients
// that ask for one target to another one. It returns the number of connections by requested target.
func Proxy(ctx context.Context, address, target, instead string) (_ map[string]int, err error) {
	control, err := listenForEnd(ctx, "proxy-"+address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("run a proxy: %w", err)
	}
	var mutex sync.Mutex
	requested := map[string]int{}
	proxy := goproxy.NewProxyHttpServer()
	proxy.ConnectDial = func(network, addr string) (net.Conn, error) {
		mutex.Lock()
		requested[addr]++
		mutex.Unlock()
		if addr == target {
			addr = instead
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case <-control.called:
	case <-ctx.Done():
	}
	err = server.Close()
	if failure := <-served; !errors.Is(failure, http.ErrServerClosed) {
		err = errors.Join(err, failure)
	}
	mutex.Lock()
	defer mutex.Unlock()
	return requested, err
}

// EndProxy ends the proxy at an address.
func EndProxy(ctx context.Context, address string) error { return end(ctx, "proxy-"+address) }
