// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package emulated runs the commands of images for other architectures, under QEMU's user mode, which translates their
// instructions and system calls. It has no bpf(2): what needs the kernel's eBPF can't be tested this way.
package emulated

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/hack/cluster/image"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/registry"
)

// binVariable names the directory with a directory of commands for each architecture, such as linux-arm64, and with the
// example programs of both byte orders.
const binVariable = "EMULATED_BIN"

const arm64 = "arm64"

// patience is how long a command may take: QEMU makes it about ten times slower.
const patience = 5 * time.Minute

func TestMain(m *testing.M) { envtest.Main(m) }

// emulators are Debian's names of QEMU, by Go's names of architectures.
var emulators = map[string]string{arm64: "qemu-aarch64-static", "s390x": "qemu-s390x-static"}

func emulator(t *testing.T, architecture string) string {
	t.Helper()
	path, err := exec.LookPath(emulators[architecture])
	if err != nil {
		prerequisite.Missing(t, err.Error()+": `make test-emulated` installs it", prerequisite.Emulators)
	}
	return path
}

func bin(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(binVariable)
	if dir == "" {
		prerequisite.Missing(t, binVariable+" isn't set: run `make test-emulated`", prerequisite.Emulators)
	}
	return dir
}

// unpack builds the image of a command for arm64, and unpacks it. Programs that the command starts are
// replaced by scripts that start them with the emulator.
func unpack(t *testing.T, repository string) (dir string) {
	t.Helper()
	at := slices.IndexFunc(image.Published, func(c image.Command) bool { return c.Repository == repository })
	command := image.Published[at]
	described, err := command.Image(repository, filepath.Join(bin(t), "linux-"+arm64), nil)
	if err != nil {
		t.Fatal(err)
	}
	described.Architecture = arm64
	built, err := described.Build()
	if err != nil {
		t.Fatal(err)
	}
	content := mutate.Extract(built)
	defer content.Close()
	dir = t.TempDir()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			write(t, filepath.Join(dir, header.Name), header.FileInfo().Mode(), r)
		}
	}
	for _, other := range command.Others {
		path := filepath.Join(dir, other)
		must.Succeed(t, os.Rename(path, path+".real"))
		emulate(t, arm64, path, path+".real")
	}
	return dir
}

// emulate writes a script that starts a command with the emulator.
func emulate(t *testing.T, architecture, script, command string) {
	t.Helper()
	write(t, script, 0o755, strings.NewReader(fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", emulator(t, architecture), command)))
}

func write(t *testing.T, path string, mode os.FileMode, content io.Reader) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, content); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, file.Close())
}

// start starts a command of an image under the emulator, until the test ends.
func start(t *testing.T, path string, environment []string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), emulator(t, arm64), append([]string{path}, arguments...)...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = t.Output(), t.Output()
	must.Succeed(t, command.Start())
	t.Cleanup(func() { _ = command.Wait() })
}

// address returns a free address.
func address(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// await waits until a probe succeeds.
func await(t *testing.T, what string, probe func(context.Context) error) {
	t.Helper()
	if err := eventually.Succeeds(t.Context(), patience, 200*time.Millisecond, probe); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func ready(at string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	}
}

// published serves a bytecode image with an index for all architectures, as a release has it. It returns the reference.
func published(t *testing.T) (reference string) {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	authority, err := registry.NewAuthority(ca)
	if err != nil {
		t.Fatal(err)
	}
	files := make([]bytecodeimage.File, 0, 2)
	for _, order := range []string{"bytecode", "bytecode-big-endian"} {
		files = append(files, bytecodeimage.File{Name: order + ".o", Content: example(t, order)})
	}
	built, err := bytecodeimage.Build(files, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	content, ok := built.(remote.Taggable)
	if !ok {
		t.Fatalf("the image is %T", built)
	}
	served := registry.Serve(t, nil, authority)
	served.Push("counter:v1", content)
	t.Setenv("SSL_CERT_FILE", ca)
	return served.Address + "/counter:v1"
}

func example(t *testing.T, order string) []byte {
	t.Helper()
	content := must.Read(t, filepath.Join(bin(t), order, "go-tcx-counter.o"))
	return content
}

// The reader of each architecture chooses the object of its own byte order from one image.
func TestReader(t *testing.T) {
	for architecture, order := range map[string]string{arm64: "bytecode", "s390x": "bytecode-big-endian"} {
		t.Run(architecture, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), reader.Command)
			emulate(t, architecture, path, filepath.Join(bin(t), "linux-"+architecture, reader.Command))
			reference := published(t)
			store := &bytecode.Store{Dir: t.TempDir(), Limit: 1 << 30}
			files, err := store.Create()
			if err != nil {
				t.Fatal(err)
			}
			defer files.Discard()
			process := bytecode.Process{Path: path, Deadline: patience}
			answer := process.Read(t.Context(), &reader.Request{Image: reference, Object: true}, files)
			if answer.Error != "" || answer.Object == nil || answer.Manifest == answer.Digest || len(answer.Object.Functions) == 0 {
				t.Fatalf("the answer is %+v", answer)
			}
			read := must.Read(t, files.Object.Name())
			// The sixth byte of an ELF file is its byte order.
			if want := example(t, order); len(read) < 6 || read[5] != want[5] || fmt.Sprintf("sha256:%x", sha256.Sum256(read)) != answer.Object.Digest {
				t.Errorf("the object of %d bytes isn't that of %s: %+v", len(read), order, answer.Object)
			}
		})
	}
}

// The operator for arm64 becomes ready, and deploys the node components.
func TestOperator(t *testing.T) {
	dir := unpack(t, "bpfman-operator")
	c := envtest.Client(t, envtest.Config(t))
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bpfman"}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	must.Succeed(t, envtest.Apply(t.Context(), c, "config/default", "Deployment", "ValidatingAdmissionPolicyBinding"))
	at := address(t)
	start(t, filepath.Join(dir, "bpfman-operator"), []string{"KUBECONFIG=" + envtest.Kubeconfig(t), "POD_NAMESPACE=bpfman"},
		"--metrics-bind-address=0", "--health-probe-bind-address="+at)
	await(t, "the operator is ready", ready(at))
	await(t, "it deploys the DaemonSet", func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Namespace: "bpfman", Name: "bpfman-daemon"}, &appsv1.DaemonSet{})
	})
}

// The agent for arm64 becomes ready. It reads an image with its own reader, loads the program, attaches it, and reports it.
func TestAgent(t *testing.T) {
	dir := unpack(t, "bpfman-agent")
	c := envtest.Client(t, envtest.Config(t))
	reference := published(t)
	const name = "emulated"
	must.Succeed(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	// Without an operator, an agent looks for the first object of a kind only when it starts, and then every few minutes.
	program := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "counter"}}
	program.Spec.BpfFunctionName = "tcx_stats"
	program.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: reference}
	program.Spec.InterfaceSelector.Interfaces = &[]string{"lo"}
	program.Spec.Direction = "ingress"
	must.Succeed(t, c.Create(t.Context(), program))
	socket := filepath.Join(t.TempDir(), "daemon.sock")
	daemon := daemontest.New(t.TempDir())
	daemon.Serve(t, socket)
	at := address(t)
	start(t, filepath.Join(dir, "bpfman-agent"), []string{"KUBE_NODE_NAME=" + name},
		"--kubeconfig="+envtest.Kubeconfig(t), "--daemon-socket="+socket, "--daemon-root="+daemon.Root, "--namespace=bpfman",
		"--bytecode-dir="+t.TempDir(), "--host-proc=/proc", "--metrics-bind-address=0", "--health-probe-bind-address="+at)
	await(t, "the agent is ready", ready(at))
	await(t, "the program is attached", func(ctx context.Context) error {
		var reports v1alpha1.BpfProgramList
		if err := c.List(ctx, &reports); err != nil {
			return err
		}
		if len(reports.Items) != 1 || len(reports.Items[0].Status.Links) != 1 || reports.Items[0].Status.Links[0].LinkID == 0 {
			return fmt.Errorf("the reports are %+v", reports.Items)
		}
		return nil
	})
}

// The plugin for arm64 becomes ready, as its own probe finds.
func TestPlugin(t *testing.T) {
	plugin := filepath.Join(unpack(t, "bpfman-csi"), "bpfman-csi")
	dir := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "pods"), 0o750))
	socket := filepath.Join(dir, "daemon.sock")
	daemontest.New(t.TempDir()).Serve(t, socket)
	endpoint := "--endpoint=unix://" + filepath.Join(dir, "csi.sock")
	start(t, plugin, nil, endpoint, "--daemon-socket="+socket, "--maps-root="+dir, "--kubelet-root="+dir, "--node-name=emulated", "--metrics-address=0")
	await(t, "the plugin is ready", func(ctx context.Context) error {
		output, err := exec.CommandContext(ctx, emulator(t, arm64), plugin, "--probe", endpoint).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
}

// The inspector, and the daemon's helper, need the kernel's eBPF. They start for arm64, and say what they lack.
func TestWithoutEBPF(t *testing.T) {
	for _, test := range []struct {
		repository, path, expected string
		arguments                  []string
	}{
		{"bpfman-inspector", "bpfman-inspector", "bpfman-inspector ", []string{"--version"}},
		{"bpfman-inspector", "bpfman-inspector", "function not implemented", []string{"dump", "--map=1"}},
		{"bpfman-agent", "bpfman-ns.real", "function not implemented", []string{
			"uprobe", "--program-pin-path=/none", "--link-pin-path=/none", "--fn-name=main", "--target=/bin/sh", fmt.Sprint("--container-pid=", os.Getpid()),
		}},
	} {
		t.Run(test.path+" "+test.arguments[0], func(t *testing.T) {
			path := filepath.Join(unpack(t, test.repository), test.path)
			output, _ := exec.CommandContext(t.Context(), emulator(t, arm64), append([]string{path}, test.arguments...)...).CombinedOutput()
			if !strings.Contains(string(output), test.expected) {
				t.Errorf("it prints %q, not %q", output, test.expected)
			}
		})
	}
}
