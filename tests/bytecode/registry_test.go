// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/examples/bytecodeimage"
	"github.com/bpfman/bpfman-operator/tests/daemon"
)

// authority is a self-signed certificate for the loopback address, and so its own
// authority.
type authority struct {
	file        string
	certificate tls.Certificate
	pool        *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "test registry"},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{
		file:        filepath.Join(t.TempDir(), "ca.crt"),
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pool:        x509.NewCertPool(),
	}
	a.pool.AddCert(leaf)
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return a
}

// serveRegistry serves a registry where the daemon reaches it, with an image of every
// object and of each fault, and returns its address.
func (a *authority) serveRegistry(t *testing.T, d *daemon.Daemon) string {
	t.Helper()
	var listener net.Listener
	err := d.InNetwork(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatalf("listen for the registry: %v", err)
	}
	server := &http.Server{
		Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: callTimeout,
	}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{a.certificate}, MinVersion: tls.VersionTLS12}))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("registry: %v", err)
		}
	})

	address := listener.Addr().String()
	images := images(t)
	err = d.InNetwork(func() error {
		// Dialled here, as a connection belongs to the namespace of the thread that makes it.
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return err
		}
		transport := &http.Transport{
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return conn, nil },
			TLSClientConfig: &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS12},
			MaxConnsPerHost: 1,
		}
		defer transport.CloseIdleConnections()
		for image, content := range images {
			ref, err := name.ParseReference(address + "/bpfman-bytecode/" + image + ":latest")
			if err != nil {
				return err
			}
			if err := remote.Write(ref, content, remote.WithContext(t.Context()), remote.WithTransport(transport), remote.WithJobs(1)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("push images: %v", err)
	}
	return address
}

func images(t *testing.T) map[string]v1.Image {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(objectDir, "*.o"))
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, file := range files {
		object, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(file)
		if images[strings.TrimSuffix(base, ".o")], err = bytecodeimage.Build(base, object); err != nil {
			t.Fatal(err)
		}
	}
	faults, err := bytecodeimage.Faults()
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(images, faults)
	return images
}
