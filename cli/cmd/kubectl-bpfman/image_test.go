// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"gotest.tools/v3/golden"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// objects is the directory with the output of `make bytecode`.
const objects = "../../../bin/bytecode/"

// execute runs a command line on a cluster.
func execute(t *testing.T, connect cluster.Connect, args ...string) (out, messages string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := root(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr}, connect)
	command.SetArgs(args)
	err = command.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// refuses checks that each command line prints nothing, and results in an error that contains its key.
func refuses(t *testing.T, connect cluster.Connect, command string, refused map[string][]string) {
	t.Helper()
	for want, args := range refused {
		if out, _, err := execute(t, connect, append([]string{command}, args...)...); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%q: printed %q, error %v, want %q", args, out, err, want)
		}
	}
}

func requireObjects(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(objects + "globals.o"); err != nil {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
}

// serve serves a registry over TLS. It returns its address, and the flag to trust its
// certificate.
func serve(t *testing.T) (address, flag string) {
	t.Helper()
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(server.URL, "https://"), "--registry-ca=" + ca
}

var digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

func TestImage(t *testing.T) {
	requireObjects(t)
	address, ca := serve(t)
	archive := filepath.Join(t.TempDir(), "image.tar")
	image := address + "/team/globals:v1"
	replaced := strings.NewReplacer(address, "registry.example.com", filepath.Dir(archive), "/tmp")
	for _, step := range []struct {
		file string
		args []string
	}{
		{"build.txt", []string{"build", "-f", objects + "globals.o", "-f", "arm64=" + objects + "pinned.o", "-o", archive}},
		{"inspect-archive.txt", []string{"inspect", archive}},
		{"push.txt", []string{"push", image, "--from", archive, ca}},
		{"push.txt", []string{"push", image, "-f", archive, ca}}, // the same
		{"inspect.txt", []string{"inspect", image, ca}},
		{"inspect.json", []string{"inspect", image, ca, "-o", "json"}},
		{"inspect-jsonpath.txt", []string{"inspect", image, ca, "-o", "jsonpath={.objects[*].programs[*].name}"}},
		{"as-tracepoint.yaml", []string{"inspect", image, ca, "--as", "tracepoint"}},
		{"push-one.txt", []string{"push", image, "-f", "amd64=" + objects + "globals.o", ca}},
		{"inspect-one.yaml", []string{"inspect", image, ca, "-o", "yaml"}},
		{"inspect-file.txt", []string{"inspect", objects + "go-app-counter.o"}},
		{"as-tcxns.yaml", []string{"inspect", objects + "go-app-counter.o", "--as", "tcxns", "--function", "tcx_stats", "--image", "quay.io/team/image:v1", "--name", "mine", "--attach-to=eth1"}},
		{"as-application.yaml", []string{"inspect", objects + "go-app-counter.o", "--as", "application", "--image", "quay.io/team/app_counter:v1", "--target", "libc", "--attach-to=uprobe_counter=malloc", "--attach-to=uretprobe_counter=malloc"}},
	} {
		t.Run(step.file, func(t *testing.T) {
			out, messages, err := execute(t, clusterOf(), append([]string{"image"}, step.args...)...)
			if err != nil || messages != "" {
				t.Fatalf("said %q, error %v", messages, err)
			}
			golden.Assert(t, digests.ReplaceAllString(replaced.Replace(out), "sha256:DIGEST"), "image/"+step.file)
		})
	}
}

// A directory has files for different platforms, with bpf2go's names.
func TestImageOfADirectory(t *testing.T) {
	requireObjects(t)
	dir, archive := t.TempDir(), filepath.Join(t.TempDir(), "image.tar")
	content, err := os.ReadFile(objects + "globals.o")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"counter_bpfel.o", "counter_arm64_bpfel.o", "counter_bpfel.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, messages, err := execute(t, clusterOf(), "image", "build", "-f", dir, "-o", archive); err != nil || messages != "" {
		t.Fatalf("said %q, error %v", messages, err)
	}
	out, _, err := execute(t, clusterOf(), "image", "inspect", archive, "-o", "jsonpath={range .objects[*]}{.file} {.platforms}{\"\\n\"}{end}")
	if want := "counter_bpfel.o [\"linux/amd64\",\"linux/ppc64le\",\"linux/riscv64\"]\ncounter_arm64_bpfel.o [\"linux/arm64\"]\n"; err != nil || !sameLines(out, want) {
		t.Errorf("printed %s, error %v, want %s", out, err, want)
	}
	refuses(t, clusterOf(), "image", map[string][]string{"has no object files": {"build", "-f", t.TempDir(), "-o", archive}})
}

// An executable's object is for the executable's architecture, unless the flag says otherwise.
func TestImageOfAnExecutable(t *testing.T) {
	requireObjects(t)
	dir, archive := t.TempDir(), filepath.Join(t.TempDir(), "image.tar")
	header := make([]byte, 64)
	copy(header, "\x7fELF\x02\x01\x01")
	header[16], header[18], header[20] = 3, 62, 1 // ET_DYN, EM_X86_64, EV_CURRENT
	tool, tools := filepath.Join(dir, "tool"), filepath.Join(dir, "tools")
	for path, parts := range map[string][]string{tool: {"globals.o"}, tools: {"globals.o", "pinned.o"}} {
		content := slices.Clone(header)
		for _, part := range parts {
			object, err := os.ReadFile(objects + part)
			if err != nil {
				t.Fatal(err)
			}
			content = append(content, object...)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for flag, want := range map[string]string{
		tool:            `tool.o ["linux/amd64"]`,
		"arm64=" + tool: `tool.o ["linux/arm64"]`,
		"bpfel=" + tool: `tool.o ["linux/amd64","linux/arm64","linux/ppc64le","linux/riscv64"]`,
	} {
		if _, messages, err := execute(t, clusterOf(), "image", "build", "-f", flag, "-o", archive); err != nil || messages != "" {
			t.Fatalf("%s: said %q, error %v", flag, messages, err)
		}
		if out, _, err := execute(t, clusterOf(), "image", "inspect", archive, "-o", "jsonpath={.objects[*].file} {.objects[*].platforms}"); err != nil || out != want {
			t.Errorf("%s: printed %s, error %v, want %s", flag, out, err, want)
		}
	}
	const names = "jsonpath={.objects[*].file}"
	if out, _, err := execute(t, clusterOf(), "image", "inspect", tools, "-o", names); err != nil || out != "tools-1.o tools-2.o" {
		t.Errorf("printed %s, error %v", out, err)
	}
	for _, args := range [][]string{{"build", "-f", tools, "-o", archive}, {"inspect", tools, "--as", "application", "--image", "quay.io/a"}} {
		refuses(t, clusterOf(), "image", map[string][]string{"contains 2 eBPF objects": args})
	}
}

func sameLines(a, b string) bool {
	return slices.Equal(slices.Sorted(strings.Lines(a)), slices.Sorted(strings.Lines(b)))
}

func TestImageRefuses(t *testing.T) {
	requireObjects(t)
	address, ca := serve(t)
	archive := filepath.Join(t.TempDir(), "image.tar")
	text := filepath.Join(t.TempDir(), "text.o")
	if err := os.WriteFile(text, []byte("no object"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, clusterOf(), "image", map[string][]string{
		`required flag(s) "filename", "output" not set`:  {"build"},
		"absent.o: no such file or directory":            {"build", "-f", "absent.o", "-o", archive},
		"text.o: read eBPF object: it isn't an ELF file": {"build", "-f", text, "-o", archive},
		"at least one of the flags in the group":         {"push", "quay.io/a"},
		"could not parse reference":                      {"push", "UPPER:CASE:", "-f", objects + "globals.o"},
		"text.o: it isn't an OCI layout":                 {"push", "quay.io/a", "--from", text},
		"absent.crt: no such file or directory":          {"inspect", "quay.io/a", "--registry-ca", "absent.crt"},
		"text.o is neither an object file nor an image":  {"inspect", text},
		"there is no file absent.tar here":               {"inspect", "absent.tar"},
		"--as needs --image too":                         {"inspect", objects + "globals.o", "--as", "tracepoint"},
		`"pod" is not one of the kinds`:                  {"inspect", objects + "globals.o", "--as", "pod", "--image", "a"},
		"NAME_UNKNOWN":                                   {"inspect", address + "/absent:v1", ca},
	})
}
