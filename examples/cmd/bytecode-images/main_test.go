// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

func TestRunPushesOverTLS(t *testing.T) {
	const objects = "../../../bin/bytecode"
	if found, _ := filepath.Glob(filepath.Join(objects, "*.o")); len(found) == 0 {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := options{
		objects: objects, push: strings.TrimPrefix(server.URL, "https://"), ca: ca,
		prefix: "bpfman-bytecode", tag: "latest", timeout: time.Minute,
		aliases: map[string]string{"xdp_pass_private": "xdp_pass"},
	}
	if err := run(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	host, err := name.NewRegistry(opts.push)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Catalog(t.Context(), host, remote.WithTransport(server.Client().Transport))
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"xdp_pass", "xdp_pass_private", "go-app-counter"} {
		if !slices.Contains(pushed, opts.prefix+"/"+image) {
			t.Errorf("%s isn't among %v", image, pushed)
		}
	}
}

func TestRunSaysWhatIsMissing(t *testing.T) {
	for want, opts := range map[string]options{
		"no registry":   {},
		"make bytecode": {push: "registry.example.com", objects: t.TempDir(), timeout: time.Minute},
		"absent.crt":    {push: "registry.example.com", objects: "../../../bin/bytecode", ca: "absent.crt", timeout: time.Minute},
	} {
		err := run(t.Context(), opts)
		if want == "absent.crt" && err != nil && strings.Contains(err.Error(), "make bytecode") {
			continue // the objects aren't built
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v doesn't say %q", err, want)
		}
	}
}
