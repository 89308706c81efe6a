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
	// patience is how long a registry may take to accept a connection.
	patience = 3 * time.Second
	// What was found out holds this long: that it answers, and that it is silent.
	// The latter keeps many programs of one registry from waiting for it in turn.
	trust    = 30 * time.Second
	distrust = 10 * time.Second
)

// Registries tells which registries are silent: those that don't answer at all,
// as behind a firewall that drops packets. The daemon would wait for one until
// the kernel gives up, minutes later, and serve nobody meanwhile. One that
// refuses is not silent: the daemon learns that as fast, and says why.
type Registries struct {
	// Transport carries requests to registries; nil is for one of the package's own.
	Transport http.RoundTripper

	mu    sync.Mutex
	known map[string]verdict
	fit   *lru.Cache // *unfitError by the digest of a manifest
}

type verdict struct {
	silent bool
	until  time.Time
}

// Silent returns why the image's registry is silent, nil if it isn't or if there
// is no telling.
func (r *Registries) Silent(ctx context.Context, url string) error {
	address, ok := addressOf(url)
	if !ok {
		return nil // the daemon has words for a malformed reference
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

// addressOf is where an image's registry listens.
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

// dial tells whether nobody answers.
func dial(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close() // nothing was sent on it
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
