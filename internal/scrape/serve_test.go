// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package scrape

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answered returns the response of the server at url as soon as it listens.
func answered(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			select {
			case <-t.Context().Done():
				t.Fatal(err)
			case <-time.After(time.Millisecond):
				continue
			}
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
}

func TestServe(t *testing.T) {
	certified, err := TLS("bpfman-csi")
	if err != nil {
		t.Fatal(err)
	}
	for scheme, certified := range map[string]*tls.Config{"http": nil, "https": certified} {
		t.Run(scheme, func(t *testing.T) {
			address := unused(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.TLS != nil) })
			ended := make(chan error, 1)
			go func() { ended <- Serve(ctx, address, handler, certified, slog.New(slog.DiscardHandler)) }()
			if encrypted, want := answered(t, scheme+"://"+address), fmt.Sprint(scheme == "https"); encrypted != want {
				t.Errorf("encrypted: %s, want %s", encrypted, want)
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("after the context ended: %v", err)
			}
		})
	}
}

// While other software uses the port, this is only logged. Once the port is free, it is served.
func TestServeWaitsForAnAddressInUse(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	defer read.Close()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, address, handler, nil, slog.New(slog.NewTextHandler(write, nil))) }()
	lines := bufio.NewScanner(read)
	for _, words := range []string{"address already in use", "Listening after"} {
		if !lines.Scan() || !strings.Contains(lines.Text(), words) {
			t.Fatalf("logged %q, want %q", lines.Text(), words)
		}
		taken.Close()
	}
	if body := answered(t, "http://"+address); body != "here" {
		t.Errorf("got %q", body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("after the context ended: %v", err)
	}
}

// If the port isn't free before the component has to end, the component says why it didn't answer.
func TestServeSaysThatAnAddressIsInUse(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ctx, stop := context.WithCancel(t.Context())
	logged := writer(func(p []byte) (int, error) { stop(); return len(p), nil })
	err = Serve(ctx, taken.Addr().String(), http.NotFoundHandler(), nil, slog.New(slog.NewTextHandler(logged, nil)))
	if want := "listen tcp " + taken.Addr().String() + ": bind: address already in use"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestServeEndsBeforeItListens(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Serve(ctx, unused(t), http.NotFoundHandler(), nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// unused returns an address at which nothing listens.
func unused(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
