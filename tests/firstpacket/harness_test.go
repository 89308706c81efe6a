// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package firstpacket tests with containerd 2, the real daemon, and an API server that programs are attached before the
// first packet of a pod, and before the first instruction of a container.
package firstpacket

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	timeout      = 30 * time.Second
	pollInterval = 20 * time.Millisecond
	nodeName     = "first-packet"
)

// The variables have the paths of commands that `make test-first-packet` builds.
const (
	containerdVariable = "CONTAINERD"
	commandVariable    = "FIRST_PACKET"
	agentVariable      = "BPFMAN_AGENT"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	envtest.Main(m)
}

// binary returns the path of a command. It skips the test if there is none.
func binary(tb testing.TB, variable string) string {
	tb.Helper()
	path := os.Getenv(variable)
	if path == "" {
		prerequisite.Missing(tb, variable+" isn't set: run `make test-first-packet`", prerequisite.Commands)
	}
	return path
}

// within waits until a check succeeds.
func within(tb testing.TB, what string, check func(context.Context) error) {
	tb.Helper()
	if err := eventually.Succeeds(tb.Context(), timeout, pollInterval, check); err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

// node is a node with a daemon, containerd, and an agent.
type node struct {
	*daemontest.Real
	*containerd

	t      testing.TB
	client client.Client
	config string // the agent's kubeconfig
	dir    string
	server *proxy // to the API server, for the agent
	agent  *exec.Cmd
}

// startNode starts a node without an agent.
func startNode(tb testing.TB) *node {
	tb.Helper()
	config := envtest.Config(tb)
	n := &node{t: tb, client: envtest.Client(tb, config), dir: tb.TempDir()}
	var through *rest.Config
	n.server, through = newProxy(tb, config)
	n.config = envtest.KubeconfigOf(tb, through)
	// The daemon finds its helper for uprobes in containers, bpfman-ns, beside the agent.
	n.Real = daemontest.Start(tb, "PATH="+filepath.Dir(binary(tb, agentVariable))+":"+os.Getenv("PATH"))
	n.showProcesses()
	n.containerd = startContainerd(tb, n.Place)
	must.Succeed(tb, client.IgnoreAlreadyExists(n.client.Create(tb.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})))
	return n
}

// showProcesses makes the host's processes visible where the daemon's pod has them.
func (n *node) showProcesses() {
	n.t.Helper()
	for _, dir := range []string{"/host", "/host/proc"} {
		if os.Mkdir(dir, 0o755) == nil {
			n.t.Cleanup(func() { must.Succeed(n.t, os.Remove(dir)) })
		}
	}
	if output, err := n.Command(n.t.Context(), "mount", "--bind", "/proc", "/host/proc").CombinedOutput(); err != nil {
		n.t.Fatalf("mount /host/proc: %v: %s", err, output)
	}
}

// startAgent starts the agent, which uses the API server over this machine's network.
func (n *node) startAgent() {
	n.t.Helper()
	agent := n.Place.InMounts(context.WithoutCancel(n.t.Context()), binary(n.t, agentVariable), "--kubeconfig="+n.config, "--daemon-socket="+n.Socket, "--runtime-dir=/run",
		"--host-proc=/proc", "--bytecode-dir="+n.dir, "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0", "--namespace=bpfman",
		"--uprobe-namespaces=*", "--nri-socket=/run/nri/nri.sock")
	agent.Env = append(os.Environ(), "KUBE_NODE_NAME="+nodeName, "GO_LOG=debug")
	n.agent = run(n.t, agent, "the agent")
	within(n.t, "containerd to call the agent", func(context.Context) error {
		if !bytes.Contains(n.agentLog(), []byte("The container runtime reports starts")) {
			return errors.New("the agent isn't connected yet")
		}
		return nil
	})
}

// agentLog returns the log of the last started agent.
func (n *node) agentLog() []byte {
	n.t.Helper()
	return must.Read(n.t, n.agent.Stdout.(*os.File).Name()) //nolint:errcheck // see run
}

// create creates an object, which is deleted when the test ends.
func (n *node) create(o client.Object) {
	n.t.Helper()
	must.Succeed(n.t, n.client.Create(n.t.Context(), o))
	n.t.Cleanup(func() { _ = n.client.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
}

// selector selects pods with a label, before their start.
func selector(app string, policy v1alpha1.StartFailurePolicy) *v1alpha1.ContainerSelector {
	return &v1alpha1.ContainerSelector{
		Pods: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Attachment: v1alpha1.AttachBeforeStart, FailurePolicy: policy,
	}
}

// counter returns a program that counts the numbered packets of pods.
func counter(tb testing.TB, name string, selector *v1alpha1.ContainerSelector) *v1alpha1.TcxProgram {
	tb.Helper()
	object, err := filepath.Abs("../../bin/bytecode/first_packets.o")
	must.Succeed(tb, err)
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.Direction, o.Spec.Priority = "first_packets", "egress", 500
	o.Spec.InterfaceSelector.Interfaces = &[]string{"eth0"}
	o.Spec.ByteCode.Path, o.Spec.Containers = &object, selector
	return o
}

// report returns the report about the program of an object.
func (n *node) report(ctx context.Context, name string) (*v1alpha1.BpfProgram, error) {
	var list v1alpha1.BpfProgramList
	if err := n.client.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.OwnerReferences[0].Name == name && len(p.Status.Conditions) > 0 {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no report about %s", name)
}

// loaded waits until the program of an object is loaded, and its report doesn't say that starts aren't reported.
func (n *node) loaded(name string) {
	n.t.Helper()
	within(n.t, "the program to be loaded", func(ctx context.Context) error {
		p, err := n.report(ctx, name)
		if err != nil {
			return err
		}
		if said := p.Status.Conditions[0].Message; p.Status.ProgramID == 0 || strings.Contains(said, "attached after pods start") {
			return fmt.Errorf("program %d: %s", p.Status.ProgramID, said)
		}
		return nil
	})
}

// mapOf returns a map of the program of an object.
func (n *node) mapOf(object, name string) *ebpf.Map {
	n.t.Helper()
	list, err := n.Client.List(n.t.Context(), &gobpfman.ListRequest{MatchMetadata: map[string]string{v1alpha1.MetadataProgramName: object}})
	must.Succeed(n.t, err)
	for _, p := range list.GetResults() {
		for _, id := range p.GetKernelInfo().GetMapIds() {
			m, err := ebpf.NewMapFromID(ebpf.MapID(id))
			must.Succeed(n.t, err)
			if info, err := m.Info(); err == nil && info.Name == name {
				n.t.Cleanup(func() { _ = m.Close() })
				return m
			}
		}
	}
	n.t.Fatalf("the daemon has no map %s of %s", name, object)
	return nil
}

func layerOf(file string, content []byte) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: file, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
}

func must1[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
