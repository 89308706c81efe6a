// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package confirm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// Response is what came back from an API server.
type Response int

const (
	// Silent means that nothing came back.
	Silent Response = iota
	// Reached means that the network works, but that no API server responded: its host refused the connection, or TLS failed,
	// for example because the node's clock is wrong.
	Reached
	// Responded means that an API server responded, with any status.
	Responded
)

// responseOf returns what an error of a request shows about the network. A connection that breaks shows nothing: a network
// program can cause that.
func responseOf(err error) Response {
	var (
		untrusted *tls.CertificateVerificationError
		failed    *net.OpError
	)
	switch {
	case err == nil:
		return Responded
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &untrusted):
		return Reached
	case errors.As(err, &failed) && failed.Op == "remote error": // crypto/tls: an alert of the peer
		return Reached
	}
	return Silent
}

// Asker sends requests to API servers. It can be used concurrently.
type Asker struct {
	config *rest.Config
	base   *url.URL
	// known are the API servers of the cluster.
	known *servers
	// tls is the last TLS configuration that could be read.
	tls atomic.Pointer[tls.Config]
}

// NewAsker returns an Asker with the configuration of a client. File remembers the addresses of the API servers for the next
// process, or is "".
func NewAsker(config *rest.Config, file string) (*Asker, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the API server's URL: %w", err)
	}
	a := &Asker{config: config, base: base, known: openServers(file)}
	certificates, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("configure TLS to the API server: %w", err)
	}
	a.tls.Store(certificates)
	return a, nil
}

// Ask sends requests over new connections. On a node with an API server, a response of that one doesn't show that the network
// works. If there are others, one of them must respond, unless they didn't before the change either: see Prepare.
func (a *Asker) Ask(ctx context.Context) Response {
	a.reload(ctx)
	peers := a.known.peers()
	enough, stop := context.WithCancel(ctx)
	defer stop()
	var listed Response
	var asking sync.WaitGroup
	asking.Go(func() { listed = a.list(enough) })
	response := a.versions(enough, peers, stop)
	asking.Wait()
	switch {
	case len(peers) == 0 && len(a.known.peers()) > 0: // listed for the first time
		return a.Ask(ctx)
	case response != Silent:
		a.known.setHeard(ctx, true)
	case len(peers) == 0 || !a.known.hasHeard():
		return listed
	}
	return response
}

// Prepare lists the API servers, and finds out whether those on other nodes respond to a node with one, before a change can
// prevent it. On networks on which control plane nodes can't reach each other's API server, no change would be confirmed.
// Unchanged reports whether no change has begun when the requests have ended: then their silence says nothing. Prepare returns
// false if it has to be repeated soon: the servers can't be listed, or are silent at the moment.
func (a *Asker) Prepare(ctx context.Context, unchanged func() bool) bool {
	a.reload(ctx)
	short, end := context.WithTimeout(ctx, patience/2) //nolint:mnd // the rest is for the others
	listed := a.list(short) == Responded
	end()
	peers := a.known.peers()
	if len(peers) == 0 {
		return listed
	}
	enough, stop := context.WithCancel(ctx)
	defer stop()
	heard := a.versions(enough, peers, stop) != Silent
	if heard || !errors.Is(ctx.Err(), context.Canceled) && unchanged() {
		a.known.setHeard(ctx, heard)
	}
	return heard
}

// versions requests the versions of API servers, and returns the best response. It calls enough when one has responded, which
// ends ctx.
func (a *Asker) versions(ctx context.Context, servers []string, enough func()) Response {
	responses := make([]Response, 1+len(servers)) // the first one is that of nobody
	var asking sync.WaitGroup
	for n, server := range servers {
		asking.Go(func() {
			if responses[1+n] = a.version(ctx, server); responses[1+n] == Responded {
				enough()
			}
		})
	}
	asking.Wait()
	return slices.Max(responses)
}

// reload reads the files of the TLS configuration again. Certificates are replaced while the agent runs.
func (a *Asker) reload(ctx context.Context) {
	config, err := rest.TLSConfigFor(a.config)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to read the certificates for the API server; using the previous ones")
		return
	}
	a.tls.Store(config)
}

// list requests the list of API servers from the cluster's address of them, and remembers it.
func (a *Asker) list(ctx context.Context) Response {
	transport := a.transport()
	transport.Proxy = a.config.Proxy
	if transport.Proxy == nil {
		transport.Proxy = http.ProxyFromEnvironment
	}
	authenticated, err := rest.HTTPWrappersForConfig(a.config, transport)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to authenticate a request for the list of API servers")
		authenticated = transport
	}
	status, body, err := get(ctx, authenticated, a.base.JoinPath(serversPath).String())
	if err == nil && status == http.StatusOK {
		a.known.learn(ctx, body)
	}
	return responseOf(err)
}

// version requests the version of the API server at an address. Every client may request it.
func (a *Asker) version(ctx context.Context, address string) Response {
	transport := a.transport()
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if transport.TLSClientConfig.ServerName == "" { // the certificates of all API servers have the name of the cluster's address
		transport.TLSClientConfig.ServerName = a.base.Hostname()
	}
	_, _, err := get(ctx, transport, "https://"+address+"/version")
	return responseOf(err)
}

func (a *Asker) transport() *http.Transport {
	return &http.Transport{TLSClientConfig: a.tls.Load().Clone(), DisableKeepAlives: true, DialContext: a.config.Dial}
}

// get returns the status and the beginning of the body of a response.
func get(ctx context.Context, transport http.RoundTripper, address string) (status int, body []byte, err error) {
	const most = 1 << 16
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the API server: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the API server: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, _ = io.ReadAll(io.LimitReader(response.Body, most)) // the status is the response
	return response.StatusCode, body, nil
}
