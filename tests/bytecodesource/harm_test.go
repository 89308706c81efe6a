// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/tests/must"
	testnode "github.com/bpfman/bpfman-operator/tests/node"
)

// mebi is a mebibyte.
const mebi = 1 << 20

// zeros returns a reader of n zeros.
func zeros(n int64) io.Reader { return io.LimitReader(endless{}, n) }

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// packed returns an image whose layer is the output of layer, gzipped, with labels for the
// requested program.
func packed(t *testing.T, layer func() io.Reader) v1.Image {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(layer()), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Config.Labels = map[string]string{bytecodeimage.ProgramsLabel: `{"tcx_next":"tc"}`, bytecodeimage.MapsLabel: `{}`}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

// archive returns the start of a tar archive with one file. The file's content follows.
func archive(t *testing.T, name string, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Succeed(t, tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}))
	return b.Bytes()
}

// sparse returns a tar archive with one file that consists of a hole, in GNU's old format.
// The daemon reads this format, and Go doesn't write it.
func sparse(t *testing.T, size string) []byte {
	t.Helper()
	b := archive(t, "sparse.o", 0)
	b[156] = 'S'
	copy(b[257:], "ustar  \x00")
	copy(b[386:], size+"\x00"+"00000000000\x00") // one empty piece at the end
	copy(b[483:], size+"\x00")
	return append(sealed(b[:512]), make([]byte, 1024)...)
}

// sealed sets the checksum of a header.
func sealed(b []byte) []byte {
	copy(b[148:], "        ")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], []byte{'0', octal(sum >> 15), octal(sum >> 12), octal(sum >> 9), octal(sum >> 6), octal(sum >> 3), octal(sum), 0})
	return b
}

func octal(n int) byte { return byte('0' + n&7) }

// twoFaces returns a tar archive with one sparse file, in the form that the attributes of a
// pax header describe. Go's archive/tar reads the second object in it, and the reader of the
// daemon of v0.6.0 the first one.
func twoFaces(t *testing.T, first, second []byte) []byte {
	t.Helper()
	content := fmt.Sprintf("1\n0\n%d\n", len(second))
	content += strings.Repeat("\x00", 512-len(content)) + string(second)
	records := ""
	for _, r := range [][2]string{{"GNU.sparse.major", "1"}, {"GNU.sparse.minor", "0"}, {"GNU.sparse.name", "b.o"}, {"GNU.sparse.realsize", strconv.Itoa(len(second))}} {
		line := r[0] + "=" + r[1] + "\n"
		size := len(line) + 3
		records += fmt.Sprintf("%d %s", size, line)
	}
	var b bytes.Buffer
	for _, entry := range []struct {
		kind    byte
		content string
	}{{'x', records}, {'0', content}, {'0', string(first)}} {
		head := archive(t, "a.o", int64(len(entry.content)))
		head[156] = entry.kind
		b.Write(sealed(head[:512]))
		b.WriteString(entry.content)
		b.Write(make([]byte, -len(entry.content)&511))
	}
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

// headerBomb returns a tar archive whose pax header has one record of 900 MiB.
func headerBomb(t *testing.T) io.Reader {
	t.Helper()
	const size = 900 * mebi
	head := archive(t, "a.o", size)
	head[156] = 'x'
	return io.MultiReader(bytes.NewReader(sealed(head[:512])), strings.NewReader("943718400 path="), zeros(size))
}

// Images that would exhaust the node's memory, or in which two readers see two objects, are
// refused with the reason, and never reach the daemon. The next object is processed.
func TestHarmfulImages(t *testing.T) {
	n := start(t)
	n.Push("good:latest", build(t, "tcx_test"))
	first := n.program("harm-first", n.image("good:latest", ""))
	n.create(first)
	n.loaded(first)
	before, err := testnode.MemoryOf(n.PID)
	if err != nil {
		t.Fatal(err)
	}
	const huge = 1024 * mebi
	object, other := bytecode(t, "tcx_test"), bytecode(t, "go-tcx-counter")
	for name, c := range map[string]struct {
		layer func() io.Reader
		says  string
	}{
		"bomb": {func() io.Reader {
			return io.MultiReader(bytes.NewReader(archive(t, "bomb.o", huge)), zeros(huge+1024))
		}, "32 MiB"},
		"header-bomb": {func() io.Reader { return headerBomb(t) }, "pax"},
		"two-faces":   {func() io.Reader { return bytes.NewReader(twoFaces(t, object, other)) }, "GNU.sparse"},
		"sparse-bomb": {func() io.Reader { return bytes.NewReader(sparse(t, "10000000000")) }, "POSIX ustar"},
		"fifty-megabytes": {func() io.Reader {
			return io.MultiReader(bytes.NewReader(archive(t, "large.o", 50*mebi)), bytes.NewReader(object), zeros(50*mebi-int64(len(object))+1024))
		}, "32 MiB"},
		"no-archive": {func() io.Reader { return bytes.NewReader(object) }, "tar"},
		"no-file":    {func() io.Reader { return zeros(1024) }, "no file"},
		"path-of-a-map": {func() io.Reader {
			content := bytes.ReplaceAll(bytecode(t, "pinned"), []byte("pinned_flows"), []byte("/run/.data/m"))
			return io.MultiReader(bytes.NewReader(archive(t, "thief.o", int64(len(content)))), bytes.NewReader(content), zeros(int64(-len(content)&511+1024)))
		}, `the name of its map "/run/.data/m"`},
	} {
		t.Run(name, func(t *testing.T) {
			n.Push(name+":latest", packed(t, c.layer))
			o := n.program("harm-"+name, n.image(name+":latest", v1alpha1.PullAlways))
			n.create(o)
			beside := n.program("harm-beside-"+name, n.image("good:latest", ""))
			n.create(beside)
			n.loaded(beside)
			n.fails(o, v1alpha1.BpfProgCondBytecodeSelectorError, "image "+n.Address+"/"+name+":latest: ", c.says)
			n.delete(o)
			n.delete(beside)
		})
	}
	after, err := testnode.MemoryOf(n.PID)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the daemon's memory: %d MiB before, %d MiB at most", before.Peak/mebi, after.Peak/mebi)
	if after.Peak > before.Peak+64*mebi {
		t.Errorf("the daemon's memory rose from %d to %d MiB", before.Peak/mebi, after.Peak/mebi)
	}
}

// An image of two layers is refused. The daemon of v0.6.0 panics at it, and a policy would
// see only one of them.
func TestTwoLayers(t *testing.T) {
	n := start(t)
	image := packed(t, func() io.Reader { return bytes.NewReader(archive(t, "a.o", 0)) })
	second, err := build(t, "tcx_test").Layers()
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, second...); err != nil {
		t.Fatal(err)
	}
	n.Push("layers:latest", image)
	o := n.program("layers", n.image("layers:latest", ""))
	n.create(o)
	n.fails(o, v1alpha1.BpfProgCondBytecodeSelectorError, "2 layers")
}

// The name of a file in an archive isn't used, so names that lead out of the archive have no
// effect.
func TestNamesThatLeadOut(t *testing.T) {
	n := start(t)
	object := bytecode(t, "tcx_test")
	const outside = "/run/outside.o"
	for what, name := range map[string]string{"above": "../../../../../../.." + outside, "absolute": outside} {
		t.Run(what, func(t *testing.T) {
			n.Push(what+":latest", packed(t, func() io.Reader {
				padding := int64(512 - len(object)%512)
				return io.MultiReader(bytes.NewReader(archive(t, name, int64(len(object)))), bytes.NewReader(object), zeros(padding+1024))
			}))
			o := n.program("names-"+what, n.image(what+":latest", ""))
			n.create(o)
			n.loaded(o)
			for _, path := range []string{outside, n.Path(outside)} {
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("%s was written: %v", path, err)
				}
			}
		})
	}
}
