// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

const (
	counting = "../../bin/bytecode/tcx_test.o"
	another  = "../../bin/bytecode/xdp_pass.o"
	someTime = 1700000000
)

func file(tb testing.TB, path, platform string) File {
	tb.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		prerequisite.Missing(tb, "run `make bytecode` first", prerequisite.Bytecode)
	}
	return File{Name: filepath.Base(path), Content: content, Platform: platform}
}

func digest(t *testing.T, image partial.WithRawManifest) string {
	t.Helper()
	d, err := partial.Digest(image)
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestBuildForPlatforms(t *testing.T) {
	all := "linux/amd64 linux/arm64 linux/ppc64le linux/riscv64"
	for name, c := range map[string]struct {
		files []File
		want  []string
		err   string
	}{
		"of its byte order":     {[]File{file(t, counting, "")}, []string{"tcx_test.o " + all}, ""},
		"of a byte order":       {[]File{file(t, counting, "bpfel")}, []string{"tcx_test.o " + all}, ""},
		"of an architecture":    {[]File{file(t, counting, "arm64")}, []string{"tcx_test.o linux/arm64"}, ""},
		"one rules":             {[]File{file(t, another, "linux/arm64"), file(t, counting, "bpfel")}, []string{"tcx_test.o linux/amd64 linux/ppc64le linux/riscv64", "xdp_pass.o linux/arm64"}, ""},
		"one rules, given last": {[]File{file(t, counting, "bpfel"), file(t, another, "arm64")}, []string{"tcx_test.o linux/amd64 linux/ppc64le linux/riscv64", "xdp_pass.o linux/arm64"}, ""},
		"two for one":           {[]File{file(t, counting, "arm64"), file(t, another, "linux/arm64")}, nil, "tcx_test.o and xdp_pass.o are both for linux/arm64"},
		"two for an order":      {[]File{file(t, counting, "bpfel"), file(t, another, "")}, nil, "tcx_test.o and xdp_pass.o are both for linux/"},
		"of the other order":    {[]File{file(t, counting, "bpfeb")}, nil, "tcx_test.o: it is little-endian, but bpfeb isn't"},
		"of another's order":    {[]File{file(t, counting, "s390x")}, nil, "tcx_test.o: it is little-endian, but s390x isn't"},
		"of no platform":        {[]File{file(t, counting, "windows/amd64")}, nil, `"windows/amd64" is not a platform`},
		"no object":             {[]File{{Name: "x.o", Content: []byte("not an object")}}, nil, "x.o: read eBPF object: it isn't an ELF file"},
		"nothing":               {nil, nil, "no file is specified"},
	} {
		t.Run(name, func(t *testing.T) {
			image, err := Build(c.files, time.Time{})
			if err != nil || c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || c.err == "" {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			contents, err := Read(image)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, content := range contents {
				got = append(got, content.File+" "+strings.Join(content.Platforms, " "))
				if len(content.Problems) > 0 {
					t.Errorf("problems %q", content.Problems)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// An image contains the object without its debug sections.
func TestBuildLeavesDebugSectionsOut(t *testing.T) {
	f := file(t, counting, "amd64")
	image, err := Build([]File{f}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	_, content := held(t, image.(v1.Image)) //nolint:errcheck // one platform results in one image
	want, err := object.Strip(f.Content)
	if err != nil || !bytes.Equal(content, want) || len(content) >= len(f.Content) {
		t.Errorf("the file has %d bytes, want the %d of the object's %d that aren't for debuggers, %v", len(content), len(want), len(f.Content), err)
	}
}

func TestImageHoldsTheFileAlone(t *testing.T) {
	img, err := Image("x.o", []byte("content"), map[string]string{"label": "value"}, "amd64", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config.Labels["label"]; got != "value" {
		t.Errorf("label is %q, want %q", got, "value")
	}
	if name, content := held(t, img); name != "x.o" || string(content) != "content" {
		t.Errorf("layer holds %q with %q, want x.o with its content", name, content)
	}
}

// held returns the only file of the only layer of an image.
func held(t *testing.T, image v1.Image) (name string, content []byte) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, want 1; %v", len(layers), err)
	}
	archive, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	r := tar.NewReader(archive)
	header, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if content, err = io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the file comes %v, want the archive's end", err)
	}
	return header.Name, content
}

// The same files result in the same image and archive, in any order. Another time results in another image.
func TestReproducible(t *testing.T) {
	files := []File{file(t, counting, "amd64"), file(t, another, "arm64")}
	write := func(files []File, created time.Time) (string, string) {
		image, err := Build(files, created)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := WriteLayout(path, image, created); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return digest(t, image), string(content)
	}
	digest, archive := write(files, time.Time{})
	again, archiveAgain := write([]File{files[1], files[0]}, time.Time{})
	if digest != again || archive != archiveAgain {
		t.Errorf("two builds differ: %s, %s", digest, again)
	}
	if dated, _ := write(files, time.Unix(someTime, 0)); dated == digest {
		t.Error("the time isn't part of the image")
	}
}

// What was written can be read, from a directory, from an archive, and from a registry.
func TestThereAndBack(t *testing.T) {
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	for name, files := range map[string][]File{"image": {file(t, counting, "amd64")}, "index": {file(t, counting, "bpfel"), file(t, another, "arm64")}} {
		t.Run(name, func(t *testing.T) {
			image, err := Build(files, time.Unix(someTime, 0))
			if err != nil {
				t.Fatal(err)
			}
			want := digest(t, image)
			for _, path := range []string{filepath.Join(t.TempDir(), "image.tar"), t.TempDir(), t.TempDir() + "/new/"} {
				if err := WriteLayout(path, image, time.Time{}); err != nil {
					t.Fatal(err)
				}
				back, closeIt, err := OpenLayout(path)
				if err != nil {
					t.Fatal(err)
				}
				if contents, err := Read(back); err != nil || digest(t, back) != want || len(contents) != len(files) {
					t.Errorf("%s: read %s with %d objects, %v", path, digest(t, back), len(contents), err)
				}
				closeIt()
			}
			authority := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			registries, err := NewRegistries(authority)
			if err != nil {
				t.Fatal(err)
			}
			reference := strings.TrimPrefix(server.URL, "https://") + "/team/" + name
			pushed, err := registries.Push(t.Context(), reference+":v1", image)
			if err != nil || pushed != reference+"@"+want {
				t.Fatalf("pushed %s, %v, want %s", pushed, err, want)
			}
			for _, from := range []string{reference + ":v1", pushed} {
				back, err := registries.Get(t.Context(), from)
				if err != nil {
					t.Fatal(err)
				}
				if contents, err := Read(back); err != nil || digest(t, back) != want || len(contents) != len(files) {
					t.Errorf("%s: read %s with %d objects, %v", from, digest(t, back), len(contents), err)
				}
			}
		})
	}
}

// A public image is read although the Docker configuration names a credential helper that isn't installed. If the registry
// requires credentials, the error says why there are none.
func TestMissingCredentialHelper(t *testing.T) {
	var locked atomic.Bool
	open := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if locked.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		open.ServeHTTP(w, q)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	config := t.TempDir()
	if err := os.WriteFile(filepath.Join(config, "config.json"), fmt.Appendf(nil, `{"credHelpers": {%q: "that-is-absent"}}`, host), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", config)
	authority := filepath.Join(config, "ca.crt")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	registries, err := NewRegistries(authority)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registries.Push(t.Context(), host+"/a:v1", empty.Image); err != nil {
		t.Error(err)
	}
	locked.Store(true)
	if _, err := registries.Get(t.Context(), host+"/a:v1"); err == nil || !strings.Contains(err.Error(), "401") || !strings.Contains(err.Error(), "docker-credential-that-is-absent") {
		t.Error(err)
	}
}

// An empty path is an error, and not the directory of the command.
func TestLayoutWithoutAPath(t *testing.T) {
	if err := WriteLayout("", empty.Image, time.Time{}); err == nil || !strings.Contains(err.Error(), "the path is empty") {
		t.Error(err)
	}
}

func TestProblems(t *testing.T) {
	f := file(t, counting, "")
	labels, err := Labels(f.Content)
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		labels       map[string]string
		architecture string
	}{
		"": {labels, "amd64"},
		"it is for s390x, but the object is little-endian, so bpfman refuses it": {labels, "s390x"},
	} {
		img, err := Image(f.Name, f.Content, c.labels, c.architecture, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		contents, err := Read(img)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(contents[0].Problems, "; "); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("problems %q, want %q", got, want)
		}
	}
}

// The label has the names of bpfman's MapType, which aren't all the kernel's.
func TestLabels(t *testing.T) {
	labels, err := Labels(file(t, "../../bin/bytecode/map_types.o", "").Content)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"array_map":"array","hash_map":"hash","hash_of_unions":"hash","hash_without_btf":"hash","lpm_trie_map":"lpm_trie","lru_hash_map":"lru_hash",` +
		`"lru_percpu_map":"lru_per_cpu_hash","percpu_array_map":"per_cpu_array","percpu_hash_map":"per_cpu_hash","perf_event_map":"perf_event_array",` +
		`"queue_map":"queue","ring_buffer":"ringbuf","stack_map":"stack"}`
	if labels[MapsLabel] != want || labels[ProgramsLabel] != `{"map_types":"tracepoint"}` {
		t.Errorf("labels %q, want %s", labels, want)
	}
}

func TestReadRefuses(t *testing.T) {
	zipped := func(content []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(content)
		_ = z.Close()
		return b.Bytes()
	}
	bomb, err := tarOf("bomb.o", make([]byte, reader.MaxObject+1), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for want, archive := range map[string][]byte{
		"its layer contains no file": make([]byte, 1024),
		"isn't a tar archive":        bytes.Repeat([]byte("no tar "), 200),
		"has more than 32 MiB":       bomb,
		"isn't a tar archive: arc":   zipped(bytes.Repeat([]byte("twice zipped"), 200)),
	} {
		want, _, _ = strings.Cut(want, ": arc")
		img, err := FromArchive(archive, nil, "amd64", time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(img); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	var none v1.Image
	if _, err := Read(none); err == nil {
		t.Error("nothing was read")
	}
}

// An archive isn't trusted. Files that aren't part of a layout aren't extracted, and content that doesn't match
// its digest isn't read.
func TestHostileArchives(t *testing.T) {
	image, err := Build([]File{file(t, counting, "amd64")}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "good.tar")
	if err := WriteLayout(good, image, time.Time{}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	var escaping bytes.Buffer
	w := tar.NewWriter(&escaping)
	for _, name := range []string{"../outside", outside, "blobs/sha256/../../../../../../" + outside} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: 1, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte("x"))
	}
	for name, c := range map[string]struct {
		content []byte
		err     string
	}{
		"no archive":   {[]byte("no archive at all, but long enough to be one" + strings.Repeat(".", 600)), "it isn't an OCI layout"},
		"empty":        {nil, "it isn't an OCI layout"},
		"cut":          {whole[:len(whole)/2], "unexpected EOF"},
		"escaping":     {append(escaping.Bytes(), make([]byte, 1024)...), "it isn't an OCI layout"},
		"another blob": {bytes.Replace(whole, []byte(`"linux"`), []byte(`"LINUX"`), 1), "instead of sha256:"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image.tar")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			back, closeIt, err := OpenLayout(path)
			if err == nil {
				_, err = Read(back)
			}
			closeIt()
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if _, err := os.Stat(outside); err == nil {
				t.Error("a file was written outside")
			}
		})
	}
}

// FuzzLayout checks that no archive makes reading panic.
func FuzzLayout(f *testing.F) {
	image, err := Build([]File{file(f, counting, "amd64")}, time.Time{})
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "image.tar")
	if err := WriteLayout(path, image, time.Time{}); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		back, closeIt, err := OpenLayout(path)
		defer closeIt()
		if err == nil {
			_, _ = Read(back)
		}
	})
}
