// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// serve starts a TLS server on an address. The certificate is for 127.0.0.1, ::1, and
// example.com.
func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// to returns a transport for the server.
func to(t *testing.T, server *httptest.Server) *Transport {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	own := NewTransport(server.Listener.Addr().String(), Options{RootCAs: pool})
	t.Cleanup(own.CloseIdleConnections)
	return own
}

// get requests a path with credentials, and returns the body.
func get(t *testing.T, through http.RoundTripper, address string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Basic dXNlcjpodW50ZXIy")
	response, err := through.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// A redirect leads neither to a connection without TLS, nor in circles.
func TestRedirects(t *testing.T) {
	var plain atomic.Int64
	listener := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { plain.Add(1) }))
	defer listener.Close()
	var server *httptest.Server
	server = serve(t, func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/end":
			_, _ = io.WriteString(w, "end "+q.Header.Get("Authorization"))
		case "/same":
			http.Redirect(w, q, "/end", http.StatusFound)
		case "/http":
			http.Redirect(w, q, listener.URL, http.StatusFound)
		case "/file":
			http.Redirect(w, q, "file:///etc/shadow", http.StatusFound)
		case "/invalid":
			w.Header().Set("Location", "https://%zz/")
			w.WriteHeader(http.StatusFound)
		case "/nowhere":
			w.WriteHeader(http.StatusFound)
		case "/user":
			http.Redirect(w, q, "https://user:password@"+server.Listener.Addr().String()+"/end", http.StatusFound)
		default:
			http.Redirect(w, q, "/circle", http.StatusTemporaryRedirect)
		}
	})
	through := to(t, server)
	for path, want := range map[string]string{
		"/same": "end Basic dXNlcjpodW50ZXIy", "/user": "end Basic dXNlcjpodW50ZXIy", "/nowhere": "",
		"/http": "the registry redirects to an address without TLS", "/file": "the registry redirects to an invalid address",
		"/invalid": "the registry redirects to an invalid address", "/circle": "the registry redirects too often",
	} {
		got, err := get(t, through, server.URL+path)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if plain.Load() != 0 {
		t.Error("a request was sent without TLS")
	}
	if _, err := get(t, through, "http://"+server.Listener.Addr().String()); !errors.Is(err, errNoTLS) {
		t.Error(err)
	}
}

// Another host, or another port, doesn't get the credentials.
func TestCredentialsStay(t *testing.T) {
	echo := serve(t, func(w http.ResponseWriter, q *http.Request) { _, _ = io.WriteString(w, q.Header.Get("Authorization")) })
	server := serve(t, func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, echo.URL, http.StatusFound) })
	if got, err := get(t, to(t, server), server.URL); err != nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
}

// A registry can't lead to this machine, unless the user's reference does.
func TestOwnAddresses(t *testing.T) {
	var asked atomic.Int64
	echo := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, err := net.SplitHostPort(echo.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	through := NewTransport("registry.example:443", Options{})
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "[::]", "169.254.169.254", "[fe80::1]", "LOCALHOST", "224.0.0.1"} {
		_, err := get(t, through, "https://"+host+":"+port)
		if refused, ok := errors.AsType[*refusedError](err); !ok || !strings.Contains(refused.text, "an address of this machine or its links") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if asked.Load() != 0 {
		t.Error("there was a request")
	}
}

func TestAllowed(t *testing.T) {
	for address, want := range map[string]bool{
		"10.0.0.1": true, "192.0.2.1": true, "2001:db8::1": true, "127.1.2.3": false, "0.1.2.3": false, "169.254.1.1": false,
		"fe80::1": false, "ff02::1": false, "::": false, "::1": false, "::ffff:169.254.169.254": false,
		// Metadata services of clouds.
		"fd00:ec2::254": false, "fd20:ce::254": false, "100.100.100.200": false, "168.63.129.16": false, "192.0.0.192": false,
		"fd00:ec2::253": true, "100.100.100.201": true,
		// IPv4 addresses within IPv6.
		"64:ff9b::192.0.2.1": true, "64:ff9b::169.254.169.254": false, "64:ff9b::127.0.0.1": false, "64:ff9b::100.100.100.200": false, "64:ff9b:1::169.254.169.254": false,
		"::169.254.169.254": false, "::192.0.2.1": false,
	} {
		if got := allowed(netip.MustParseAddr(address)) == nil; got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if allowed(netip.MustParsePrefix(a.String()).Addr()) == nil {
			t.Errorf("%s is allowed", a)
		}
	}
}

// A proxy can be on this machine, but it isn't asked for an address of this machine.
func TestProxy(t *testing.T) {
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	through := NewTransport("registry.example", Options{})
	through.base.Proxy = http.ProxyURL(address)
	for host, want := range map[string]int64{"127.0.0.1": 0, "localhost": 0, "169.254.169.254": 0, "registry.example": 1, "unknown.invalid": 1} {
		asked.Store(0)
		if _, err := get(t, through, "https://"+host+"/"); err == nil {
			t.Errorf("%s: no error", host)
		}
		if got := asked.Load(); got != want {
			t.Errorf("%s: %d requests, want %d", host, got, want)
		}
	}
}

// A registry that sends a byte at a time holds the process for seconds only.
func TestDrip(t *testing.T) {
	for name, c := range map[string]struct {
		size int // of what arrives twenty times a second, in bytes
		slow bool
	}{"a byte": {1, true}, "less than the rate": {minRate / 40, true}, "more than the rate": {minRate / 10, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body, server := io.Pipe()
				var sender sync.WaitGroup
				defer sender.Wait()
				sender.Go(func() {
					for range 600 { // half a minute
						if _, err := server.Write(make([]byte, c.size)); err != nil {
							return
						}
						<-time.After(50 * time.Millisecond)
					}
					_ = server.Close()
				})
				start, canceled := time.Now(), false
				_, err := io.ReadAll(pace(body, func() {
					canceled = true
					_ = body.CloseWithError(context.Canceled)
				}))
				took := time.Since(start)
				if c.slow && (err == nil || err.Error() != "the registry is too slow" || !canceled || took < grace || took > 2*grace) || !c.slow && (err != nil || canceled) {
					t.Errorf("%v after %s, canceled: %t", err, took, canceled)
				}
			})
		})
	}
}

func TestLimits(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/headers" {
			w.Header().Set("X", strings.Repeat("x", 2*maxHeaders))
		}
		_, _ = w.Write(make([]byte, MaxManifest+1))
	})
	_, err := get(t, to(t, server), server.URL)
	if long, ok := errors.AsType[*http.MaxBytesError](err); !ok || long.Limit != MaxManifest {
		t.Error(err)
	}
	if _, err := get(t, to(t, server), server.URL+"/headers"); err == nil {
		t.Error("no error")
	}
}

// The header has a number of seconds, or a date.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "0": 0, "120": 2 * time.Minute, "-1": 0, "1.5": 0, "4294967295": maxWait, "99999999999999999999": 0, "x": 0,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0, now.AddDate(1, 0, 0).Format(http.TimeFormat): maxWait,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

// A registry can ask to wait, and a host that one of its repositories redirects to can't.
func TestRetryAfterARedirect(t *testing.T) {
	busy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	elsewhere := serve(t, busy)
	server := serve(t, func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/elsewhere":
			http.Redirect(w, q, elsewhere.URL, http.StatusFound)
		case "/here":
			http.Redirect(w, q, "/busy", http.StatusFound)
		default:
			busy(w, q)
		}
	})
	for path, want := range map[string]time.Duration{"/busy": time.Minute, "/here": time.Minute, "/elsewhere": 0} {
		through := to(t, server)
		if _, err := get(t, through, server.URL+path); err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(through.wait.Load()); got != want {
			t.Errorf("%s: wait %s, want %s", path, got, want)
		}
	}
}

// Errors in Go's words name their problems too.
func TestProblemsOfConnections(t *testing.T) {
	r, err := parse("registry.example/acme/xdp:v1")
	if err != nil {
		t.Fatal(err)
	}
	r.wire = NewTransport(r.name.RegistryStr(), Options{})
	for err, want := range map[error]problem.Reason{
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}: problem.CertificateUntrusted,
		http.ErrSchemeMismatch: problem.RegistryWithoutTLS,
		errNoTLS:               problem.RegistryWithoutTLS,
		&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}: problem.RegistryUnreachable,
		&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}:  problem.RegistryUnreachable,
		&refusedError{problem.RegistrySlow, "is too slow"}:                                 problem.RegistrySlow,
		errors.New("unknown"): "",
	} {
		if got := problem.Of(r.told(&url.Error{Op: "Get", URL: "https://x/", Err: err})); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// Users are told what is wrong, without addresses and bodies.
func TestTold(t *testing.T) {
	r, err := parse("registry.example/acme/xdp:v1")
	if err != nil {
		t.Fatal(err)
	}
	r.wire = NewTransport(r.name.RegistryStr(), Options{})
	const host = "registry registry.example:443"
	wrapped := func(err error) error { return &url.Error{Op: "Get", URL: "https://x/?token=s3cr3t", Err: err} }
	for want, err := range map[string]error{
		host + ": the name a\\u202eb can't be resolved":                        wrapped(&net.DNSError{Name: "a\u202eb", IsNotFound: true}),
		host + ": the name server doesn't answer for a":                        wrapped(&net.DNSError{Name: "a", IsTimeout: true}),
		host + " redirects too often":                                          wrapped(&refusedError{problem.RegistryRedirects, "redirects too often"}),
		host + " requires credentials (status 401 Unauthorized)":               &transport.Error{StatusCode: 401},
		host + " limits the number of requests (status 429 Too Many Requests)": &transport.Error{StatusCode: 429},
		host + " answers with status 500 Internal Server Error":                &transport.Error{StatusCode: 500},
		ErrAbsent.Error():                            &transport.Error{StatusCode: 404},
		host + `: some\x1b text`:                     wrapped(wrapped(errors.New("some\x1b text"))),
		host + ": " + strings.Repeat("x", 200) + "…": errors.New(strings.Repeat("x", 9999)),
	} {
		if got := r.told(err); got.Error() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r.authenticated = true
	if got := r.told(&transport.Error{StatusCode: 403}); got.Error() != host+" refuses the credentials (status 403 Forbidden)" {
		t.Error(got)
	}
	listener := httptest.NewServer(http.NotFoundHandler())
	address := listener.Listener.Addr().String()
	listener.Close()
	if _, err := Open(t.Context(), address+"/acme/xdp", "", ""); err == nil || err.Error() != "registry "+address+" refuses connections" {
		t.Error(err)
	}
	server := serve(t, http.NotFound)
	address = server.Listener.Addr().String()
	if _, err := Open(t.Context(), address+"/acme/xdp", "", ""); err == nil || !strings.Contains(err.Error(), "x509: certificate signed by unknown authority") {
		t.Error(err)
	}
}
