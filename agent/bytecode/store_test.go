// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

// digest returns a valid digest.
func digest(text string) string { return "sha256:" + hash([]byte(text)) }

// named returns a resolved image.
func named(reference string) Image {
	return Image{Reference: reference, Digest: digest("index of " + reference), Manifest: digest(reference)}
}

func described(content string) reader.Object {
	return reader.Object{
		Digest: digest(content), Size: int64(len(content)), Functions: []reader.Function{{Name: "f", Section: "xdp"}}, License: "GPL",
		Adapted: reader.Adapted{Digest: digest(content), Size: int64(len(content)), Format: reader.Format},
	}
}

// adaptedTo describes an object that is adapted to a kernel: its content ends with that.
func adaptedTo(kernel, content string) reader.Object {
	object := described(content)
	content += " for " + kernel
	object.Adapted = reader.Adapted{Digest: digest(content), Size: int64(len(content)), Kernel: kernel, Format: reader.Format}
	return object
}

// put stores an object with some content, and what object says about it.
func put(t *testing.T, s *Store, image Image, content string, object reader.Object) (string, error) {
	t.Helper()
	files, err := s.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Discard()
	_, err = files.Object.WriteString(content)
	if _, failed := files.Adapted.WriteString(content + " for " + object.Adapted.Kernel); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return s.Put("", image, files, object)
}

// stocked returns a store with one object per name, the first of which wasn't used for the
// longest time. Each has 10 bytes.
func stocked(t *testing.T, limit int64, names ...string) *Store {
	t.Helper()
	s := &Store{Dir: t.TempDir(), Limit: limit}
	for n, name := range names {
		content := fmt.Sprintf("%10s", name)
		path, err := put(t, s, named("quay.io/"+name), content, described(content))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(n-len(names)) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// has returns which of these names' objects a store has, without marking them as used.
func has(s *Store, names ...string) string {
	var have []string
	for _, name := range names {
		base, err := s.base(named("quay.io/" + name))
		_, missing := os.Stat(base + objectSuffix)
		_, unknown := os.Stat(base + recordSuffix)
		if err == nil && missing == nil && unknown == nil {
			have = append(have, name)
		}
	}
	return strings.Join(have, " ")
}

// files returns the names of all files below a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			all = append(all, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What was put is found, at a path that names the image.
func TestStoreKeepsObjects(t *testing.T) {
	longest := strings.Repeat("n", 120)
	for reference, repository := range map[string]string{
		"quay.io/a/b":                            "quay.io/a/b",
		"quay.io/a/b:v1":                         "quay.io/a/b",
		"quay.io/a/b:v1@" + digest("d"):          "quay.io/a/b",
		"alpine":                                 "docker.io/library/alpine",
		"registry.example:5000/a":                "registry.example:5000/a",
		"127.0.0.1:1/x":                          "127.0.0.1:1/x",
		"[::1]:5000/x":                           "[::1]:5000/x",
		"quay.io/a/b/c/d/e/f/g/h/i/j/k/l/m/n":    "quay.io/a/b/c/d/e/f/g/h/i/j/k/l/m/n",
		"quay.io/a.b/c_d/e__f/g-h/images.o":      "quay.io/a.b/c_d/e__f/g-h/images.o",
		"quay.io/" + longest + "/" + longest[1:]: "quay.io/" + longest + "/" + longest[1:],
	} {
		s := &Store{Dir: t.TempDir(), Limit: 1000}
		image := named(reference)
		if _, _, ok := s.Object(image); ok {
			t.Errorf("%s: there before it was put", reference)
		}
		path, err := put(t, s, image, "object", described("object"))
		if want := filepath.Join(s.Dir, "images", repository+"@"+image.Manifest+".o"); err != nil || path != want {
			t.Errorf("%s: put to %s, %v, want %s", reference, path, err, want)
			continue
		}
		found, object, ok := s.Object(image)
		if content, err := os.ReadFile(path); !ok || found != path || !reflect.DeepEqual(object, described("object")) || err != nil || string(content) != "object" {
			t.Errorf("%s: %s, %+v, %v; it contains %q, %v", reference, found, object, ok, content, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != objectMode {
			t.Errorf("%s: %v, %v", reference, info, err)
		}
		if err := s.Keep(image); err != nil {
			t.Error(err)
		}
		if got, ok := s.Resolved(reference); !ok || got != image {
			t.Errorf("%s was resolved to %+v", reference, got)
		}
		if s.Size() != int64(len("object")) {
			t.Errorf("%d bytes", s.Size())
		}
	}
}

// The second manifest of a repository, and an object that is put again, replace nothing else.
func TestStoreReplacesObjects(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Limit: 10}
	first, second := named("quay.io/a"), named("quay.io/a")
	second.Manifest = digest("second")
	for range 2 {
		for _, image := range []Image{first, second} {
			if _, err := put(t, s, image, "12345", described("12345")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, image := range []Image{first, second} {
		if _, _, ok := s.Object(image); !ok {
			t.Errorf("%s is absent", image.Manifest)
		}
	}
	// A damaged object that is in use is replaced, although there is no space for another.
	s.Used = func() []Image { return []Image{first, second} }
	path, _, _ := s.Object(first)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("54321"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := put(t, s, first, "12345", described("12345")); err != nil {
		t.Error(err)
	}
}

// What the daemon loads is stored beside the image's object if it is another one. It is only for its kernel and this
// version of bpfman, and can be made again from the image's object at any time, even after a crash.
func TestStoreKeepsAdaptedObjects(t *testing.T) {
	image := named("quay.io/a")
	s := &Store{Dir: t.TempDir(), Limit: 1000, Kernel: "6.1"}
	path, err := put(t, s, image, "object", adaptedTo("6.1", "object"))
	if err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSuffix(path, adapted+objectSuffix)
	if content, err := os.ReadFile(path); err != nil || string(content) != "object for 6.1" || s.Size() != int64(len("object"+"object for 6.1")) {
		t.Errorf("%s has %q, %v; %d bytes", path, content, err, s.Size())
	}
	usable := func(want bool) {
		t.Helper()
		if found, _, ok := s.Object(image); ok != want || ok && found != path {
			t.Errorf("found %s, %v", found, ok)
		}
		object, ok := s.ImageObject(image)
		files, err := s.Copy(image)
		if err != nil || !ok || object.Digest != digest("object") {
			t.Fatalf("%+v, %v", object, err)
		}
		defer files.Discard()
		if content, err := io.ReadAll(files.Object); err != nil || string(content) != "object" {
			t.Errorf("%q, %v", content, err)
		}
	}
	usable(true)
	s.Kernel = "6.12"
	usable(false)
	s.Kernel = "6.1"
	record, err := os.ReadFile(base + recordSuffix)
	if err != nil {
		t.Fatal(err)
	}
	// A crash after the file was replaced, and before its record is.
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("object for 6.12"), 0o600)); err != nil {
		t.Fatal(err)
	}
	usable(false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	usable(false)
	// The record of another version of bpfman.
	other := strings.Replace(string(record), fmt.Sprintf(`"format":%d`, reader.Format), `"format":0`, 1)
	if err := os.WriteFile(base+recordSuffix, []byte(other), recordMode); err != nil || other == string(record) {
		t.Fatal(other, err)
	}
	usable(false)
	if path, err = put(t, s, image, "object", adaptedTo("6.1", "object")); err != nil {
		t.Fatal(err)
	}
	usable(true)
	if _, err := s.Copy(named("quay.io/b")); err == nil {
		t.Error("copied what isn't there")
	}
	if same, err := put(t, s, image, "object", described("object")); err != nil || same != base+objectSuffix || s.Size() != int64(len("object")) {
		t.Errorf("%s, %v; %d bytes", same, err, s.Size())
	}
	if _, err := put(t, s, image, "object", adaptedTo("6.1", "object")); err != nil {
		t.Fatal(err)
	}
	// All files of an image make room together.
	s.Limit = 25
	if _, err := put(t, s, named("quay.io/b"), "another", described("another")); err != nil || len(files(t, s.Dir)) != 2 {
		t.Errorf("%q, %v", files(t, s.Dir), err)
	}
}

// Nothing is stored if the object isn't what the reader said, or if the image isn't resolved.
func TestStoreRefuses(t *testing.T) {
	good := named("quay.io/a")
	for name, c := range map[string]struct {
		image  Image
		object reader.Object
		want   string
	}{
		"another digest": {good, reader.Object{Digest: digest("other"), Size: 6}, "store image quay.io/a: its object is " + digest("object") + " with 6 bytes instead of " + digest("other") + " with 6"},
		"another size":   {good, reader.Object{Digest: digest("object"), Size: 7}, " with 6 bytes instead of " + digest("object") + " with 7"},
		"no description": {good, reader.Object{}, " with 6 bytes instead of  with 0"},
		"no manifest":    {Image{Reference: "quay.io/a", Digest: good.Digest}, described("object"), `image quay.io/a: "" is not a digest`},
		"no digest":      {Image{Reference: "quay.io/a", Manifest: good.Digest}, described("object"), `image quay.io/a: "" is not a digest`},
		"a path":         {Image{Reference: "quay.io/a", Digest: good.Digest, Manifest: "sha256:../../x"}, described("object"), `"sha256:../../x" is not a digest`},
		"a line":         {Image{Reference: "quay.io/a", Digest: good.Digest, Manifest: good.Manifest + "\n"}, described("object"), `\n" is not a digest`},
		"no reference":   {Image{Reference: "../x", Digest: good.Digest, Manifest: good.Manifest}, described("object"), `store image ../x: bytecode image "../x": invalid reference format`},
		"too long":       {named("quay.io/" + strings.Repeat("n", 256)), described("object"), "must not be more than"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Store{Dir: t.TempDir(), Limit: 1000}
			if _, err := put(t, s, c.image, "object", c.object); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if left := files(t, s.Dir); len(left) > 0 {
				t.Errorf("%q is left", left)
			}
			if path, _, ok := s.Object(c.image); ok && c.image != good {
				t.Errorf("found at %s", path)
			}
		})
	}
	s := &Store{Dir: t.TempDir()}
	if err := s.Keep(Image{Reference: "quay.io/a", Digest: "sha256:x", Manifest: good.Manifest}); err == nil || len(files(t, s.Dir)) > 0 {
		t.Errorf("kept: %v", err)
	}
}

// What is damaged on the disk is the same as what was never there.
func TestDamagedStore(t *testing.T) {
	image := named("quay.io/a")
	for name, damage := range map[string]func(base string) error{
		"no object":        func(base string) error { return os.Remove(base + ".o") },
		"no record":        func(base string) error { return os.Remove(base + ".json") },
		"truncated object": func(base string) error { return os.Truncate(base+".o", 3) },
		"empty object":     func(base string) error { return os.Truncate(base+".o", 0) },
		"altered object":   func(base string) error { return os.WriteFile(base+".o", []byte("0bject"), 0o600) },
		"truncated record": func(base string) error { return os.Truncate(base+".json", 20) },
		"empty record":     func(base string) error { return os.Truncate(base+".json", 0) },
		"another's record": func(base string) error {
			return os.WriteFile(base+".json", []byte(`{"digest":"`+digest("x")+`"}`), 0o600)
		},
		"a record of nobody": func(base string) error { return os.WriteFile(base+".json", []byte(`null`), 0o600) },
		"directory":          func(base string) error { _ = os.Remove(base + ".o"); return os.Mkdir(base+".o", 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &Store{Dir: t.TempDir(), Limit: 1000}
			path, err := put(t, s, image, "object", described("object"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := damage(strings.TrimSuffix(path, ".o")); err != nil {
				t.Fatal(err)
			}
			if path, object, ok := s.Object(image); ok || path != "" || !reflect.DeepEqual(object, reader.Object{}) {
				t.Errorf("%s, %+v, %v", path, object, ok)
			}
			if name == "directory" {
				return
			}
			if _, err := put(t, s, image, "object", described("object")); err != nil {
				t.Fatal(err)
			}
			if _, _, ok := s.Object(image); !ok {
				t.Error("it can't be mended")
			}
		})
	}
	// A record of another reference, or with digests that are none.
	s := &Store{Dir: t.TempDir()}
	for name, r := range map[string]resolution{
		"another": resolution(named("quay.io/b")), "a path": {"quay.io/a", digest("a"), "sha256:../../x"}, "empty": {Reference: "quay.io/a"},
	} {
		if err := s.put(s.reference("quay.io/a"), r); err != nil {
			t.Fatal(err)
		}
		if got, ok := s.Resolved("quay.io/a"); ok {
			t.Errorf("%s: resolved to %+v", name, got)
		}
	}
}

// No reference and no digest leads out of the directory.
func FuzzBase(f *testing.F) {
	for _, reference := range []string{"quay.io/a:v1", "../../etc/passwd", "/etc/passwd", "quay.io/../../x", "a/..", "x@" + digest("x"), "127.0.0.1:1/x", "[::1]:5/x", "quay.io/a%2f..", "..", ".", "", "quay.io//a", "q\x00/a"} {
		for _, digest := range []string{digest("x"), "sha256:../../x", "sha512:" + strings.Repeat("a", 128), "", "/", "sha256:" + strings.Repeat("A", 64)} {
			f.Add(reference, digest)
		}
	}
	s := &Store{Dir: "/var/lib/bpfman/bytecode"}
	f.Fuzz(func(t *testing.T, reference, manifest string) {
		for _, image := range []Image{{reference, manifest, manifest}, {reference, digest("x"), manifest}} {
			base, err := s.base(image)
			if err != nil {
				if base != "" {
					t.Errorf("%s with an error", base)
				}
				continue
			}
			rest, below := strings.CutPrefix(base, s.Dir+"/images/")
			if !below || filepath.Clean(base) != base || !filepath.IsLocal(rest) || !strings.HasSuffix(base, "@"+manifest) || strings.ContainsAny(base, "\x00\n") || strings.Count(rest, "@") != 1 {
				t.Errorf("%q, %q: %s", reference, manifest, base)
			}
		}
		if path := s.reference(reference); filepath.Dir(path) != s.Dir+"/references" {
			t.Errorf("%q: %s", reference, path)
		}
	})
}

// The objects that weren't used for the longest time make room, but never those in use.
func TestEviction(t *testing.T) {
	by := func(names ...string) func() []Image {
		return func() []Image {
			var images []Image
			for _, name := range names {
				images = append(images, named("quay.io/"+name))
			}
			return images
		}
	}
	const full = "the node's store of bytecode is full: 0 MiB of 0 are in use; increase bpfman.bytecode.store.size in the ConfigMap bpfman-config"
	for name, c := range map[string]struct {
		limit int64
		used  func() []Image
		touch string // looked at before the Put
		want  string
		err   string
	}{
		"room":               {limit: 40, want: "a b c new"},
		"one goes":           {limit: 39, want: "b c new"},
		"two go":             {limit: 20, want: "c new"},
		"all go":             {limit: 10, want: "new"},
		"looked at":          {limit: 30, touch: "a", want: "a c new"},
		"the oldest is used": {limit: 30, used: by("a"), want: "a c new"},
		"two are used":       {limit: 30, used: by("a", "b"), want: "a b new"},
		"used, but unknown": {limit: 30, used: func() []Image {
			return []Image{{Reference: "quay.io/a", Digest: "no", Manifest: "no"}, {Reference: ".."}, {}}
		}, want: "b c new"},
		"all are used":         {limit: 39, used: by("a", "b", "c"), want: "a b c", err: full},
		"too many are used":    {limit: 29, used: by("a", "b"), want: "a b c", err: full},
		"larger than the rest": {limit: 9, want: "a b c", err: full},
		"used by its tag":      {limit: 30, used: func() []Image { return []Image{{Reference: "quay.io/a"}} }, want: "a c new"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stocked(t, 1000, "a", "b", "c")
			if err := s.Keep(named("quay.io/a")); err != nil {
				t.Fatal(err)
			}
			s.Limit, s.Used = c.limit, c.used
			if c.touch != "" {
				if _, _, ok := s.Object(named("quay.io/" + c.touch)); !ok {
					t.Fatal("it is absent")
				}
			}
			_, err := put(t, s, named("quay.io/new"), "0123456789", described("0123456789"))
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasSuffix(err.Error(), c.err)) {
				t.Errorf("%v, want %s", err, c.err)
			}
			if got := has(s, "a", "b", "c", "new"); got != c.want {
				t.Errorf("it has %s, want %s", got, c.want)
			}
			if size := int64(10 * len(strings.Fields(c.want))); s.Size() != size {
				t.Errorf("%d bytes, want %d", s.Size(), size)
			}
		})
	}
	s := &Store{Dir: t.TempDir(), Limit: 3 << 20, Used: by("a")}
	content := strings.Repeat("x", 2<<20)
	for n, name := range []string{"a", "b"} {
		_, err := put(t, s, named("quay.io/"+name), content, described(content))
		if want := "is full: 2 MiB of 3 are in use"; n == 1 && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// While it isn't known what objects use, nothing is removed.
func TestNothingIsRemovedWhileItsUseIsUnknown(t *testing.T) {
	unread := errors.New("XdpPrograms have not been read yet")
	s := &Store{Dir: t.TempDir(), Limit: 25, Unknown: func() error { return unread }}
	store := func(name string) error {
		_, err := put(t, s, named("quay.io/"+name), "0123456789", described("0123456789"))
		return err
	}
	if err := errors.Join(store("a"), store("b")); err != nil {
		t.Fatal(err)
	}
	if err := store("c"); !errors.Is(err, unread) || !strings.Contains(err.Error(), "the node's store of bytecode is full") {
		t.Errorf("%v", err)
	}
	for n := range maxRecords + 5 {
		if err := s.Keep(named(fmt.Sprint("quay.io/", n))); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := s.Resolved("quay.io/0"); !ok || has(s, "a", "b", "c") != "a b" {
		t.Errorf("of references, the first is there: %v, and of images %s", ok, has(s, "a", "b", "c"))
	}
	unread = nil
	if err := store("c"); err != nil || has(s, "a", "b", "c") != "b c" {
		t.Errorf("%v, it has %s", err, has(s, "a", "b", "c"))
	}
}

// A file's name has 255 bytes at most. Names of repositories can be longer than what the store's suffixes leave of that.
func TestLongNames(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Limit: 1 << 20, Kernel: "k"}
	object := described("0123456789")
	object.Adapted = reader.Adapted{Digest: digest("0123456789 for k"), Size: 16, Format: reader.Format, Kernel: "k"}
	paths := map[string]bool{}
	for _, name := range []string{strings.Repeat("a", 200), strings.Repeat("a", 199) + "b", strings.Repeat("a", 90), "x/" + strings.Repeat("a", 200)} {
		image := named("quay.io/" + name)
		image.Manifest = "sha512:" + strings.Repeat("0", 128)
		path, err := put(t, s, image, "0123456789", object)
		if err != nil {
			t.Error(err)
		}
		if found, _, ok := s.Object(image); !ok || found != path || paths[path] {
			t.Errorf("%s: %q, %v", name, found, ok)
		}
		paths[path] = true
	}
}

// The number of images is limited, however small they are, and nothing is left of those that go. Those in use stay.
func TestImagesAreBounded(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Limit: 1 << 30}
	image := func(n int) Image { return named(fmt.Sprintf("quay.io/%d/x", n)) }
	s.Used = func() []Image { return []Image{image(0)} }
	for n := range maxRecords + 10 { // without the time that it takes to write them safely
		base, err := s.base(image(n))
		at := time.Now().Add(time.Duration(n-2*maxRecords) * time.Second)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(base), dirMode), os.WriteFile(base+objectSuffix, []byte("x"), objectMode), os.Chtimes(base+objectSuffix, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	last := image(2 * maxRecords)
	if _, err := put(t, s, last, "0123456789", described("0123456789")); err != nil {
		t.Fatal(err)
	}
	all, err := s.objects()
	if err != nil || len(all) != maxRecords {
		t.Fatalf("%d images, %v", len(all), err)
	}
	if directories, err := os.ReadDir(filepath.Join(s.Dir, imagesDir, "quay.io")); err != nil || len(directories) != maxRecords {
		t.Errorf("%d directories, %v", len(directories), err)
	}
	for n, want := range map[int]bool{0: true, 1: false, 11: false, 12: true, 2 * maxRecords: true} {
		base, _ := s.base(image(n))
		if _, err := os.Stat(base + objectSuffix); (err == nil) != want {
			t.Errorf("image %d: %v", n, err)
		}
	}
}

// The number of records is limited. Those that weren't used for the longest time go.
func TestRecordsAreBounded(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	image := func(n int) Image { return named(fmt.Sprintf("quay.io/%d", n)) }
	key := func(n int) string { return hash([]byte(image(n).Reference)) }
	found := func(n int) Findings {
		return Findings{Signatures: []reader.Finding{{Authority: image(n).Reference}}}
	}
	for n := range maxRecords { // without the time that it takes to write them safely
		for path, record := range map[string]any{s.reference(image(n).Reference): resolution(image(n)), filepath.Join(s.Dir, findingsDir, key(n)+recordSuffix): found(n)} {
			content, err := json.Marshal(record)
			at := time.Now().Add(time.Duration(n-2*maxRecords) * time.Second)
			if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), dirMode), os.WriteFile(path, content, recordMode), os.Chtimes(path, at, at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const used = 1 // the oldest but one
	has := func(n int) bool {
		got, ok := s.Resolved(image(n).Reference)
		signed, also := s.Findings(key(n))
		if ok != also || ok && (got != image(n) || !reflect.DeepEqual(signed, found(n))) {
			t.Errorf("%d: %+v, %v, %+v, %v", n, got, ok, signed, also)
		}
		return ok
	}
	if !has(used) {
		t.Fatal("it is absent")
	}
	for n := range 3 {
		if err := errors.Join(s.Keep(image(maxRecords+n)), s.KeepFindings(key(maxRecords+n), image(maxRecords+n), found(maxRecords+n))); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{referencesDir, findingsDir} {
		if got := len(files(t, filepath.Join(s.Dir, dir))); got != maxRecords*9/10+2 {
			t.Errorf("%s: %d records", dir, got)
		}
	}
	for n, want := range map[int]bool{used: true, 0: false, 2: false, 90: false, 200: true, maxRecords - 1: true, maxRecords: true, maxRecords + 2: true} {
		if has(n) != want {
			t.Errorf("%d: %v", n, !want)
		}
	}
	// Others can remove records at any time.
	if err := os.RemoveAll(filepath.Join(s.Dir, referencesDir)); err != nil {
		t.Fatal(err)
	}
	if err := s.Keep(image(0)); err != nil {
		t.Error(err)
	}
}

// The records of images that objects on the node use stay, even if a tenant's objects need many more. Of the findings
// about one image, the last ones stay.
func TestRecordsInUseStay(t *testing.T) {
	const used, others = 50, maxRecords + 100
	s := &Store{Dir: t.TempDir()}
	image := func(n int) Image { return named(fmt.Sprintf("quay.io/%d:v1", n)) }
	s.Used = func() []Image {
		var images []Image
		for n := range used {
			images = append(images, Image{Reference: image(n).Reference}) // as objects have it
		}
		return images
	}
	for n := range used + others { // without the time that it takes to write them safely
		in, err := s.base(image(n))
		if err != nil {
			t.Fatal(err)
		}
		in, _ = filepath.Rel(filepath.Join(s.Dir, imagesDir), in)
		for path, record := range map[string]any{
			s.reference(image(n).Reference):                                    resolution(image(n)),
			filepath.Join(s.Dir, findingsDir, fmt.Sprint("f", n)+recordSuffix): signed{Image: in},
		} {
			content, err := json.Marshal(record)
			at := time.Now().Add(time.Duration(n-2*others) * time.Second)
			if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), dirMode), os.WriteFile(path, content, recordMode), os.Chtimes(path, at, at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(s.Keep(image(used+others)), s.KeepFindings("last", image(0), Findings{})); err != nil {
		t.Fatal(err)
	}
	for n := range used {
		_, resolved := s.Resolved(image(n).Reference)
		if _, found := s.Findings(fmt.Sprint("f", n)); !resolved || !found {
			t.Errorf("image %d is in use: its reference %t, its findings %t", n, resolved, found)
		}
	}
	for _, dir := range []string{referencesDir, findingsDir} {
		if got := len(files(t, filepath.Join(s.Dir, dir))); got != maxRecords*9/10 {
			t.Errorf("%s: %d records", dir, got)
		}
	}
	for n := range maxRecords { // one image, with another pull Secret each time
		content, err := json.Marshal(signed{Image: "quay.io/0@" + image(0).Manifest})
		if err := errors.Join(err, os.WriteFile(filepath.Join(s.Dir, findingsDir, fmt.Sprint("again", n)+recordSuffix), content, recordMode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.KeepFindings("last", image(0), Findings{}); err != nil {
		t.Fatal(err)
	}
	if _, found := s.Findings("f1"); !found {
		t.Error("the findings of another image are gone")
	}
	if got := len(files(t, filepath.Join(s.Dir, findingsDir))); got != maxRecords*9/10 {
		t.Errorf("%d findings", got)
	}
}

// Open only removes files that were being read long ago, and Clear removes everything.
func TestOpenAndClear(t *testing.T) {
	s := stocked(t, 1000, "a")
	if err := s.Keep(named("quay.io/a")); err != nil {
		t.Fatal(err)
	}
	kept := len(files(t, s.Dir))
	reading, err := s.Create()
	if err != nil {
		t.Fatal(err)
	}
	left, err := s.Create()
	if err != nil {
		t.Fatal(err)
	}
	changes := filepath.Join(s.Dir, "changes")
	if err := os.Mkdir(changes, 0o700); err != nil {
		t.Fatal(err)
	}
	var written []string
	for _, dir := range []string{filepath.Join(s.Dir, imagesDir, "quay.io"), filepath.Join(s.Dir, referencesDir), changes} {
		written = append(written, filepath.Join(dir, ".record.json123"))
		if err := os.WriteFile(written[len(written)-1], nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-abandoned - time.Minute)
	err = filepath.WalkDir(s.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && path != reading.Object.Name() && path != reading.Adapted.Name() && !entry.IsDir() {
			err = os.Chtimes(path, past, past)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(); err != nil {
		t.Error(err)
	}
	for _, file := range append(written, left.Object.Name()) {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s stayed: %v", file, err)
		}
	}
	if got := len(files(t, s.Dir)); got != kept+2 {
		t.Errorf("%d files, want %d", got, kept+2)
	}
	left.Discard()
	reading.Discard()
	if _, _, ok := s.Object(named("quay.io/a")); !ok {
		t.Error("the object is gone")
	}
	absent := &Store{Dir: filepath.Join(t.TempDir(), "absent")}
	if err := absent.Open(); err != nil {
		t.Error(err)
	}
	if absent.Size() != 0 {
		t.Error("it has a size")
	}
}

// When bpfman is uninstalled, or its ConfigMap is deleted, the store becomes empty. What others keep in its directory stays.
func TestClear(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	for _, name := range []string{"images/a.o", "references/b.json", "changes/c.json", "new-d"} {
		path := filepath.Join(s.Dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), dirMode), os.WriteFile(path, nil, recordMode)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := s.Clear("changes"); err != nil {
			t.Error(err)
		}
		if left := files(t, s.Dir); len(left) != 1 || !strings.HasSuffix(left[0], "c.json") {
			t.Errorf("it has %q", left)
		}
	}
	if err := (&Store{Dir: filepath.Join(t.TempDir(), "absent")}).Clear(); err != nil {
		t.Error(err)
	}
}

// Two agents share the directory during a rolling update. Each finds what the other one put,
// and nothing that isn't whole, while both evict.
func TestTwoStores(t *testing.T) {
	dir := t.TempDir()
	const images = 12
	content := func(n int) string { return fmt.Sprintf("%100d", n) }
	var all sync.WaitGroup
	for agent := range 2 {
		s := &Store{Dir: dir, Limit: 500, Used: func() []Image { return []Image{named("quay.io/0")} }}
		for worker := range 4 {
			all.Go(func() {
				for round := range 30 {
					n := (agent + worker*5 + round) % images
					image := named(fmt.Sprintf("quay.io/%d", n))
					if _, err := put(t, s, image, content(n), described(content(n))); err != nil {
						t.Error(err)
						return
					}
					if err := s.Keep(image); err != nil {
						t.Error(err)
					}
					if _, object, ok := s.Object(named(fmt.Sprintf("quay.io/%d", round%images))); ok && object.Digest != digest(content(round%images)) {
						t.Errorf("%+v", object)
					}
					if got, ok := s.Resolved(image.Reference); !ok || got != image {
						t.Errorf("%+v, %v", got, ok)
					}
				}
			})
		}
	}
	all.Wait()
	s := &Store{Dir: dir}
	if _, _, ok := s.Object(named("quay.io/0")); !ok {
		t.Error("what is used is gone")
	}
	if s.Size() > 2*500 {
		t.Errorf("%d bytes", s.Size())
	}
	for _, file := range files(t, dir) {
		if strings.Contains(file, newPrefix) {
			t.Errorf("%s is left", file)
		}
	}
}

// What a read that failed leaves is removed, but not what another read of the image stores at the same time.
func TestPutWhileAnotherFails(t *testing.T) {
	const rounds = 100
	for n := range rounds {
		s := stocked(t, 1<<20)
		image := named("quay.io/x")
		var failing sync.WaitGroup
		for range 4 {
			failing.Go(func() {
				if _, err := put(t, s, image, "another", described("an object")); err == nil {
					t.Error("stored another object")
				}
			})
		}
		_, err := put(t, s, image, "an object", described("an object"))
		failing.Wait()
		if _, _, there := s.Object(image); err != nil || !there {
			t.Fatalf("round %d: %v, stored: %v", n, err, there)
		}
	}
}
