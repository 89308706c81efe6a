// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"archive/tar"
	"io"
	"testing"
)

func TestSnakeCase(t *testing.T) {
	for name, want := range map[string]string{
		"Hash": "hash", "PerCPUArray": "per_cpu_array", "LPMTrie": "lpm_trie", "RingBuf": "ring_buf",
	} {
		if got := snakeCase(name); got != want {
			t.Errorf("snakeCase(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestProgramType(t *testing.T) {
	for section, want := range map[string]string{
		"xdp": "xdp", "classifier": "tc", "uprobe": "uprobe",
		"tracepoint/syscalls/sys_enter_kill": "tracepoint", "fexit/do_unlinkat": "fexit",
	} {
		if got := programType(section); got != want {
			t.Errorf("programType(%q) = %q, want %q", section, got, want)
		}
	}
}

func TestBuildRefusesWhatIsNoObject(t *testing.T) {
	if _, err := Build("x.o", []byte("not an object")); err == nil {
		t.Error("Build took a text for an eBPF object")
	}
}

func TestImageHoldsTheFileAlone(t *testing.T) {
	img, err := Image("x.o", []byte("content"), map[string]string{"label": "value"})
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
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 1 {
		t.Fatalf("%d layers, want 1", len(layers))
	}
	archive, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(archive)
	header, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if header.Name != "x.o" || string(content) != "content" {
		t.Errorf("layer holds %q with %q, want x.o with its content", header.Name, content)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("after the file comes %v, want the archive's end", err)
	}
}

func TestImageIsReproducible(t *testing.T) {
	digest := func() string {
		img, err := Image("x.o", []byte("content"), nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	if a, b := digest(), digest(); a != b {
		t.Errorf("two builds differ: %s, %s", a, b)
	}
}
