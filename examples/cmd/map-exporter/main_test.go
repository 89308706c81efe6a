// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/examples/mapmetrics"
)

var update = flag.Bool("update", false, "write the golden file")

func serve(t *testing.T, dir, config string) (*httptest.Server, *bytes.Buffer) {
	t.Helper()
	parsed, err := mapmetrics.ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	server := httptest.NewServer(handler(mapmetrics.NewCollector(dir, parsed, &mapmetrics.Host{}, log), log))
	t.Cleanup(server.Close)
	return server, &said
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// TestMetrics compares the metrics of maps, in the kernel's format, with a golden file.
func TestMetrics(t *testing.T) {
	config, err := os.ReadFile("testdata/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server, said := serve(t, "testdata/maps", string(config))
	status, metrics := get(t, server.URL+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, metrics)
	}
	if *update {
		if err := os.WriteFile("testdata/metrics.txt", []byte(metrics), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	if metrics != string(golden) {
		t.Errorf("metrics are\n%s\nnot\n%s", metrics, golden)
	}
	for _, want := range []string{"map=absent", "no such file", "map=states", "metric states_total"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log lacks %q: %s", want, said)
		}
	}
}

// TestMetrics_FollowTheMap scrapes a map, another one at the same path, and one that became too
// large.
func TestMetrics_FollowTheMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports")
	server, _ := serve(t, filepath.Dir(path), "maps: [{name: ports, labels: [port], metrics: [{name: packets_total}]}]")
	var large strings.Builder
	for port := range 10001 {
		fmt.Fprintf(&large, "%d: 1\n", port)
	}
	for _, c := range []struct{ text, want string }{
		{"80: 3\n", `packets_total{port="80"} 3`},
		{"443: 4\n", `packets_total{port="443"} 4`},
		{large.String(), `bpf_map_readable{map="ports"} 0`},
		{"443: 4\n443:", `bpf_map_readable{map="ports"} 0`},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, metrics := get(t, server.URL+"/metrics"); !strings.Contains(metrics, c.want) {
			t.Errorf("%.20q gives no %s:\n%s", c.text, c.want, metrics)
		}
	}
}

// TestOtherRequests checks that only metrics and the probe's endpoint are served.
func TestOtherRequests(t *testing.T) {
	server, _ := serve(t, t.TempDir(), "maps: [{name: ports, metrics: [{name: packets_total}]}]")
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound} {
		if status, _ := get(t, server.URL+path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", response.StatusCode)
	}
}

// TestRun starts and stops the command, and checks that errors name the file.
func TestRun(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := run(ctx, "testdata/maps", "testdata/config.yaml", "127.0.0.1:0", &mapmetrics.Host{}, log); err != nil {
		t.Errorf("it ends with %v", err)
	}
	for file, want := range map[string]string{"testdata/absent.yaml": "absent.yaml", "testdata/maps/ports": "testdata/maps/ports"} {
		if err := run(t.Context(), "testdata/maps", file, "127.0.0.1:0", &mapmetrics.Host{}, log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", file, err)
		}
	}
}
