// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package image

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
)

func example(t *testing.T, program string) Image {
	t.Helper()
	return Image{
		Name: "quay.io/bpfman/example:latest",
		Files: []File{
			{Path: "/usr/bin/program", Mode: 0o755, Source: program},
			{Path: "/tmp", Mode: 0o777 | fs.ModeSticky},
			{Path: "/etc/hosts", Mode: 0o644, Text: []byte("127.0.0.1 localhost\n")},
			{Path: "/bin", Mode: 0o777, Link: "usr/bin"},
		},
		User:       "65532:65532",
		Entrypoint: []string{"/usr/bin/program"},
	}
}

func build(t *testing.T, i Image) v1.Image {
	t.Helper()
	built, err := i.Build()
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func TestBuildIsReproducible(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("text"), 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := build(t, example(t, program)).Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(program, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if again, err := build(t, example(t, program)).Digest(); err != nil || again != first {
		t.Errorf("the same files make %v (%v), then %v", first, err, again)
	}
	if err := os.WriteFile(program, []byte("test"), 0o700); err != nil {
		t.Fatal(err)
	}
	if other, err := build(t, example(t, program)).Digest(); err != nil || other == first {
		t.Errorf("a changed file makes the same image %v (%v)", other, err)
	}
}

func TestBuildContents(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("text"), 0o700); err != nil {
		t.Fatal(err)
	}
	built := build(t, example(t, program))
	config, err := built.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH || config.Config.User != "65532:65532" || config.Config.WorkingDir != "/" {
		t.Errorf("configuration %+v", config)
	}
	layers, err := built.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	contents, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer contents.Close()
	want := []struct {
		name string
		kind byte
		mode int64
		text string
	}{
		{"bin", tar.TypeSymlink, 0o777, ""},
		{"etc/", tar.TypeDir, 0o755, ""},
		{"etc/hosts", tar.TypeReg, 0o644, "127.0.0.1 localhost\n"},
		{"tmp/", tar.TypeDir, 0o1777, ""},
		{"usr/", tar.TypeDir, 0o755, ""},
		{"usr/bin/", tar.TypeDir, 0o755, ""},
		{"usr/bin/program", tar.TypeReg, 0o755, "text"},
	}
	reader := tar.NewReader(contents)
	for _, w := range want {
		header, err := reader.Next()
		if err != nil {
			t.Fatalf("want %s, got %v", w.name, err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != w.name || header.Typeflag != w.kind || header.Mode != w.mode || string(text) != w.text {
			t.Errorf("got %s %c %o %q, want %+v", header.Name, header.Typeflag, header.Mode, text, w)
		}
	}
	if header, err := reader.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("more than wanted: %v, %v", header, err)
	}
}

func TestCatalogNamesWhatIsNotBuilt(t *testing.T) {
	empty := Sources{Bin: t.TempDir(), Daemon: filepath.Join(t.TempDir(), "bpfman-rpc")}
	for _, description := range Catalog() {
		if strings.HasPrefix(description.Name, "docker.io/library/") || description.Name == storageImage {
			continue // it is installed, not built
		}
		_, err := description.Describe(t.Context(), empty)
		if absent := (*AbsentError)(nil); !errors.As(err, &absent) || absent.Image != description.Name {
			t.Errorf("%s: %v, want that its file is absent", description.Name, err)
		}
	}
}

// TestDaemons checks that each daemon has the path and the command line of its published image.
func TestDaemons(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bpfman-rpc", "bpfman-other", "daemon-launcher"} {
		if err := os.Symlink("/bin/true", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	sources := Sources{Bin: dir, Daemon: filepath.Join(dir, "bpfman-rpc"), Other: filepath.Join(dir, "bpfman-other")}
	want := map[string][]string{
		"quay.io/bpfman/bpfman:v0.6.0": {"./daemon-launcher", "--", "./bpfman-rpc", "--timeout=0"},
		OtherDaemon:                    {"./daemon-launcher", "--", "./bpfman"},
	}
	for _, description := range Catalog() {
		entrypoint, is := want[description.Name]
		if !is {
			continue
		}
		delete(want, description.Name)
		built, err := description.Describe(t.Context(), sources)
		if err != nil {
			t.Fatal(err)
		}
		executable := strings.TrimPrefix(entrypoint[2], ".")
		if !slices.Equal(built.Entrypoint, entrypoint) || !slices.ContainsFunc(built.Files, func(f File) bool { return f.Path == executable }) {
			t.Errorf("%s starts with %q", description.Name, built.Entrypoint)
		}
	}
	if len(want) > 0 {
		t.Errorf("the catalog lacks %v", want)
	}
}

// TestPrometheusVersion checks that the tutorial, the image, and the module that make builds have the same version:
// v3.13.5 is the module's v0.313.5.
func TestPrometheusVersion(t *testing.T) {
	_, version, _ := strings.Cut(prometheusImage, ":v3.")
	for file, want := range map[string]string{
		"../../../docs/tutorials/prometheus.md": "image: " + prometheusImage + "\n",
		"../../make/tools.mk":                   "github.com/prometheus/prometheus@v0.3" + version + "\n",
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), want) {
			t.Errorf("%s doesn't have %q", file, want)
		}
	}
}

// Each tag is that of one image: bpfman:next isn't the other daemon.
func TestNames(t *testing.T) {
	owner := map[string]string{}
	for _, reference := range []string{"quay.io/bpfman/bpfman:v0.6.0", OtherDaemon, "quay.io/bpfman/bpfman-agent:latest"} {
		names, err := Names(reference)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if other, taken := owner[n.String()]; taken {
				t.Errorf("%s is a name of %s and of %s", n, other, reference)
			}
			owner[n.String()] = reference
		}
	}
	if got := owner["quay.io/bpfman/bpfman:next"]; got != "quay.io/bpfman/bpfman:v0.6.0" {
		t.Errorf("bpfman:next is %q", got)
	}
}
