// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/bpfman/bpfman-operator/apis/prerequisite"
)

// objects is the directory with the output of `make bytecode`.
const objects = "../../bin/bytecode"

func compiled(tb testing.TB, name string) []byte {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join(objects, name))
	if err != nil {
		prerequisite.Missing(tb, "run `make bytecode` first", prerequisite.Bytecode)
	}
	return content
}

// parsersOwn returns an object from the parser's own tests, in the module cache.
func parsersOwn(tb testing.TB, name string) []byte {
	tb.Helper()
	directory, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/ebpf").Output()
	if err != nil {
		tb.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(directory)), "testdata", name))
	if err != nil {
		tb.Skip("modules are without their tests' data")
	}
	return content
}

func TestCompiledObjects(t *testing.T) {
	for name, want := range map[string]Used{
		"go-app-counter.o": {[]string{"bpf_map_lookup_elem"}, []string{"percpu_array"}},
		"map_types.o": {
			[]string{"bpf_map_push_elem", "bpf_map_update_elem", "bpf_perf_event_output", "bpf_ringbuf_output"},
			[]string{
				"array", "hash", "lpm_trie", "lru_hash", "lru_percpu_hash", "percpu_array", "percpu_hash", "perf_event_array",
				"queue", "ringbuf", "stack",
			},
		},
		// Its constants are a map.
		"xdp_pass.o": {nil, []string{"array"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := OfLayer(layer(t, compiled(t, name)))
			if err != nil || !slices.Equal(got.Helpers, want.Helpers) || !slices.Equal(got.MapTypes, want.MapTypes) {
				t.Errorf("%#v, %v", got, err)
			}
		})
	}
}

func TestKernelFunctions(t *testing.T) {
	got, err := Of(parsersOwn(t, "kfunc-el.elf"))
	if err != nil || !slices.Contains(got.Helpers, "kfunc:bpf_cpumask_create") {
		t.Errorf("%q, %v", got.Helpers, err)
	}
}

// Helpers have the names in this machine's linux/bpf.h, for all helpers that the library
// knows.
func TestNamesOfHelpers(t *testing.T) {
	header, err := os.ReadFile("/usr/include/linux/bpf.h")
	if err != nil {
		prerequisite.Missing(t, err.Error(), prerequisite.Headers)
	}
	known := map[string]bool{}
	for f := asm.FnMapLookupElem; f <= asm.FnCgrpStorageDelete; f++ {
		known[helper(f)] = true
	}
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^\s+FN\((\w+)(?:, \d+, [^)]*)?\),?\s*\\`).FindAllStringSubmatch(string(header), -1) {
		if m[1] == "unspec" {
			continue
		}
		found++
		if !known["bpf_"+m[1]] {
			t.Errorf("bpf_%s isn't known", m[1])
		}
	}
	if found < 200 {
		t.Errorf("%d helpers in the header", found)
	}
}

func TestUnknownNames(t *testing.T) {
	for got, want := range map[string]string{
		helper(asm.BuiltinFunc(999)):     "unknown#999",
		helper(asm.FnUnspec):             "unknown#0",
		helper(asm.FnGetPrandomU32):      "bpf_get_prandom_u32",
		helper(asm.FnSkcToTcp6Sock):      "bpf_skc_to_tcp6_sock",
		helper(asm.FnL3CsumReplace):      "bpf_l3_csum_replace",
		mapType(ebpf.MapType(999)):       "unknown#999",
		mapType(ebpf.LRUCPUHash):         "lru_percpu_hash",
		mapType(ebpf.ReusePortSockArray): "reuseport_sockarray",
		mapType(ebpf.Arena):              "arena",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func layer(tb testing.TB, files ...[]byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: "x.o", Mode: 0o644, Size: int64(len(content))}); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func TestUnfit(t *testing.T) {
	long := layer(t, make([]byte, maxObject+1))
	for name, c := range map[string]struct {
		layer []byte
		want  string
	}{
		"empty":         {nil, "the image's layer isn't a gzipped tar archive"},
		"no gzip":       {[]byte("neither gzip nor tar"), "the image's layer isn't a gzipped tar archive"},
		"no file":       {layer(t), "the image's layer contains no files"},
		"no object":     {layer(t, []byte("no object")), "the bytecode can't be read: "},
		"cut object":    {layer(t, compiledOr(t, 300)), "the bytecode can't be read: "},
		"too large":     {long, "the image's first file has more than 8 MiB"},
		"cut archive":   {long[:len(long)/2], "the image's first file has more than 8 MiB"},
		"cut file":      {layer(t, bytes.Repeat([]byte("some text of a file "), 9999))[:200], "the image's first file can't be read to its end"},
		"empty file":    {layer(t, nil), "the bytecode can't be read: "},
		"first is read": {layer(t, []byte("no object"), compiledOr(t, 0)), "the bytecode can't be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OfLayer(c.layer)
			if _, unfit := errors.AsType[*UnfitError](err); !unfit || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// compiledOr returns an object, truncated if a length is given.
func compiledOr(tb testing.TB, length int) []byte {
	tb.Helper()
	content := parsersOwn(tb, "kfunc-el.elf")
	if length > 0 {
		content = content[:length]
	}
	return content
}

// For any layer or object, reading is limited, and returns a result or an UnfitError.
func FuzzOf(f *testing.F) {
	for _, name := range []string{"kfunc-el.elf", "kconfig-el.elf", "btf_map_init-el.elf", "invalid_map-el.elf", "arena-el.elf"} {
		f.Add(parsersOwn(f, name))
	}
	f.Add(layer(f, []byte("x")))
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 1<<20 {
			return
		}
		for _, read := range []func([]byte) (Used, error){Of, OfLayer} {
			used, err := read(content)
			if _, unfit := errors.AsType[*UnfitError](err); err != nil && !unfit {
				t.Errorf("%T: %v", err, err)
			}
			if err != nil && strings.ContainsRune(err.Error(), '\n') {
				t.Errorf("several lines: %q", err)
			}
			if !slices.IsSorted(used.Helpers) || slices.Contains(used.Helpers, "") {
				t.Errorf("helpers %q", used.Helpers)
			}
		}
	})
}
