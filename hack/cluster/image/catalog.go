// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Sources are the locations of the images' files.
type Sources struct {
	Bin        string // the directory with the project's static binaries
	Daemon     string // bpfman-rpc, or bpfman if it is the daemon in Go
	Other      string // another daemon, for the image OtherDaemon
	RegistryCA string // a certificate that the agent trusts in addition to the host's
	Kubernetes string // the multi-call binary of hack/kubernetes
}

// NextTag is a second tag of every image but OtherDaemon. Tests use it to roll out a workload again.
const NextTag = "next"

// prometheusImage is the image that the tutorial uses, with the version that hack/make/tools.mk names.
const prometheusImage = "quay.io/prometheus/prometheus:v3.13.5"

// storageImage is the image of the pods in Kubernetes' tests of storage drivers, with the version that those of hack/kubernetes use.
const storageImage = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"

// OtherDaemon is the image of a second daemon. Tests change a node from one to the other.
const OtherDaemon = "quay.io/bpfman/bpfman:other"

// Names returns the names of an image on nodes. The other daemon has the repository of the first one, whose NextTag is another name
// of the same daemon.
func Names(reference string) ([]name.Tag, error) {
	tag, err := name.NewTag(reference)
	if err != nil {
		return nil, fmt.Errorf("parse the image name %q: %w", reference, err)
	}
	if reference == OtherDaemon {
		return []name.Tag{tag}, nil
	}
	return []name.Tag{tag, tag.Context().Tag(NextTag)}, nil
}

// AbsentError names the file that is missing to build an image.
type AbsentError struct{ Image, File string }

func (a *AbsentError) Error() string { return fmt.Sprintf("%s: %s is not built", a.Image, a.File) }

// Command is a static binary of the project that has an image.
type Command struct {
	Repository, Binary string
	// User is root by default.
	User string
	// Others are binaries that it runs.
	Others []string
}

// Published are the commands whose images a release publishes.
var Published = []Command{
	{Repository: "bpfman-operator", Binary: "bpfman-operator", User: "65532:65532"},
	{Repository: "bpfman-agent", Binary: "bpfman-agent", Others: []string{"bpfman-reader", "bpfman-ns", "bpfman-probe"}},
	{Repository: "bpfman-csi", Binary: "bpfman-csi"},
	{Repository: "bpfman-inspector", Binary: "bpfman-inspector"},
	{Repository: "bpfman-counters", Binary: "counters", User: "65534:65534"},
	{Repository: "bpfman-map-exporter", Binary: "map-exporter", User: "65534:65534"},
	{Repository: "bpfman-go-target", Binary: "go-target", User: "65534:65534"},
	{Repository: "bpfman-firewall", Binary: "firewall", User: "65534:65534"},
}

// Registry is where the tree's manifests expect the images of Published, with the tag latest. A release replaces it.
const Registry = "quay.io/bpfman"

// Catalog lists the cluster's images. Each image is described on demand, because its files might not exist.
func Catalog() []Description {
	catalog := []Description{
		Command{Repository: "pause", Binary: "pause"}.describe(),
		// The name is the same as in docs/get-started.md, so that its pod works unchanged.
		{Name: "docker.io/library/busybox:1.37", describe: busybox},
		{Name: "quay.io/bpfman/bpfman:v0.6.0", describe: daemon(func(s Sources) string { return s.Daemon })},
		{Name: OtherDaemon, Optional: true, describe: daemon(func(s Sources) string { return s.Other })},
		Command{Repository: "bpfman-node-probe", Binary: "node-probe"}.describe(),
		Command{Repository: "csi-node-driver-registrar", Binary: "csi-node-driver-registrar"}.describe(),
		{Name: storageImage, Optional: true, describe: busybox},
		{Name: prometheusImage, Optional: true, describe: prometheus},
		{Name: "docker.io/library/python:3.11-slim", Optional: true, describe: python},
	}
	for _, command := range Published {
		catalog = append(catalog, command.describe())
	}
	return catalog
}

// Description describes an image that can be built if its files exist.
type Description struct {
	Name string
	// Optional means that only a tutorial or a test uses the image.
	Optional bool
	describe func(ctx context.Context, name string, s Sources) (Image, error)
}

// Describe finds the image's files. It returns an *AbsentError if a file that has to be built is missing.
func (d Description) Describe(ctx context.Context, s Sources) (Image, error) {
	return d.describe(ctx, d.Name, s)
}

func (c Command) describe() Description {
	return Description{
		Name: Registry + "/" + c.Repository + ":latest",
		describe: func(_ context.Context, name string, s Sources) (Image, error) {
			// The agent reads bytecode images from the cluster's registry.
			trusted, err := concatenate(bundle, s.RegistryCA)
			if err != nil {
				return Image{}, err
			}
			return c.Image(name, s.Bin, trusted)
		},
	}
}

// Image describes the image with the binaries in the directory bin, which trusts the certificates in PEM.
func (c Command) Image(name, bin string, trusted []byte) (Image, error) {
	files := append(base(), File{Path: bundle, Mode: 0o644, Text: trusted})
	for _, each := range append([]string{c.Binary}, c.Others...) {
		executable, err := existing(name, "/"+each, filepath.Join(bin, each))
		if err != nil {
			return Image{}, err
		}
		files = append(files, executable)
	}
	return Image{Name: name, Files: files, User: c.User, Entrypoint: []string{"/" + c.Binary}}, nil
}

// bundle is the path of the trusted CA certificates, in Debian and in the images.
const bundle = "/etc/ssl/certs/ca-certificates.crt"

// libraryCache is the path of the cache of the dynamic linker. Libraries have the same paths in the image
// and on the host.
const libraryCache = "/etc/ld.so.cache"

// base returns the files that are in every image.
func base() []File {
	return []File{
		{Path: "/tmp", Mode: 0o777 | fs.ModeSticky},
		{Path: "/etc/passwd", Mode: 0o644, Text: []byte(
			"root:x:0:0:root:/:/sbin/nologin\n" +
				"nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n" +
				"nobody:x:65534:65534:nobody:/:/sbin/nologin\n")},
		{Path: "/etc/group", Mode: 0o644, Text: []byte("root:x:0:\nnonroot:x:65532:\nnobody:x:65534:\n")},
		{Path: "/etc/nsswitch.conf", Mode: 0o644, Text: []byte("hosts: files dns\n")},
	}
}

// existing returns an executable for the image, which must exist on the host.
func existing(image, target, source string) (File, error) {
	if _, err := os.Stat(source); errors.Is(err, fs.ErrNotExist) {
		return File{}, &AbsentError{Image: image, File: source}
	} else if err != nil {
		return File{}, fmt.Errorf("look for a file of %s: %w", image, err)
	}
	return File{Path: target, Mode: 0o755, Source: source}, nil
}

// busybox describes an image with Debian's busybox-static, and a link for each applet.
func busybox(ctx context.Context, name string, _ Sources) (Image, error) {
	executable, err := existing(name, "/bin/busybox", "/bin/busybox")
	if err != nil {
		return Image{}, err
	}
	applets, err := exec.CommandContext(ctx, executable.Source, "--list").Output()
	if err != nil {
		return Image{}, fmt.Errorf("list busybox' applets: %w", err)
	}
	files := append(base(), executable)
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			files = append(files, File{Path: "/bin/" + applet, Mode: 0o777, Link: "busybox"})
		}
	}
	return Image{Name: name, Files: files, Entrypoint: []string{"/bin/sh"}}, nil
}

// prometheus describes an image with the files that the official image has at the same paths.
func prometheus(_ context.Context, name string, s Sources) (Image, error) {
	server, err := existing(name, "/bin/prometheus", filepath.Join(s.Bin, "prometheus"))
	if err != nil {
		return Image{}, err
	}
	client, err := existing(name, "/bin/promtool", filepath.Join(s.Bin, "promtool"))
	if err != nil {
		return Image{}, err
	}
	return Image{Name: name, Files: append(base(), server, client), User: "65534:65534", Entrypoint: []string{"/bin/prometheus"}}, nil
}

// python describes an image with Debian's Python, for the tutorial.
func python(ctx context.Context, name string, _ Sources) (Image, error) {
	const interpreter, library = "/usr/bin/python3.11", "/usr/lib/python3.11"
	executable, err := existing(name, "/usr/bin/python3", interpreter)
	if err != nil {
		return Image{}, err
	}
	files := append(base(), executable)
	binaries := []string{interpreter}
	err = filepath.WalkDir(library, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "__pycache__" || strings.HasPrefix(entry.Name(), "config-")):
			return fs.SkipDir
		case entry.Type().IsRegular():
			files = append(files, File{Path: path, Mode: 0o644, Source: path})
			if filepath.Ext(path) == ".so" {
				binaries = append(binaries, path)
			}
		}
		return nil
	})
	if err != nil {
		return Image{}, fmt.Errorf("list Python's library: %w", err)
	}
	libraries, err := sharedLibraries(ctx, binaries...)
	if err != nil {
		return Image{}, err
	}
	return Image{Name: name, Files: append(files, libraries...), Entrypoint: []string{"/usr/bin/python3"}}, nil
}

// daemon describes bpfman's published image of a daemon: the same binary, working directory, and command line. The only
// difference is that the launcher starts the daemon (see hack/cluster/launcher).
func daemon(binary func(Sources) string) func(context.Context, string, Sources) (Image, error) {
	return func(ctx context.Context, name string, s Sources) (Image, error) {
		return daemonImage(ctx, name, binary(s), s)
	}
}

func daemonImage(ctx context.Context, name, binary string, s Sources) (Image, error) {
	command := []string{"./bpfman-rpc", "--timeout=0"}
	if filepath.Base(binary) != "bpfman-rpc" {
		command = []string{"./bpfman"} // the one in Go, which the DaemonSet's arguments have serve
	}
	executable, err := existing(name, command[0][1:], binary)
	if err != nil {
		return Image{}, err
	}
	launcher, err := existing(name, "/daemon-launcher", filepath.Join(s.Bin, "daemon-launcher"))
	if err != nil {
		return Image{}, err
	}
	files := append(base(), executable, launcher)
	libraries, err := sharedLibraries(ctx, binary)
	if err != nil {
		return Image{}, err
	}
	trusted, err := concatenate(bundle, s.RegistryCA)
	if err != nil {
		return Image{}, err
	}
	files = append(files, libraries...)
	// The daemon uses the cache to find a library that is the target of a uprobe.
	files = append(files, File{Path: bundle, Mode: 0o644, Text: trusted}, File{Path: libraryCache, Mode: 0o644, Source: libraryCache})
	return Image{
		Name:       name,
		Files:      files,
		Env:        []string{"SSL_CERT_FILE=" + bundle},
		Entrypoint: append([]string{"./daemon-launcher", "--"}, command...),
	}, nil
}

// sharedLibraries returns the host's libraries, and the loader, that the binaries are linked with.
func sharedLibraries(ctx context.Context, binaries ...string) ([]File, error) {
	output, err := exec.CommandContext(ctx, "ldd", binaries...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the libraries of %s: %w", binaries[0], err)
	}
	var files []File
	for line := range strings.Lines(string(output)) {
		// A line is "libz.so.1 => /lib/…/libz.so.1 (0x…)" or "/lib64/ld-linux-x86-64.so.2 (0x…)".
		for field := range strings.FieldsSeq(line) {
			known := slices.ContainsFunc(files, func(f File) bool { return f.Path == field })
			if strings.HasPrefix(field, "/") && !strings.HasSuffix(field, ":") && !known {
				files = append(files, File{Path: field, Mode: 0o755, Source: field})
			}
		}
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("a library is missing: %s", strings.TrimSpace(line))
		}
	}
	return files, nil
}

func concatenate(files ...string) ([]byte, error) {
	var all bytes.Buffer
	for _, file := range files {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the CA certificates: %w", err)
		}
		all.Write(text)
	}
	return all.Bytes(), nil
}
