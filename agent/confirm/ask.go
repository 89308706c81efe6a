// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package confirm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"k8s.io/client-go/rest"
)

// Response is how the API server responded.
type Response int

const (
	// Silent means that nothing came back.
	Silent Response = iota
	// Refused means that its host refused the connection: the network works, but the API server doesn't run.
	Refused
	// Responded means that it responded, with any status.
	Responded
)

// Asker returns a function that requests the version of the API server, over a new connection each time. Every client may
// request it.
func Asker(config *rest.Config) (func(context.Context) Response, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("configure TLS to the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the API server's URL: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true, Proxy: config.Proxy, DialContext: config.Dial}
	if transport.Proxy == nil {
		transport.Proxy = http.ProxyFromEnvironment
	}
	client := &http.Client{Transport: transport}
	url := base.JoinPath("version").String()
	return func(ctx context.Context) Response {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return Silent
		}
		response, err := client.Do(request)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return Refused
		}
		if err != nil {
			return Silent
		}
		defer func() { _ = response.Body.Close() }()
		_, _ = io.CopyN(io.Discard, response.Body, 1<<10)
		return Responded
	}, nil
}
