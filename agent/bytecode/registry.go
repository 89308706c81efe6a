// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/distribution/reference"
	"k8s.io/utils/lru"
)

const (
	// patience is the timeout for connecting to a registry.
	patience = 3 * time.Second
	// Results are valid for this time: trust for a registry that responds, and
	// distrust for a silent one. With distrust, many programs from one silent
	// registry don't wait for it one after the other.
	trust    = 30 * time.Second
	distrust = 10 * time.Second
)

// Registries finds silent registries. These are registries that don't respond at
// all, for example because a firewall drops packets. The daemon would wait for
// one until the kernel's timeout, for minutes, and would not serve other calls
// meanwhile. A registry that refuses connections isn't silent, because the daemon
// notices it as fast, and reports the cause.
type Registries struct {
	// Transport sends requests to registries. If nil, the package creates one.
	Transport http.RoundTripper

	mu    sync.Mutex
	known map[string]verdict
	fit   *lru.Cache // *unfitError by the digest of a manifest
}

type verdict struct {
	silent bool
	until  time.Time
}

// Silent returns an error if the image's registry is silent. It returns nil if it
// isn't, or if that is unknown.
func (r *Registries) Silent(ctx context.Context, url string) error {
	address, ok := addressOf(url)
	if !ok {
		return nil // the daemon reports malformed references
	}
	silent, known := r.recall(address)
	if !known {
		silent = dial(ctx, address)
		r.remember(address, silent)
	}
	if silent {
		return fmt.Errorf("the registry at %s doesn't answer", address)
	}
	return nil
}

// addressOf returns the address of an image's registry.
func addressOf(url string) (string, bool) {
	repository, err := parse(url)
	if err != nil {
		return "", false
	}
	host := reference.Domain(repository)
	if host == "docker.io" {
		host = "registry-1.docker.io"
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(host, "443")
	}
	return host, true
}

// dial reports whether nothing responds at the address.
func dial(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close() // nothing was sent
		return false
	}
	timeout := net.Error(nil)
	return ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout()
}

func (r *Registries) recall(address string) (silent, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.known[address]
	return v.silent, time.Now().Before(v.until)
}

func (r *Registries) remember(address string, silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for old, v := range r.known {
		if now.After(v.until) {
			delete(r.known, old)
		}
	}
	if r.known == nil {
		r.known = map[string]verdict{}
	}
	validity := trust
	if silent {
		validity = distrust
	}
	r.known[address] = verdict{silent, now.Add(validity)}
}
