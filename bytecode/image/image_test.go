// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

// zipped compresses an archive.
func zipped(tb testing.TB, archive []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(archive); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// archived returns an archive with the entries. A file contains its own name.
func archived(tb testing.TB, headers ...*tar.Header) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg || h.Typeflag == 0 {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(h); err != nil {
			tb.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, h.Name); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// changed returns an archive whose first header has other bytes at an offset, with the
// right checksum.
func changed(archive []byte, at int, to string) []byte {
	b := bytes.Clone(archive)
	copy(b[at:], to)
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b[:blockSize] {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// paxed returns an archive with a pax header of the given records.
func paxed(tb testing.TB, records string) []byte {
	tb.Helper()
	head := make([]byte, blockSize)
	copy(head, "PaxHeaders.0/xdp.o")
	copy(head[100:], "0000644\x000000000\x000000000\x00")
	copy(head[124:], fmt.Sprintf("%011o\x0000000000000\x00", len(records)))
	head[typeflag] = 'x'
	copy(head[magicAt:], magic)
	body := append([]byte(records), make([]byte, -len(records)&(blockSize-1))...)
	return append(append(changed(head, 0, ""), body...), archived(tb, &tar.Header{Name: "xdp.o", Mode: 0o644})...)
}

func paxRecord(key, value string) string {
	for n := len(key) + len(value) + 3; ; n++ {
		if text := fmt.Sprintf("%d %s=%s\n", n, key, value); len(text) == n {
			return text
		}
	}
}

var when = time.Date(2026, 11, 23, 7, 0, 0, 123456789, time.UTC)

// accepted returns layers in the form of builders' output.
func accepted(tb testing.TB) map[string][]byte {
	tb.Helper()
	file := func() *tar.Header { return &tar.Header{Name: "xdp.o", Mode: 0o644, ModTime: when} }
	directory := &tar.Header{Typeflag: tar.TypeDir, Name: "opt/", Mode: 0o755, ModTime: when}
	// moby/moby pkg/archive.FileInfoHeader and containerd's pkg/archive, which BuildKit
	// uses, as well as containers/storage: FormatPAX, a ModTime in seconds, and neither
	// AccessTime nor ChangeTime.
	moby := file()
	moby.Format, moby.ModTime = tar.FormatPAX, when.Truncate(time.Second)
	// The same with extended attributes, as on a file system with SELinux.
	labelled := file()
	labelled.Format, labelled.ModTime = tar.FormatPAX, when.Truncate(time.Second)
	labelled.PAXRecords = map[string]string{"SCHILY.xattr.security.selinux": "system_u:object_r:container_file_t:s0\x00"}
	// All times, as archivers that keep them write them.
	timed := file()
	timed.Format, timed.AccessTime, timed.ChangeTime = tar.FormatPAX, when, when
	// kaniko and ko leave the format to archive/tar: ustar, unless something doesn't fit.
	owner := file()
	owner.Uid, owner.Uname = 1<<24, "jürgen"
	long := file()
	long.Name = strings.Repeat("d/", 200) + "xdp.o"
	prefixed := file()
	prefixed.Name = strings.Repeat("d", 90) + "/" + strings.Repeat("e", 90) + ".o"
	layers := map[string][]byte{}
	for name, headers := range map[string][]*tar.Header{
		"moby": {moby}, "BuildKit with a directory": {directory, file()}, "selinux": {labelled}, "times": {timed}, "ko": {file()},
		"owner": {owner}, "long name": {long}, "prefix": {prefixed},
	} {
		layers[name] = zipped(tb, archived(tb, headers...))
	}
	layers["records of 10 KiB"] = zipped(tb, append(archived(tb, file()), make([]byte, 16<<10)...))
	return layers
}

func TestOpen(t *testing.T) {
	for name, layer := range accepted(t) {
		file, object, err := Open(layer)
		if err != nil || file != string(object) || !strings.HasSuffix(file, ".o") {
			t.Errorf("%s: %q, %q, %v", name, file, object, err)
		}
	}
}

// refused returns layers that have another form, by a part of the message.
func refused(tb testing.TB) map[string][]byte {
	tb.Helper()
	file := func() *tar.Header { return &tar.Header{Name: "xdp.o", Mode: 0o644} }
	plain := archived(tb, file())
	layers := map[string][]byte{}
	for message, archive := range map[string][]byte{
		"contains no file":         archived(tb),
		"more than one file":       archived(tb, file(), &tar.Header{Name: ".wh.xdp.o"}),
		"directory after its file": archived(tb, file(), &tar.Header{Typeflag: tar.TypeDir, Name: "d/"}),
		"a hard link":              archived(tb, &tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "/etc/shadow"}),
		"a symbolic link":          archived(tb, &tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc/shadow"}),
		"a character device":       archived(tb, &tar.Header{Typeflag: tar.TypeChar, Name: "a"}),
		"a FIFO":                   archived(tb, &tar.Header{Typeflag: tar.TypeFifo, Name: "a"}),
		"ustar or pax format":      archived(tb, &tar.Header{Name: "a", Format: tar.FormatGNU}),
		"global pax header":        archived(tb, &tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "g", PAXRecords: map[string]string{"path": "b"}}),
		"a sparse file":            changed(plain, typeflag, "S"),
		"a GNU long name":          changed(plain, typeflag, "L"),
		"a GNU long link name":     changed(plain, typeflag, "K"),
		`unknown type "Z"`:         changed(plain, typeflag, "Z"),
		"wrong checksum":           append([]byte("y"), plain[1:]...),
		"number that isn't octal":  changed(plain, 124, "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05"),
		"more than 32 MiB":         changed(plain, 124, "77777777777\x00"),
		"target of a link":         changed(plain, 157, "/etc/shadow"),
		"after its last field":     changed(plain, 508, "tar\x00"),
		"name of a directory":      changed(plain, 0, "xdp/\x00"),
		"without a name":           changed(plain, 0, "\x00\x00\x00\x00\x00"),
		"with 5 bytes":             changed(plain, typeflag, "5"),
		"two blocks of zeros":      plain[:len(plain)-blockSize],
		"ends too early":           plain[:blockSize+2],
		"data after the end":       append(bytes.Clone(plain), 'x'),
		"MiB of zeros":             append(bytes.Clone(plain), make([]byte, 2<<20)...),
		"padding of a file":        append(append(bytes.Clone(plain[:2*blockSize-1]), 'x'), plain[2*blockSize:]...),
		// The attack with two objects in one layer.
		`the record "GNU.sparse.major=1"`:     paxed(tb, paxRecord("GNU.sparse.major", "1")+paxRecord("GNU.sparse.minor", "0")),
		`the record "GNU.sparse.size=9"`:      paxed(tb, paxRecord("GNU.sparse.size", "9")),
		`the record "SCHILY.realsize=9"`:      paxed(tb, paxRecord("SCHILY.realsize", "9")),
		`the record "size=9"`:                 paxed(tb, paxRecord("size", "9")),
		`the record "linkpath=/etc/shadow"`:   paxed(tb, paxRecord("linkpath", "/etc/shadow")),
		`the record "hdrcharset=BINARY"`:      paxed(tb, paxRecord("hdrcharset", "BINARY")),
		`the record "mtime=soon"`:             paxed(tb, paxRecord("mtime", "soon")),
		`the record "path="`:                  paxed(tb, paxRecord("path", "")),
		`the record "path=a\x00b"`:            paxed(tb, paxRecord("path", "a\x00b")),
		`the record "\u202e=\x1b"`:            paxed(tb, paxRecord("\u202e", "\x1b")),
		`two records "path"`:                  paxed(tb, paxRecord("path", "a")+paxRecord("path", "b")),
		"malformed pax header":                paxed(tb, "99 path=a\n"),
		"pax header of more than 64 KiB":      paxed(tb, paxRecord("comment", strings.Repeat("x", maxExtended))),
		"two pax headers":                     append(bytes.Clone(paxed(tb, paxRecord("path", "a"))[:2*blockSize]), paxed(tb, paxRecord("path", "a"))...),
		"a pax header without an entry":       append(bytes.Clone(paxed(tb, paxRecord("path", "a"))[:2*blockSize]), make([]byte, 2*blockSize)...),
		"contains more than 256 directories":  directories(tb, maxDirectories+1),
		"more than 64 KiB":                    changed(paxed(tb, "")[:blockSize], 124, "77777777777\x00"), // 8 GiB that aren't there
		"isn't a tar archive in POSIX ustar ": []byte(strings.Repeat("no archive", 60)),
	} {
		layers[message] = zipped(tb, archive)
	}
	layer := zipped(tb, plain)
	layers["isn't in gzip's format"] = plain
	layers["after the gzip stream"] = append(bytes.Clone(layer), layer...)
	layers["data after the gzip stream"] = append(bytes.Clone(layer), 0)
	wrong := bytes.Clone(layer)
	wrong[len(wrong)-1]++
	layers["checksum or size is wrong"] = wrong
	layers["its layer ends too early"] = layer[:len(layer)-4]
	layers["its layer has more than 32 MiB"] = make([]byte, reader.MaxObject+1)
	return layers
}

func directories(tb testing.TB, n int) []byte {
	tb.Helper()
	var headers []*tar.Header
	for i := range n {
		headers = append(headers, &tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("%d/", i)})
	}
	return archived(tb, headers...)
}

func TestOpenRefuses(t *testing.T) {
	for message, layer := range refused(t) {
		_, object, err := Open(layer)
		if unfit, ok := errors.AsType[*UnfitError](err); !ok || !strings.Contains(unfit.Text, message) || object != nil {
			t.Errorf("%v, want %q", err, message)
		}
	}
}

// A layer of a few kilobytes can be decompressed to gigabytes.
func TestOpenOfABomb(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	head := archived(t, &tar.Header{Name: "xdp.o"})[:blockSize]
	if _, err := z.Write(changed(head, 124, fmt.Sprintf("%011o", reader.MaxObject))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(z, zeros{}, 200<<20); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(b.Bytes()); err == nil || !strings.Contains(err.Error(), "MiB of zeros") {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// FuzzOpen compares Open with archive/tar and compress/gzip: what Open accepts, they read
// in the same way.
func FuzzOpen(f *testing.F) {
	for _, layers := range []map[string][]byte{accepted(f), refused(f)} {
		for _, layer := range layers {
			if len(layer) < 1<<20 {
				f.Add(layer, false)
				if archive, err := unzip(layer); err == nil && len(archive) < 1<<20 {
					f.Add(archive, true)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, layer []byte, raw bool) {
		if raw {
			layer = zipped(t, layer)
		}
		name, object, err := Open(layer)
		if err != nil {
			if _, ok := errors.AsType[*UnfitError](err); !ok || len(err.Error()) > 600 {
				t.Fatal(err)
			}
			return
		}
		archive, err := unzip(layer)
		if err != nil {
			t.Fatal(err)
		}
		in := tar.NewReader(bytes.NewReader(archive))
		for files := 0; ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) && files == 1 {
				return
			}
			if err != nil {
				t.Fatalf("%v after %d files", err, files)
			}
			if h.Typeflag == tar.TypeDir && files == 0 {
				continue
			}
			files++
			content, err := io.ReadAll(in)
			if h.Typeflag != tar.TypeReg || h.Name != name || err != nil || !bytes.Equal(content, object) {
				t.Fatalf("%+v, %v", h, err)
			}
		}
	})
}

// unzip decompresses all members of a gzip file.
func unzip(layer []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// Python's and GNU's readers see the same file as Open.
func TestOtherReaders(t *testing.T) {
	const python = `import sys, tarfile
with tarfile.open(sys.argv[1]) as archive:
    files = [f for f in archive if not f.isdir()]
    assert len(files) == 1 and files[0].isreg(), files
    open(sys.argv[2], "wb").write(archive.extractfile(files[0]).read())`
	for name, command := range map[string]func(ctx context.Context, layer, object string) *exec.Cmd{
		"python3": func(ctx context.Context, layer, object string) *exec.Cmd {
			return exec.CommandContext(ctx, "python3", "-c", python, layer, object)
		},
		"tar": func(ctx context.Context, layer, object string) *exec.Cmd {
			return exec.CommandContext(ctx, "sh", "-c", `tar --extract --gzip --to-stdout --file "$0" > "$1"`, layer, object)
		},
	} {
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("%s isn't installed", name)
			continue
		}
		for layerName, layer := range accepted(t) {
			dir := t.TempDir()
			in, out := filepath.Join(dir, "layer.tar.gz"), filepath.Join(dir, "object")
			if err := os.WriteFile(in, layer, 0o600); err != nil {
				t.Fatal(err)
			}
			if text, err := command(t.Context(), in, out).CombinedOutput(); err != nil {
				t.Errorf("%s, %s: %v: %s", name, layerName, err, text)
				continue
			}
			got, err := os.ReadFile(out)
			_, object, refused := Open(layer)
			if err != nil || refused != nil || !bytes.Equal(got, object) {
				t.Errorf("%s, %s: %q, %v, %v", name, layerName, got, err, refused)
			}
		}
	}
}

// Open accepts what archivers in distributions write by default.
func TestOtherWriters(t *testing.T) {
	const python = `import sys, tarfile
with tarfile.open(sys.argv[1], "w:gz", format=int(sys.argv[3])) as archive:
    archive.add(sys.argv[2], "opt")`
	for name, arguments := range map[string][]string{
		"GNU ustar":    {"tar", "--format=ustar", "-czf", "OUT", "-C", "IN", "."},
		"GNU pax":      {"tar", "--format=pax", "-czf", "OUT", "-C", "IN", "."},
		"bsdtar":       {"bsdtar", "-czf", "OUT", "-C", "IN", "."},
		"Python ustar": {"python3", "-c", python, "OUT", "IN", "0"},
		"Python pax":   {"python3", "-c", python, "OUT", "IN", "2"},
	} {
		dir := t.TempDir()
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		if err := os.MkdirAll(in, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(in, "xdp.o"), []byte("content"), fs.FileMode(0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath(arguments[0]); err != nil {
			t.Logf("%s isn't installed", arguments[0])
			continue
		}
		for i, a := range arguments {
			arguments[i] = map[string]string{"IN": in, "OUT": out}[a]
			if arguments[i] == "" {
				arguments[i] = a
			}
		}
		if text, err := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, text)
		}
		layer, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if file, object, err := Open(layer); err != nil || string(object) != "content" || !strings.HasSuffix(file, "xdp.o") {
			t.Errorf("%s: %q, %q, %v", name, file, object, err)
		}
	}
}
