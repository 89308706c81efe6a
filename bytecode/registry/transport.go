// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

const (
	// MaxManifest is the maximum size of a manifest or a list of referrers, in bytes.
	// Registries have the same limit.
	MaxManifest = 4 << 20
	// headerDeadline bounds the time until a registry starts to respond, and each step
	// before.
	headerDeadline = 5 * time.Second
	// maxHeaders is the maximum size of a response's headers, in bytes.
	maxHeaders = 64 << 10
	// maxWait is how long a registry that says that it is busy isn't asked, at most.
	maxWait = time.Hour
	// maxRedirects is the maximum number of redirects for a request.
	maxRedirects = 5
	// grace is how long a response may take regardless of its size. Afterwards, it must
	// have arrived with the rate minRate on average, in bytes per second.
	grace   = 3 * time.Second
	minRate = 4 << 10
)

// errNoTLS means that the request itself isn't for https. The library also tries http for
// hosts that seem local.
var errNoTLS = problem.Errorf(problem.RegistryWithoutTLS, "the connection doesn't use TLS")

// refusedError means that a registry does something that this package doesn't accept. The
// text continues a sentence about the registry.
type refusedError struct {
	reason problem.Reason
	text   string
}

func (e *refusedError) Error() string { return "the registry " + e.text }

// Options are the options of a Transport. Zero values are for reading images.
type Options struct {
	// RootCAs are the trusted certificate authorities, instead of the system's.
	RootCAs *x509.CertPool
	// Limit is the maximum size of a response, in bytes, instead of MaxManifest.
	Limit int64
	// HeaderDeadline bounds the time until the registry starts to respond.
	HeaderDeadline time.Duration
}

// Transport carries requests to one registry, which isn't trusted. It limits the size and
// the duration of responses. It requires TLS, also for redirects, and doesn't send
// credentials to where a redirect leads. Only if the user's reference names this machine,
// a request can be for one of the machine's addresses.
type Transport struct {
	base    *http.Transport
	host    string // without the port
	limit   int64
	proxies sync.Map // addresses of proxies
	// wait is how long the registry asked to wait, in a response that says that it is busy.
	wait atomic.Int64 // time.Duration
}

// NewTransport returns a transport for the registry with the given host, which can have a
// port.
func NewTransport(host string, o Options) *Transport {
	t := &Transport{host: canonical((&url.URL{Host: host}).Hostname()), limit: o.Limit}
	if t.limit == 0 {
		t.limit = MaxManifest
	}
	if o.HeaderDeadline == 0 {
		o.HeaderDeadline = headerDeadline
	}
	t.base = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            t.dial,
		TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    headerDeadline,
		ResponseHeaderTimeout:  o.HeaderDeadline,
		MaxResponseHeaderBytes: maxHeaders,
		ForceAttemptHTTP2:      true,
		// Sizes are those of the content.
		DisableCompression: true,
	}
	return t
}

// CloseIdleConnections closes the connections to the registry.
func (t *Transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// RoundTrip sends a request, and follows redirects of requests without a body.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, errNoTLS
	}
	asked := request.URL.Host
	for redirects := 0; ; redirects++ {
		response, err := t.send(request)
		if err != nil {
			return nil, err
		}
		location := response.Header.Get("Location")
		if location == "" || !redirects3xx[response.StatusCode] || request.Method != http.MethodGet && request.Method != http.MethodHead {
			limit := t.limit
			if own, ok := request.Context().Value(limitKey{}).(int64); ok {
				limit = own
			}
			response.Body = http.MaxBytesReader(nil, response.Body, limit)
			// A host that a repository redirects to doesn't speak for the registry, which has other users.
			if isBusy(response.StatusCode) && request.URL.Host == asked {
				t.wait.Store(int64(retryAfter(response.Header.Get("Retry-After"), time.Now())))
			}
			return response, nil
		}
		_ = response.Body.Close() // it isn't read
		if redirects == maxRedirects {
			return nil, &refusedError{problem.RegistryRedirects, "redirects too often"}
		}
		if request, err = redirected(request, location); err != nil {
			return nil, err
		}
	}
}

var redirects3xx = map[int]bool{
	http.StatusMovedPermanently: true, http.StatusFound: true, http.StatusSeeOther: true,
	http.StatusTemporaryRedirect: true, http.StatusPermanentRedirect: true,
}

// isBusy reports whether a status can come with the time at which the server accepts requests again.
func isBusy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// retryAfter parses the header of that name (RFC 9110): a number of seconds, or a date. It returns at most maxWait, and 0 for
// what isn't valid or is over.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxWait)
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, min(at.Sub(now), maxWait))
	}
	return 0
}

// redirected returns the request for the target of a redirect.
func redirected(request *http.Request, location string) (*http.Request, error) {
	target, err := request.URL.Parse(location)
	switch {
	case err != nil || target.Host == "":
		return nil, &refusedError{problem.RegistryRedirects, "redirects to an invalid address"}
	case target.Scheme != "https":
		return nil, &refusedError{problem.RegistryWithoutTLS, "redirects to an address without TLS"}
	}
	next := request.Clone(request.Context())
	target.User, target.Fragment = nil, ""
	if target.Host != request.URL.Host {
		next.Header.Del("Authorization")
		next.Header.Del("Cookie")
	}
	next.URL, next.Host = target, ""
	return next, nil
}

// send sends a single request.
func (t *Transport) send(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request.Context())
	request = request.WithContext(ctx)
	proxy, err := t.base.Proxy(request)
	if err == nil && proxy != nil {
		t.proxies.Store(proxyAddress(proxy), true)
		err = t.allowedName(ctx, request.URL.Hostname())
	}
	if err != nil {
		cancel()
		return nil, err
	}
	response, err := t.base.RoundTrip(request)
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = pace(response.Body, cancel)
	return response, nil
}

func proxyAddress(proxy *url.URL) string {
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[proxy.Scheme]
	}
	return strings.ToLower(proxy.Hostname()) + ":" + port
}

// paced is a body that must arrive with a minimum rate.
type paced struct {
	body   io.ReadCloser
	cancel context.CancelFunc
	timer  *time.Timer
	start  time.Time
	n      int64
	slow   atomic.Bool
}

func pace(body io.ReadCloser, cancel context.CancelFunc) *paced {
	p := &paced{body: body, cancel: cancel, start: time.Now()}
	p.timer = time.AfterFunc(grace, func() {
		p.slow.Store(true)
		cancel()
	})
	return p
}

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	p.n += int64(n)
	switch {
	case p.slow.Load(): // first, as a canceled response can seem to be at its end
		err = &refusedError{problem.RegistrySlow, "is too slow"}
	case errors.Is(err, io.EOF):
		p.timer.Stop()
	case err == nil:
		p.timer.Reset(time.Until(p.start.Add(grace + time.Duration(p.n)*time.Second/minRate)))
	}
	return n, err
}

func (p *paced) Close() error {
	p.timer.Stop()
	err := p.body.Close()
	p.cancel()
	return err
}

// limitKey is the context key for the maximum size of a response, in bytes.
type limitKey struct{}

func within(ctx context.Context, limit int64) context.Context {
	return context.WithValue(ctx, limitKey{}, limit)
}
