// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package bytecodesource tests where bytecode comes from, with the agent, a real API
// server, the real daemon, and a registry on the loopback interface.
package bytecodesource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	agentbytecode "github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/controller"
	agentdaemon "github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/registry"
)

const (
	// objectDir is the output directory of `make bytecode`, and readerPath the command that
	// `make build` builds.
	objectDir  = "../../bin/bytecode"
	readerPath = "../../bin/bpfman-reader"
	namespace  = "bytecodesource"
)

// authority is the authority that the reader trusts, and the daemon in the test of what it
// does by itself. The agent runs in this process.
var (
	authority     *registry.Authority
	authorityFile string
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "authority")
	if err == nil {
		authorityFile = filepath.Join(dir, "ca.crt")
		authority, err = registry.NewAuthority(authorityFile)
	}
	// Go reads it once, for the first certificate that it verifies.
	if err = errors.Join(err, os.Setenv("SSL_CERT_FILE", authorityFile)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	envtest.Main(m)
}

// node is a node with a daemon and an agent, and a registry.
type node struct {
	*daemontest.Real
	*registry.Registry
	t      *testing.T
	name   string
	client client.Client
	store  *agentbytecode.Store
	stop   func() // ends the agent

	mu    sync.Mutex
	loads map[string]int // by the owner's name
	// earlier makes the daemon pull the image, as an earlier version of the agent did.
	earlier bool
}

func start(t *testing.T, environment ...string) *node {
	t.Helper()
	if _, err := os.Stat(readerPath); err != nil {
		prerequisite.Missing(t, "run `make build` first: "+err.Error(), prerequisite.Commands)
	}
	c := envtest.Client(t, envtest.Config(t))
	n := &node{t: t, name: strings.ToLower(t.Name()), client: c, loads: map[string]int{}, Real: daemontest.Start(t, environment...)}
	n.Registry = registry.Serve(t, n.Real, authority)
	kernel, err := reader.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	n.store = &agentbytecode.Store{Dir: t.TempDir(), Limit: 256 * mebi, Kernel: kernel}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	n.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{"test": n.name}}})

	n.startAgent()
	return n
}

// startAgent starts an agent, which ends with the test.
func (n *node) startAgent() {
	n.t.Helper()
	server, err := cluster.New(envtest.Config(n.t), "bpfman-agent", n.name, namespace, logr.Discard())
	if err == nil {
		err = server.Serve(nil)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	agent := controller.New(controller.Options{
		Cluster: server, Inventory: agentdaemon.NewInventory(&loadCounter{n.Client, n}, n.Path("/")), NodeName: n.name, Drift: time.Minute,
		Interfaces: func() (map[string]program.Interface, error) {
			return map[string]program.Interface{"lo": {Index: 1}}, nil
		},
		Bytecode: &agentbytecode.Library{Read: agentbytecode.Process{Path: readerPath}.Read, Store: n.store},
		PinsDir:  n.Path("/sys/fs/bpf"), KernelTypes: "/sys/kernel/btf",
		Containers: func(context.Context, []corev1.Pod) ([]program.Container, error) { return nil, nil },
		FindKinds:  time.Second, // no operator publishes hints
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = agent.Run(ctx, func(_ context.Context, f func()) { f() }) // the end of its context stops it
	}()
	n.stop = func() { cancel(); <-ended }
	n.t.Cleanup(n.stop)
}

// create creates an object that is deleted when the test ends.
func (n *node) create(o client.Object) {
	n.t.Helper()
	must.Succeed(n.t, n.client.Create(n.t.Context(), o))
	n.t.Cleanup(func() { _ = n.client.Delete(context.Background(), o) })
}

func (n *node) delete(o client.Object) {
	n.t.Helper()
	must.Succeed(n.t, n.client.Delete(n.t.Context(), o))
}

// change edits an object.
func (n *node) change(o client.Object, edit func()) {
	n.t.Helper()
	n.eventually("edit "+o.GetName(), func(ctx context.Context) error {
		if err := n.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		edit()
		return n.client.Update(ctx, o)
	})
}

func (n *node) eventually(what string, check func(context.Context) error) {
	n.t.Helper()
	envtest.Eventually(n.t, what, check)
}

// program returns a TCX program on the test's node. Only tcx_test.o contains its
// function.
func (n *node) program(name string, bytecode v1alpha1.BytecodeSelector) *v1alpha1.TcxProgram {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.Direction = "tcx_next", "ingress"
	o.Spec.InterfaceSelector.Interfaces = &[]string{"lo"}
	o.Spec.NodeSelector.MatchLabels = map[string]string{"test": n.name}
	o.Spec.ByteCode = bytecode
	return o
}

func (n *node) image(reference string, policy v1alpha1.PullPolicy) v1alpha1.BytecodeSelector {
	return v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: n.Address + "/" + reference, ImagePullPolicy: policy}}
}

// reports waits until the report about an owner's only program satisfies a check.
func (n *node) reports(owner client.Object, what string, check func(*v1alpha1.BpfProgram) error) *v1alpha1.BpfProgram {
	n.t.Helper()
	var found *v1alpha1.BpfProgram
	n.eventually(owner.GetName()+" to be "+what, func(ctx context.Context) error {
		var list v1alpha1.BpfProgramList
		if err := n.client.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelHostname: n.name}); err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			if ref := metav1.GetControllerOf(o); ref == nil || ref.UID != owner.GetUID() {
				continue
			}
			if o.Status.OwnerGeneration != owner.GetGeneration() || len(o.Status.Conditions) == 0 {
				return fmt.Errorf("status %+v", o.Status)
			}
			found = o
			return check(o)
		}
		return errors.New("no BpfProgram")
	})
	return found
}

// loaded waits until an owner's program is attached, and returns its id.
func (n *node) loaded(owner client.Object) uint32 {
	n.t.Helper()
	return n.reports(owner, "attached", func(o *v1alpha1.BpfProgram) error {
		if c := o.Status.Conditions[0]; c.Type != string(v1alpha1.BpfProgCondLoaded) || len(o.Status.Links) != 1 {
			return fmt.Errorf("%s: %s, links %v", c.Type, c.Message, o.Status.Links)
		}
		return nil
	}).Status.ProgramID
}

// fails waits until the report about an owner's program contains a failure with these
// words.
func (n *node) fails(owner client.Object, condition v1alpha1.BpfProgramConditionType, words ...string) *v1alpha1.BpfProgram {
	n.t.Helper()
	return n.reports(owner, "failing", func(o *v1alpha1.BpfProgram) error {
		c := o.Status.Conditions[0]
		for _, w := range words {
			if c.Type != string(condition) || !strings.Contains(c.Message, w) {
				return fmt.Errorf("%s: %s", c.Type, c.Message)
			}
		}
		return nil
	})
}

// bytecode reads an object file.
func bytecode(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(objectDir, name+".o"))
	if err != nil {
		prerequisite.Missing(t, "run `make bytecode` first: "+err.Error(), prerequisite.Bytecode)
	}
	return content
}

// build builds the image of an object file.
func build(t *testing.T, name string) v1.Image {
	t.Helper()
	image, err := bytecodeimage.ForArchitecture(name+".o", bytecode(t, name), goruntime.GOARCH, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func digest(t *testing.T, image interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}
