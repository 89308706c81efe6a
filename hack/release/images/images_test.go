// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/bpfman/bpfman-operator/hack/cluster/image"
)

func example(registry string) Release {
	return Release{
		Registry: registry, Version: "1.2.3", Source: "https://github.com/example/project", Revision: "0a1b",
		Created: time.Unix(1700000000, 0), Architectures: []string{"amd64", "s390x"},
	}
}

// binaries writes an agent's binaries for each architecture.
func binaries(t *testing.T, r Release) string {
	t.Helper()
	bin := t.TempDir()
	for _, architecture := range r.Architectures {
		for _, name := range []string{"agent", "helper"} {
			path := filepath.Join(bin, "linux-"+architecture, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(architecture+name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bin
}

func TestRelease_Command(t *testing.T) {
	r := example("registry.example.com/path")
	command := image.Command{Repository: "the-agent", Binary: "agent", User: "65532:65532", Others: []string{"helper"}}
	licenses := func(dir string) (fs.FS, error) {
		return fstest.MapFS{"example.com/module/LICENSE": {Data: []byte(filepath.Base(dir))}}, nil
	}
	bin := binaries(t, r)
	index, err := r.Command(command, bin, licenses)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Annotations["org.opencontainers.image.version"] != "v1.2.3" || len(manifest.Manifests) != 2 {
		t.Fatalf("the index is %+v", manifest)
	}
	for i, architecture := range r.Architectures {
		built, err := index.Image(manifest.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := built.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != architecture || config.Config.User != command.User || config.Config.Labels["org.opencontainers.image.revision"] != "0a1b" {
			t.Errorf("the configuration for %s is %+v", architecture, config)
		}
		files := filesOf(t, built)
		for path, want := range map[string]string{"agent": architecture + "agent", "helper": architecture + "helper", "licenses/example.com/module/LICENSE": "linux-" + architecture} {
			if files[path] != want {
				t.Errorf("%s has %q, not %q", path, files[path], want)
			}
		}
		if roots := files["etc/ssl/certs/ca-certificates.crt"]; strings.Count(roots, "BEGIN CERTIFICATE") < 50 {
			t.Errorf("the image trusts %d authorities", strings.Count(roots, "BEGIN CERTIFICATE"))
		}
	}
	again, err := r.Command(command, bin, licenses)
	if err != nil {
		t.Fatal(err)
	}
	if digestOf(t, again) != digestOf(t, index) {
		t.Error("the same files make another image")
	}
}

func digestOf(t *testing.T, of interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	digest, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func filesOf(t *testing.T, built v1.Image) map[string]string {
	t.Helper()
	layers, err := built.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

func TestRelease_Data(t *testing.T) {
	r := example("registry.example.com/path")
	index, err := r.Data("catalog", map[string]fs.FS{"/": fstest.MapFS{"configs/catalog.yaml": {Data: []byte("text")}}}, map[string]string{"label": "value"})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != len(r.Architectures) {
		t.Fatalf("%d images, %v", len(manifest.Manifests), err)
	}
	built, err := index.Image(manifest.Manifests[1].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := built.ConfigFile()
	if err != nil || config.Config.Labels["label"] != "value" {
		t.Errorf("the labels are %v, %v", config.Config.Labels, err)
	}
	if files := filesOf(t, built); files["configs/catalog.yaml"] != "text" {
		t.Errorf("the files are %q", files)
	}
}

func TestRelease_DataOn(t *testing.T) {
	r := example("registry.example.com/path")
	base, err := r.Data("base", map[string]fs.FS{"/bin": fstest.MapFS{"server": {Data: []byte("program")}}}, map[string]string{"of": "the base"})
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]fs.FS{"/": fstest.MapFS{"configs/catalog.yaml": {Data: []byte("text")}}}
	index, err := r.DataOn(base, "catalog", dirs, map[string]string{"label": "value"}, []string{"/bin/server"}, []string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != len(r.Architectures) {
		t.Fatalf("%d images, %v", len(manifest.Manifests), err)
	}
	built, err := index.Image(manifest.Manifests[1].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := built.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "s390x" || config.Config.Labels["label"] != "value" || config.Config.Labels["of"] != "" || config.Config.Cmd[0] != "serve" || len(config.RootFS.DiffIDs) != 2 {
		t.Errorf("the configuration is %+v", config)
	}
	r.Architectures = []string{"riscv64"}
	if _, err := r.DataOn(base, "catalog", dirs, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("an architecture that the base lacks: %v", err)
	}
}

// chartOf returns a packaged chart of the version.
func chartOf(t *testing.T, version string) []byte {
	t.Helper()
	var packaged bytes.Buffer
	zipped := gzip.NewWriter(&packaged)
	w := tar.NewWriter(zipped)
	text := "name: bpfman-operator\nversion: " + version + "\n"
	if err := w.WriteHeader(&tar.Header{Name: "bpfman-operator/Chart.yaml", Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return packaged.Bytes()
}

func TestRelease_Chart(t *testing.T) {
	r := example("registry.example.com/path")
	packaged := chartOf(t, "1.2.3")
	chart, err := r.Chart(packaged)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := chart.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	config, err := chart.RawConfigFile()
	if err != nil || string(config) != `{"name":"bpfman-operator","version":"1.2.3"}` {
		t.Errorf("the configuration is %s, %v", config, err)
	}
	if manifest.Config.MediaType != chartConfig || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != chartContent {
		t.Errorf("the manifest is %+v", manifest)
	}
	for name, content := range map[string][]byte{"another version": chartOf(t, "1.2.4"), "no archive": []byte("text")} {
		if _, err := r.Chart(content); err == nil {
			t.Errorf("%s is a chart", name)
		}
	}
}

func TestRelease_Names(t *testing.T) {
	r := example("registry.example.com:5000/path")
	digest := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0a", 32)}
	script := r.Names(
		[]Named{{Name: r.Name("bpfman-agent"), Descriptor: v1.Descriptor{Digest: digest}}},
		map[string]string{"quay.io/bpfman/bpfman:v0.6.0": "registry.example.com/bpfman:v0.6.0@" + digest.String()})
	for before, want := range map[string]string{
		"image: quay.io/bpfman/bpfman-agent:latest":            "image: registry.example.com:5000/path/bpfman-agent:v1.2.3@" + digest.String(),
		"quay.io/bpfman/bpfman-csi:latest":                     "registry.example.com:5000/path/bpfman-csi:v1.2.3",
		"quay.io/bpfman/bpfman-operator:latest":                "registry.example.com:5000/path/bpfman-operator:v1.2.3",
		"quay.io/bpfman/bpfman-operator-catalog:v3.2.1":        "registry.example.com:5000/path/bpfman-operator-catalog:v1.2.3",
		"{url: quay.io/bpfman-bytecode/go-tcx-counter:latest}": "{url: registry.example.com:5000/path/bpfman-bytecode/go-tcx-counter:v1.2.3}",
		"oci://quay.io/bpfman/charts/bpfman-operator":          "oci://registry.example.com:5000/path/charts/bpfman-operator",
		"quay.io/bpfman/bpfman:v0.6.0":                         "registry.example.com/bpfman:v0.6.0@" + digest.String(),
		"quayXio/bpfman/bpfman-agent:latest":                   "quayXio/bpfman/bpfman-agent:latest",
	} {
		command := exec.CommandContext(t.Context(), "sed", script)
		command.Stdin = strings.NewReader(before)
		if got, err := command.Output(); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, not %s: %v", before, got, want, err)
		}
	}
}

func TestLayout_HasEachNameOnce(t *testing.T) {
	r := example("registry.example.com/path")
	dir := filepath.Join(t.TempDir(), "images")
	var names []string
	for _, text := range []string{"one", "another"} {
		layout, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		index, err := r.Data("data", map[string]fs.FS{"/": fstest.MapFS{"file": {Data: []byte(text)}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := layout.Put(r.Name("data"), index); err != nil {
			t.Fatal(err)
		}
		all, err := layout.All()
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 1 || all[0].Name != "registry.example.com/path/data:v1.2.3" || all[0].Digest != digestOf(t, index) {
			t.Errorf("the images are %+v", all)
		}
		names = append(names, all[0].Digest.String())
	}
	if names[0] == names[1] {
		t.Error("another content has the same digest")
	}
}
