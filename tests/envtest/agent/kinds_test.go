// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

func (n *node) refuse(resource string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unreadable = resource
}

// pause delays the agent's reads of a resource until resume is called.
func (n *node) pause(resource string) (resume func()) {
	paused := make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = map[string]chan struct{}{resource: paused}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.paused = nil
		close(paused)
	}
}

// readiness waits until the agent is ready, or isn't, with these words in the error.
func (n *node) readiness(want bool, words string) {
	n.t.Helper()
	n.eventually("the agent's readiness", func() error {
		problems, ready := n.kinds.State()
		if said := strings.Join(problems, "\n"); ready != want || !strings.Contains(said, words) || (words == "" && said != "") {
			return fmt.Errorf("ready %v, saying %q", ready, said)
		}
		return nil
	})
}

func (n *node) fentry(name string) *v1alpha1.FentryProgram {
	o := &v1alpha1.FentryProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.FunctionName = "f", "do_unlinkat"
	n.fill(&o.Spec.BpfAppCommon)
	return o
}

// A kind that the agent has no permission to read doesn't affect other kinds, when the
// agent starts or later. No program is treated as if its owner were deleted.
func TestAKindThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	n := start(t)
	fentry := n.fentry("unreadable")
	deletedMeanwhile := n.fentry("deleted-meanwhile")
	n.create(fentry)
	n.create(deletedMeanwhile)
	n.holds("FentryProgram/unreadable f ", "FentryProgram/deleted-meanwhile f ")
	n.readiness(true, "")

	n.crash()
	n.refuse("fentryprograms")
	n.startAgent()
	n.create(n.tracepoint("readable", "g", "a/x"))
	n.delete(deletedMeanwhile)
	n.holds("FentryProgram/unreadable f ", "FentryProgram/deleted-meanwhile f ", "TracepointProgram/readable g a/x")
	n.readiness(true, "FentryPrograms can't be read: ")

	n.refuse("")
	n.holds("FentryProgram/unreadable f ", "TracepointProgram/readable g a/x")
	n.readiness(true, "")
	n.delete(fentry)
	n.holds("TracepointProgram/readable g a/x")
}

// Without the reports about cluster-scoped objects, their links aren't known, so they
// stay unchanged. Namespaced objects aren't affected.
func TestReportsThatCannotBeReadHoldUpTheirScopeAlone(t *testing.T) {
	n := start(t)
	n.create(n.tracepoint("reported", "f", "a/x"))
	n.holds("TracepointProgram/reported f a/x")
	before := n.daemon.Programs()

	n.crash()
	n.refuse("bpfprograms")
	n.startAgent()
	namespaced := &v1alpha1.TcxNsProgram{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "namespaced"}}
	namespaced.Spec.BpfFunctionName, namespaced.Spec.Direction = "g", "ingress"
	namespaced.Spec.InterfaceSelector.Interfaces = &[]string{"eth0"}
	namespaced.Spec.Containers = &v1alpha1.ContainerNsSelector{}
	n.fill(&namespaced.Spec.BpfAppCommon)
	n.create(namespaced)
	n.eventually("the namespaced program to be loaded", func() error {
		if held := n.daemon.Programs(); len(held) != len(before)+1 || held[0].ID != before[0].ID || len(held[0].Links) != 1 {
			return fmt.Errorf("the daemon holds %+v", held)
		}
		return nil
	})
	n.readiness(true, "BpfPrograms can't be read: ")
	n.refuse("")
	n.readiness(true, "")
	if held := n.daemon.Programs(); held[0].ID != before[0].ID {
		t.Errorf("loaded again: %+v", held)
	}
}

// Nothing works without the agent's own Node.
func TestAgentIsNotReadyWithoutItsNode(t *testing.T) {
	n := start(t)
	n.readiness(true, "")
	n.crash()
	n.refuse("nodes")
	n.startAgent()
	n.readiness(false, "Nodes can't be read: ")
	n.refuse("")
	n.readiness(true, "")
}

// A definition that is missing when the agent starts doesn't affect other kinds. When it
// is installed, the agent uses it.
func TestADefinitionThatIsMissingHoldsUpNoOther(t *testing.T) {
	n := start(t)
	n.crash()
	c := envtest.Client(t, envtest.Config(t))
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "fexitprograms.bpfman.io"}}
	must.Succeed(t, c.Get(context.Background(), client.ObjectKeyFromObject(definition), definition))
	again := definition.DeepCopy()
	again.ResourceVersion, again.UID, again.Status = "", "", apiextensionsv1.CustomResourceDefinitionStatus{}
	must.Succeed(t, c.Delete(context.Background(), definition))
	install := func() error {
		err := c.Create(context.Background(), again.DeepCopy())
		return client.IgnoreAlreadyExists(err)
	}
	t.Cleanup(func() { n.eventually("the definition to be installed", install) })
	n.eventually("the definition to be gone", func() error {
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(definition), definition); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})

	n.startAgent()
	n.create(n.tracepoint("beside", "f", "a/x"))
	n.holds("TracepointProgram/beside f a/x")
	n.readiness(true, "FexitPrograms can't be read: ")

	n.eventually("the definition to be installed", install)
	fexit := &v1alpha1.FexitProgram{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	fexit.Spec.BpfFunctionName, fexit.Spec.FunctionName = "g", "do_unlinkat"
	n.fill(&fexit.Spec.BpfAppCommon)
	n.eventually("an object of the kind", func() error { return n.client.Create(context.Background(), fexit) })
	t.Cleanup(func() { _ = n.client.Delete(context.Background(), fexit) })
	n.eventually("it to be loaded", func() error {
		held := n.daemon.Programs()
		if !slices.ContainsFunc(held, func(p daemontest.Loaded) bool { return p.Metadata[v1alpha1.MetadataProgramName] == "late" }) {
			return fmt.Errorf("the daemon holds %+v", held)
		}
		return nil
	})
	n.readiness(true, "")
}
