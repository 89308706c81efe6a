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
	"strings"
)

// Sources say where the images' files are.
type Sources struct {
	Bin        string // the directory of the project's static binaries
	Daemon     string // bpfman-rpc
	RegistryCA string // the certificate that the daemon and the agent trust besides the host's
	Kubernetes string // the multi-call binary of hack/kubernetes
}

// NextTag is a second tag of every image: what runs the first is rolled out anew when it is told to run that.
const NextTag = "next"

// prometheusImage is what the tutorial runs, of the version that hack/tools/prometheus pins.
const prometheusImage = "quay.io/prometheus/prometheus:v3.13.5"

// AbsentError says which file an image can't be built without.
type AbsentError struct{ Image, File string }

func (a *AbsentError) Error() string { return fmt.Sprintf("%s: %s is not built", a.Image, a.File) }

// Catalog lists the cluster's images; each is described when asked for, as its
// files may not exist.
func Catalog() []Description {
	return []Description{
		ownBinary("pause", "pause", ""),
		// By the name that docs/get-started.md has, so that its pod runs as it is written.
		{Name: "docker.io/library/busybox:1.37", describe: busybox},
		{Name: "quay.io/bpfman/bpfman:v0.6.0", describe: daemon},
		ownBinary("bpfman-operator", "bpfman-operator", "65532:65532"),
		ownBinary("bpfman-agent", "bpfman-agent", "", "bpfman-verify"),
		ownBinary("bpfman-csi", "bpfman-csi", ""),
		ownBinary("bpfman-inspector", "bpfman-inspector", ""),
		ownBinary("bpfman-counters", "counters", "65534:65534"),
		ownBinary("bpfman-map-exporter", "map-exporter", "65534:65534"),
		ownBinary("bpfman-go-target", "go-target", "65534:65534"),
		ownBinary("bpfman-firewall", "firewall", "65534:65534"),
		ownBinary("bpfman-node-probe", "node-probe", ""),
		ownBinary("csi-node-driver-registrar", "csi-node-driver-registrar", ""),
		{Name: prometheusImage, Optional: true, describe: prometheus},
	}
}

// Description is an image that may be possible to build.
type Description struct {
	Name string
	// Optional is for an image that nothing but a tutorial runs.
	Optional bool
	describe func(ctx context.Context, name string, s Sources) (Image, error)
}

// Describe finds the image's files; the error is an *AbsentError where one that has
// to be built isn't.
func (d Description) Describe(ctx context.Context, s Sources) (Image, error) {
	return d.describe(ctx, d.Name, s)
}

// ownBinary is an image of one static binary of the project, and of those that it runs.
func ownBinary(repository, binary, user string, others ...string) Description {
	return Description{
		Name: "quay.io/bpfman/" + repository + ":latest",
		describe: func(_ context.Context, name string, s Sources) (Image, error) {
			files := base()
			for _, each := range append([]string{binary}, others...) {
				executable, err := existing(name, "/"+each, filepath.Join(s.Bin, each))
				if err != nil {
					return Image{}, err
				}
				files = append(files, executable)
			}
			// The agent looks at bytecode images where the daemon pulls them.
			trusted, err := concatenate(bundle, s.RegistryCA)
			if err != nil {
				return Image{}, err
			}
			return Image{
				Name:       name,
				Files:      append(files, File{Path: bundle, Mode: 0o644, Text: trusted}),
				User:       user,
				Entrypoint: []string{"/" + binary},
			}, nil
		},
	}
}

// bundle is where Debian keeps the CA certificates that are trusted, and the images too.
const bundle = "/etc/ssl/certs/ca-certificates.crt"

// libraryCache says where the host's libraries are; those of the image are in the same places.
const libraryCache = "/etc/ld.so.cache"

// base is in every image.
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

// existing is an executable of the image, which is on the host.
func existing(image, target, source string) (File, error) {
	if _, err := os.Stat(source); errors.Is(err, fs.ErrNotExist) {
		return File{}, &AbsentError{Image: image, File: source}
	} else if err != nil {
		return File{}, fmt.Errorf("looking for a file of %s: %w", image, err)
	}
	return File{Path: target, Mode: 0o755, Source: source}, nil
}

// busybox is Debian's busybox-static with a link for each applet.
func busybox(ctx context.Context, name string, _ Sources) (Image, error) {
	executable, err := existing(name, "/bin/busybox", "/bin/busybox")
	if err != nil {
		return Image{}, err
	}
	applets, err := exec.CommandContext(ctx, executable.Source, "--list").Output()
	if err != nil {
		return Image{}, fmt.Errorf("listing busybox' applets: %w", err)
	}
	files := append(base(), executable)
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			files = append(files, File{Path: "/bin/" + applet, Mode: 0o777, Link: "busybox"})
		}
	}
	return Image{Name: name, Files: files, Entrypoint: []string{"/bin/sh"}}, nil
}

// prometheus has what its project's image has of the same names in the same places.
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

// daemon is bpfman as its project publishes it: the same binary, working
// directory and command line. Only here it is started by the launcher, see
// hack/cluster/launcher, which the published image doesn't have.
func daemon(ctx context.Context, name string, s Sources) (Image, error) {
	executable, err := existing(name, "/bpfman-rpc", s.Daemon)
	if err != nil {
		return Image{}, err
	}
	launcher, err := existing(name, "/daemon-launcher", filepath.Join(s.Bin, "daemon-launcher"))
	if err != nil {
		return Image{}, err
	}
	files := append(base(), executable, launcher)
	// The helper that enters a container's mount namespace: the daemon's own is no crate, see
	// tests/cmd/bpfman-ns.
	if helper, err := existing(name, "/bpfman-ns", filepath.Join(s.Bin, "bpfman-ns")); err == nil {
		files = append(files, helper)
	}
	libraries, err := sharedLibraries(ctx, s.Daemon)
	if err != nil {
		return Image{}, err
	}
	trusted, err := concatenate(bundle, s.RegistryCA)
	if err != nil {
		return Image{}, err
	}
	files = append(files, libraries...)
	// By the cache the daemon finds a library that a uprobe's target names.
	files = append(files, File{Path: bundle, Mode: 0o644, Text: trusted}, File{Path: libraryCache, Mode: 0o644, Source: libraryCache})
	return Image{
		Name:       name,
		Files:      files,
		Env:        []string{"SSL_CERT_FILE=" + bundle},
		Entrypoint: []string{"./daemon-launcher", "--", "./bpfman-rpc", "--timeout=0"},
	}, nil
}

// sharedLibraries are the libraries, and the loader, that the binary is
// linked with on the host.
func sharedLibraries(ctx context.Context, binary string) ([]File, error) {
	output, err := exec.CommandContext(ctx, "ldd", binary).Output()
	if err != nil {
		return nil, fmt.Errorf("listing the libraries of %s: %w", binary, err)
	}
	var files []File
	for line := range strings.Lines(string(output)) {
		// "libz.so.1 => /lib/…/libz.so.1 (0x…)" or "/lib64/ld-linux-x86-64.so.2 (0x…)"
		for field := range strings.FieldsSeq(line) {
			if strings.HasPrefix(field, "/") && !strings.HasSuffix(field, ":") {
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
			return nil, fmt.Errorf("reading the CA certificates: %w", err)
		}
		all.Write(text)
	}
	return all.Bytes(), nil
}
