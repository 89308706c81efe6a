// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package pki creates the certificates and kubeconfigs of a cluster.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is the validity of every certificate. A test cluster never runs that long.
const lifetime = 365 * 24 * time.Hour

// Pair is a certificate and its private key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Subject describes a certificate to issue. Names can be host names or IP addresses. A
// certificate with names is valid for a server. All certificates are valid for a client.
type Subject struct {
	CommonName string
	Groups     []string
	Names      []string
}

// NewCA creates a self-signed certificate authority.
func NewCA(name string) (*Pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	return issue(template, nil)
}

// Issue signs a certificate for the subject.
func (p *Pair) Issue(subject Subject) (*Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: subject.CommonName, Organization: subject.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, name := range subject.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if len(subject.Names) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return issue(template, p)
}

// issue signs the template with the parent's key, or with the new key if there is no
// parent.
func issue(template *x509.Certificate, parent *Pair) (*Pair, error) {
	name := template.Subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of %q: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw the serial number of %q: %w", name, err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(lifetime)
	if parent == nil {
		parent = &Pair{Cert: template, Key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Cert, key.Public(), parent.Key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %q: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate of %q: %w", name, err)
	}
	return &Pair{Cert: cert, Key: key}, nil
}

// CertPEM returns the certificate in PEM.
func (p *Pair) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw})
}

// KeyPEM returns the private key in PEM.
func (p *Pair) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of %q: %w", p.Cert.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Write writes the pair to dir/name.crt and dir/name.key.
func (p *Pair) Write(dir, name string) error {
	key, err := p.KeyPEM()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".key"), key, 0o600); err != nil {
		return fmt.Errorf("write the key of %q: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.CertPEM(), 0o644); err != nil {
		return fmt.Errorf("write the certificate of %q: %w", name, err)
	}
	return nil
}

// Read reads the pair that Write wrote to dir/name.crt and dir/name.key.
func Read(dir, name string) (*Pair, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, fmt.Errorf("read the certificate and key %q: %w", name, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read the certificate and key %q: the key can't sign", name)
	}
	return &Pair{Cert: pair.Leaf, Key: key}, nil
}

// Kubeconfig returns a kubeconfig for the API server at a URL. It trusts ca, and uses the
// client certificate.
func Kubeconfig(server string, ca, client *Pair) ([]byte, error) {
	key, err := client.KeyPEM()
	if err != nil {
		return nil, err
	}
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: bpfman
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %[3]s
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: bpfman
  context:
    cluster: bpfman
    user: %[3]s
current-context: bpfman
`, server, encode(ca.CertPEM()), client.Cert.Subject.CommonName, encode(client.CertPEM()), encode(key)), nil
}
