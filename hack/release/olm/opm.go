// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// ValidateWithOPM validates the bundle in a directory with opm, operator-registry's command: its format, its
// manifests, and OperatorHub's requirements. The error contains opm's output.
//
// opm only accepts a bundle as an image in a registry. This function serves one from memory, on the loopback
// interface, while opm runs.
func ValidateWithOPM(ctx context.Context, opm, dir string, annotations map[string]string) error {
	image, err := imageOf(dir, annotations)
	if err != nil {
		return fmt.Errorf("make an image of %s: %w", dir, err)
	}
	work, err := os.MkdirTemp("", "opm-")
	if err != nil {
		return fmt.Errorf("make a directory for opm: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	authority := filepath.Join(work, "ca.crt")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	if err := os.WriteFile(authority, pem.EncodeToMemory(block), 0o600); err != nil {
		return fmt.Errorf("write the registry's certificate: %w", err)
	}
	// opm doesn't pull images on a machine without a signature policy. This policy requires no signatures.
	policy := filepath.Join(work, ".config", "containers", "policy.json")
	if err := os.MkdirAll(filepath.Dir(policy), 0o700); err != nil {
		return fmt.Errorf("make a directory for opm's policy: %w", err)
	}
	if err := os.WriteFile(policy, []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`), 0o600); err != nil {
		return fmt.Errorf("write opm's policy: %w", err)
	}
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "https://") + "/bundle:validated")
	if err != nil {
		return fmt.Errorf("name the bundle's image: %w", err)
	}
	if err := remote.Write(tag, image, remote.WithTransport(server.Client().Transport), remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("push the bundle's image to %s: %w", tag.Registry, err)
	}
	command := exec.CommandContext(ctx, opm, "alpha", "bundle", "validate", "--tag", tag.String(), "--image-builder", "none",
		"--optional-validators", "operatorhub,bundle-objects")
	command.Dir = work
	command.Env = append(os.Environ(), "HOME="+work, "SSL_CERT_FILE="+authority, "OLM_CACHE_DIR="+filepath.Join(work, "cache"))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("opm alpha bundle validate %s: %w:\n%s", dir, err, output)
	}
	return nil
}

// imageOf returns the image that the bundle's Dockerfile would build: the files in the directory, with the
// annotations as labels.
func imageOf(dir string, annotations map[string]string) (v1.Image, error) {
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	if err := archive.AddFS(os.DirFS(dir)); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	return mutate.Config(image, v1.Config{Labels: annotations})
}
