// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package registry serves bytecode images of a test over TLS, to a daemon in another
// network namespace and to the process of the test.
package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
)

// Private is the prefix of repositories that require the user and the password.
const Private = "private/"

const (
	headerTimeout = time.Minute
	day           = 24 * time.Hour
)

// Authority is a self-signed certificate for two loopback addresses, and for names.
type Authority struct{ certificate tls.Certificate }

// NewAuthority creates an Authority, and writes its certificate to a file for
// SSL_CERT_FILE.
func NewAuthority(file string, names ...string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "test registry"},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(day),
		DNSNames:              names,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return nil, fmt.Errorf("write certificate: %w", err)
	}
	return &Authority{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// WriteKey writes the private key to a file, for a server in another process.
func (a *Authority) WriteKey(file string) error {
	der, err := x509.MarshalPKCS8PrivateKey(a.certificate.PrivateKey)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// Registry is a registry on the loopback addresses of the daemon and of the test.
type Registry struct {
	// Address is its host and port.
	Address string

	t         *testing.T
	daemon    *daemontest.Real
	authority *Authority
	content   http.Handler
	server    *http.Server
	entrance  *httptest.Server

	mu             sync.Mutex
	user, password string
	pulls          map[string]int
}

// Serve starts a registry, which ends with the test. Without a daemon, it listens only
// on the test's loopback address.
func Serve(t *testing.T, d *daemontest.Real, a *Authority) *Registry {
	t.Helper()
	r := &Registry{t: t, daemon: d, authority: a, content: registry.New(registry.Logger(log.New(io.Discard, "", 0))), pulls: map[string]int{}}
	r.entrance = httptest.NewServer(r.content)
	r.Start()
	t.Cleanup(func() { r.Stop(); r.entrance.Close() })
	return r
}

// Start starts a stopped registry again, with the same content.
func (r *Registry) Start() {
	r.t.Helper()
	address := r.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	// A port that is free in one namespace can be in use in the other.
	const tries = 10
	var listeners []net.Listener
	var err error
	for range tries {
		if listeners, err = r.listen(address); err == nil {
			break
		}
	}
	if err != nil {
		r.t.Fatalf("listen for the registry: %v", err)
	}
	r.Address = listeners[0].Addr().String()
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0)}
	for _, l := range listeners {
		go func() {
			_ = r.server.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{r.authority.certificate}, MinVersion: tls.VersionTLS12}))
		}()
	}
}

func (r *Registry) listen(address string) ([]net.Listener, error) {
	if r.daemon == nil {
		only, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", address)
		return []net.Listener{only}, err
	}
	var first net.Listener
	err := r.daemon.InNetwork(func() (err error) {
		first, err = (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("in the daemon's network: %w", err)
	}
	second, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", first.Addr().String())
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	return []net.Listener{first, second}, nil
}

// Stop makes the registry refuse connections.
func (r *Registry) Stop() { _ = r.server.Close() }

// SetCredentials changes the credentials for Private repositories.
func (r *Registry) SetCredentials(user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user, r.password = user, password
}

// Pulls returns how often the manifests of a repository were requested.
func (r *Registry) Pulls(repository string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls[repository]
}

func (r *Registry) serve(w http.ResponseWriter, q *http.Request) {
	path := strings.TrimPrefix(q.URL.Path, "/v2/")
	user, password, _ := q.BasicAuth()
	r.mu.Lock()
	if repository, _, is := strings.Cut(path, "/manifests/"); is && q.Method == http.MethodGet {
		r.pulls[repository]++
	}
	// Clients get the root to find out whether the registry requires credentials.
	asked := strings.HasPrefix(path, Private) || path == "" && r.user != ""
	refused := asked && (user != r.user || password != r.password)
	r.mu.Unlock()
	if refused {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	r.content.ServeHTTP(w, q)
}

// Push adds an image or an index to the registry, as repository:tag.
func (r *Registry) Push(reference string, content remote.Taggable) {
	r.t.Helper()
	// Use a separate server that needs no credentials and is never down.
	ref, err := name.ParseReference(strings.TrimPrefix(r.entrance.URL, "http://")+"/"+reference, name.Insecure)
	if err != nil {
		r.t.Fatal(err)
	}
	switch content := content.(type) {
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, content)
	case v1.Image:
		err = remote.Write(ref, content)
	default:
		err = fmt.Errorf("%T is neither", content)
	}
	if err != nil {
		r.t.Fatalf("push %s: %v", reference, err)
	}
}

// Certificate returns the certificate with its key, for other servers.
func (a *Authority) Certificate() tls.Certificate { return a.certificate }
