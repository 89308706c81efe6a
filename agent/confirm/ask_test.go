// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package confirm

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
)

// authority issues certificates for API servers at 127.0.0.1.
type authority struct {
	t           *testing.T
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.certificate, a.key = a.issue(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)})
	return a
}

// issue signs a certificate, by itself if there is none yet.
func (a *authority) issue(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.IPAddresses = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour), []net.IP{net.IPv4(127, 0, 0, 1)}
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return signed, key
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// apiServer is an API server at an address of the loopback interface. What it serves can be replaced.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex
	serve    http.HandlerFunc
	requests []string
}

// start starts an API server with a certificate that is valid until a time.
func (a *authority) start(address string, until time.Time) *apiServer {
	a.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(a.t.Context(), "tcp", address)
	if err != nil {
		a.t.Fatal(err)
	}
	s := &apiServer{serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }}
	s.Server = &httptest.Server{Listener: listener, Config: &http.Server{
		ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			serve := s.serve
			s.requests = append(s.requests, r.Method+" "+r.URL.Path)
			s.mu.Unlock()
			serve(w, r)
		}),
	}}
	c, key := a.issue(&x509.Certificate{NotAfter: until})
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return s
}

func (s *apiServer) serves(serve http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve = serve
}

// isSilent has the server never respond. Once it was asked, there is no point in waiting.
func (s *apiServer) isSilent(stop func()) {
	s.serves(func(_ http.ResponseWriter, r *http.Request) {
		stop()
		<-r.Context().Done()
	})
}

func (s *apiServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *apiServer) addr() netip.AddrPort { return netip.MustParseAddrPort(s.Listener.Addr().String()) }

// status responds with a status.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// lists responds with the EndpointSlice of API servers, which all have the same port.
func lists(servers ...netip.AddrPort) http.HandlerFunc {
	var slice discoveryv1.EndpointSlice
	for _, s := range servers {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{s.Addr().String()}})
		slice.Ports = []discoveryv1.EndpointPort{{Port: new(int32(s.Port()))}}
	}
	return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(slice) }
}

// client returns the configuration of a client of an API server, which reads its authority from a file.
func client(t *testing.T, s *apiServer, ca []byte) *rest.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: file}}
}

func asker(t *testing.T, config *rest.Config, file string) *Asker {
	t.Helper()
	a, err := NewAsker(config, file)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// expect asks, while some servers don't respond.
func expect(t *testing.T, a *Asker, want Response, silent ...*apiServer) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, s := range silent {
		s.isSilent(stop)
	}
	if got := a.Ask(ctx); got != want {
		t.Errorf("the response is %d, not %d", got, want)
	}
}

// anyPort is an address for an API server.
const anyPort = "127.0.0.1:0"

// Any status is a response. What shows only that the network works isn't one, and isn't silence either.
func TestResponses(t *testing.T) {
	cluster, other := newAuthority(t), newAuthority(t)
	valid := time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		authority *authority
		until     time.Time
		prepare   func(*apiServer)
		want      Response
	}{
		"a status of success": {cluster, valid, func(s *apiServer) { s.serves(status(http.StatusNoContent)) }, Responded},
		"forbidden":           {cluster, valid, func(s *apiServer) { s.serves(status(http.StatusForbidden)) }, Responded},
		"a failure":           {cluster, valid, func(s *apiServer) { s.serves(status(http.StatusInternalServerError)) }, Responded},
		"a connection that breaks": {cluster, valid, func(s *apiServer) {
			s.serves(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		}, Silent},
		"a refused connection":   {cluster, valid, func(s *apiServer) { s.Close() }, Reached},
		"an unknown authority":   {other, valid, func(*apiServer) {}, Reached},
		"an expired certificate": {cluster, time.Now().Add(-time.Hour), func(*apiServer) {}, Reached},
		"an alert": {cluster, valid, func(s *apiServer) {
			s.TLS.ClientAuth, s.TLS.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12 // the alert ends the handshake
		}, Reached},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.authority.start(anyPort, test.until)
			test.prepare(s)
			expect(t, asker(t, client(t, s, cluster.pem()), ""), test.want)
			for _, request := range s.asked() {
				if request != "GET /"+serversPath {
					t.Errorf("it was asked for %s", request)
				}
			}
		})
	}
	t.Run("no response", func(t *testing.T) {
		s := cluster.start(anyPort, valid)
		expect(t, asker(t, client(t, s, cluster.pem()), ""), Silent, s)
	})
}

// A new authority of the cluster is read while the agent runs. While the file can't be read, the previous one is used.
func TestAuthorityIsReplaced(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	s := after.start(anyPort, time.Now().Add(time.Hour))
	config := client(t, s, before.pem())
	a := asker(t, config, "")
	expect(t, a, Reached)
	if err := os.WriteFile(config.CAFile, after.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, a, Responded)
	if err := os.Remove(config.CAFile); err != nil {
		t.Fatal(err)
	}
	expect(t, a, Responded)
}

// On a node with an API server, one of the others must respond. A process that starts while the node is cut off knows them.
func TestServerOnThisNode(t *testing.T) {
	cluster := newAuthority(t)
	type peer struct {
		serve                   http.HandlerFunc
		silent, closed, unheard bool
	}
	for name, test := range map[string]struct {
		peers []peer
		want  Response
	}{
		"is the only one":                           {nil, Responded},
		"another one responds":                      {[]peer{{serve: status(http.StatusUnauthorized)}}, Responded},
		"the other one is silent":                   {[]peer{{silent: true}}, Silent},
		"the other one refuses":                     {[]peer{{closed: true}}, Reached},
		"one of two others responds":                {[]peer{{closed: true}, {serve: status(http.StatusOK)}}, Responded},
		"the other one has never responded":         {[]peer{{silent: true, unheard: true}}, Responded},
		"the other one responds for the first time": {[]peer{{serve: status(http.StatusOK), unheard: true}}, Responded},
		"one of two others has never responded":     {[]peer{{silent: true, unheard: true}, {silent: true}}, Silent},
	} {
		t.Run(name, func(t *testing.T) {
			own := cluster.start(anyPort, time.Now().Add(time.Hour))
			all := []netip.AddrPort{own.addr()}
			var servers, silent []*apiServer
			for n, p := range test.peers {
				s := cluster.start(fmt.Sprintf("127.0.0.%d:%d", n+2, own.addr().Port()), time.Now().Add(time.Hour))
				all = append(all, s.addr())
				if p.unheard {
					s.serves(breaks)
				}
				defer func() { s.Close() }()
				servers = append(servers, s)
			}
			own.serves(lists(all...))
			file := filepath.Join(t.TempDir(), "servers")
			onThisNode(asker(t, client(t, own, cluster.pem()), file)).Prepare(t.Context(), func() bool { return true })
			for n, p := range test.peers {
				switch {
				case p.closed:
					servers[n].Close()
				case p.silent && p.unheard: // it breaks connections
				case p.silent:
					silent = append(silent, servers[n])
				default:
					servers[n].serves(p.serve)
				}
			}
			for range 2 {
				a := onThisNode(asker(t, client(t, own, cluster.pem()), file))
				expect(t, a, test.want, silent...)
				own.serves(status(http.StatusInternalServerError)) // the list is known from now on
			}
		})
	}
}

// breaks ends a connection without a response.
func breaks(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// onThisNode has the API server at 127.0.0.1 be that of the node.
func onThisNode(a *Asker) *Asker {
	a.known.local = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)}}, nil
	}
	return a
}

// Where control plane nodes can't reach each other's API servers, those don't count. What is found out during a change says
// nothing about that.
func TestServersThatCannotReachEachOther(t *testing.T) {
	cluster := newAuthority(t)
	own := cluster.start(anyPort, time.Now().Add(time.Hour))
	other := cluster.start(fmt.Sprintf("127.0.0.2:%d", own.addr().Port()), time.Now().Add(time.Hour))
	own.serves(lists(own.addr(), other.addr()))
	a := onThisNode(asker(t, client(t, own, cluster.pem()), ""))
	settled, changing := func() bool { return true }, func() bool { return false }
	for _, step := range []struct {
		name      string
		serve     http.HandlerFunc
		unchanged func() bool
		want      Response
	}{
		{"never heard", breaks, settled, Responded},
		{"heard", status(http.StatusOK), settled, Silent},
		{"silent during a change", breaks, changing, Silent},
		{"silent without a change", breaks, settled, Responded},
		{"heard during a change", status(http.StatusOK), changing, Silent},
	} {
		other.serves(step.serve)
		a.Prepare(t.Context(), step.unchanged)
		other.serves(breaks)
		if got := a.Ask(t.Context()); got != step.want {
			t.Errorf("%s: the response is %d, not %d", step.name, got, step.want)
		}
	}
}

// expired is a context whose deadline passes when the inner one is canceled.
type expired struct{ context.Context } //nolint:containedctx // it is one

func (e expired) Err() error {
	if e.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// Most networks drop what they don't allow, so that requests end at their deadline. That is silence too. The end of the agent
// isn't: the next process must not believe it.
func TestPreparationWithoutAResponse(t *testing.T) {
	cluster := newAuthority(t)
	own := cluster.start(anyPort, time.Now().Add(time.Hour))
	other := cluster.start(fmt.Sprintf("127.0.0.2:%d", own.addr().Port()), time.Now().Add(time.Hour))
	own.serves(lists(own.addr(), other.addr()))
	a := onThisNode(asker(t, client(t, own, cluster.pem()), ""))
	settled := func() bool { return true }
	for _, step := range []struct {
		name   string
		within func(context.Context) context.Context
		want   Response
	}{
		{"the agent ends", func(ctx context.Context) context.Context { return ctx }, Silent},
		{"packets are dropped", func(ctx context.Context) context.Context { return expired{ctx} }, Responded},
	} {
		other.serves(status(http.StatusOK))
		if !a.Prepare(t.Context(), settled) {
			t.Fatal("the other server doesn't respond")
		}
		ctx, stop := context.WithCancel(t.Context())
		other.isSilent(stop)
		if a.Prepare(step.within(ctx), settled) {
			t.Error("it doesn't have to be repeated soon")
		}
		other.serves(breaks)
		if got := a.Ask(t.Context()); got != step.want {
			t.Errorf("%s: the response is %d, not %d", step.name, got, step.want)
		}
		stop()
	}
}

// A cluster begins with a single API server. Once there are others, a change needs a response of one of them, although none has
// happened since.
func TestFirstServerOfACluster(t *testing.T) {
	cluster := newAuthority(t)
	own := cluster.start(anyPort, time.Now().Add(time.Hour))
	other := cluster.start(fmt.Sprintf("127.0.0.2:%d", own.addr().Port()), time.Now().Add(time.Hour))
	a := onThisNode(asker(t, client(t, own, cluster.pem()), ""))
	settled := func() bool { return true }
	for _, servers := range [][]netip.AddrPort{{own.addr()}, {own.addr(), other.addr()}} {
		own.serves(lists(servers...))
		if !a.Prepare(t.Context(), settled) {
			t.Errorf("of %v, none responds", servers)
		}
	}
	other.serves(breaks)
	if got := a.Ask(t.Context()); got != Silent {
		t.Errorf("the response is %d", got)
	}
}

// On a node without an API server, the response of any of them counts, and only one is asked.
func TestServersOnOtherNodes(t *testing.T) {
	cluster := newAuthority(t)
	s := cluster.start(anyPort, time.Now().Add(time.Hour))
	s.serves(lists(s.addr(), netip.MustParseAddrPort("127.0.0.2:1")))
	a := asker(t, client(t, s, cluster.pem()), "")
	a.known.local = func() ([]net.Addr, error) { return nil, nil }
	expect(t, a, Responded)
	expect(t, a, Responded)
	if asked := s.asked(); len(asked) != 2 {
		t.Errorf("it was asked for %q", asked)
	}
}

// When another API server is added, it must respond from the next request on.
func TestServerIsAdded(t *testing.T) {
	cluster := newAuthority(t)
	own := cluster.start(anyPort, time.Now().Add(time.Hour))
	first := cluster.start(fmt.Sprintf("127.0.0.2:%d", own.addr().Port()), time.Now().Add(time.Hour))
	own.serves(lists(own.addr(), first.addr()))
	a := onThisNode(asker(t, client(t, own, cluster.pem()), ""))
	expect(t, a, Responded)
	first.Close()
	second := cluster.start(fmt.Sprintf("127.0.0.3:%d", own.addr().Port()), time.Now().Add(time.Hour))
	own.serves(lists(own.addr(), second.addr()))
	expect(t, a, Reached)
	expect(t, a, Responded)
	if asked := second.asked(); len(asked) != 1 || asked[0] != "GET /version" {
		t.Errorf("it was asked for %q", asked)
	}
}
