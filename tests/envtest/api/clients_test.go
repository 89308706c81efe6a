// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bpfman/bpfman-operator/apis/client/clientset"
	"github.com/bpfman/bpfman-operator/apis/client/informers"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
)

func typedClient(t *testing.T) *clientset.Clientset {
	t.Helper()
	c, err := clientset.NewForConfig(envtest.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A list of integers is stored unchanged. Go clients read it as bytes, and their first
// write converts it to base64.
func TestGlobalDataForms(t *testing.T) {
	k := kinds()["XdpProgram"]
	created := create(t, k, object(t, k, "globals", `{"globaldata":{"listed":[13,12,11,10],"encoded":"DQwLCg=="}}`))
	if got := at(t, created, "spec", "globaldata"); got != `{"encoded":"DQwLCg==","listed":[13,12,11,10]}` {
		t.Errorf("stored %s", got)
	}

	programs := typedClient(t).BpfmanV1alpha1().XdpPrograms()
	typed, err := programs.Get(deadline(t), "globals", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"listed", "encoded"} {
		if got := typed.Spec.GlobalData[form]; !slices.Equal(got, []byte{13, 12, 11, 10}) {
			t.Errorf("%s is read as %v", form, got)
		}
	}
	if _, err := programs.Update(deadline(t), typed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	written, err := client(t, k).Get(deadline(t), "globals", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := at(t, written, "spec", "globaldata"); got != `{"encoded":"DQwLCg==","listed":"DQwLCg=="}` {
		t.Errorf("written as %s", got)
	}
}

// Flux, Argo CD, and Helm use server-side apply. A GitOps tool and a user are two field
// managers.
func TestGlobalDataByServerSideApply(t *testing.T) {
	for _, k := range kinds() {
		if k.name == "BpfProgram" || k.name == "BpfNsProgram" {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			c := client(t, k)
			name, field := "applied-globals", "globaldata"
			if k.name == "ClusterBpfApplication" {
				field = "globalData"
			}
			applied := func(manager, globals string) error {
				_, err := c.Apply(deadline(t), name, object(t, k, name, `{"`+field+`":`+globals+`}`), metav1.ApplyOptions{FieldManager: manager})
				return err
			}
			t.Cleanup(func() {
				ctx, cancel := afterTest()
				defer cancel()
				if err := c.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})
			for _, step := range []struct{ manager, globals, want string }{
				{"one", `{"listed":[13,12,11,10],"encoded":"DQwLCg=="}`, `{"encoded":"DQwLCg==","listed":[13,12,11,10]}`},
				{"one", `{"listed":[1],"encoded":"AQ=="}`, `{"encoded":"AQ==","listed":[1]}`},
				{"two", `{"further":[2]}`, `{"encoded":"AQ==","further":[2],"listed":[1]}`},
				{"two", `{"further":"Ag=="}`, `{"encoded":"AQ==","further":"Ag==","listed":[1]}`},
				{"one", `{"listed":[1]}`, `{"further":"Ag==","listed":[1]}`},
			} {
				if err := applied(step.manager, step.globals); err != nil {
					t.Fatalf("%s applies %s: %v", step.manager, step.globals, err)
				}
				o, err := c.Get(deadline(t), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if got := at(t, o, "spec", field); got != step.want {
					t.Errorf("after %s applied %s: %s, want %s", step.manager, step.globals, got, step.want)
				}
			}
			if err := applied("two", `{"listed":[7]}`); !apierrors.IsConflict(err) {
				t.Errorf("another's value, without force: %v", err)
			}
		})
	}
}

// If a Go client writes what it has read, nothing changes. The generation stays the
// same, so no agent does anything.
func TestWritingBackChangesNothing(t *testing.T) {
	k := kinds()["UprobeProgram"]
	created := create(t, k, object(t, k, "write-back", ""))
	// Without a status, the first write stores its defaults.
	created.Object["status"] = decode(t, `{"observedGeneration":1}`)
	created, err := client(t, k).UpdateStatus(deadline(t), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	programs := typedClient(t).BpfmanV1alpha1().UprobePrograms()
	read, err := programs.Get(deadline(t), "write-back", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	written, err := programs.Update(deadline(t), read, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if written.Generation != created.GetGeneration() || written.ResourceVersion != created.GetResourceVersion() {
		t.Errorf("generation %d, version %s became %d, %s", created.GetGeneration(), created.GetResourceVersion(), written.Generation, written.ResourceVersion)
	}
}

// The generated clientset, informers, and listers work with the server.
func TestGeneratedClients(t *testing.T) {
	c := typedClient(t)
	programs := c.BpfmanV1alpha1().TcxNsPrograms(metav1.NamespaceDefault)
	primary := true
	program := &v1alpha1.TcxNsProgram{ObjectMeta: metav1.ObjectMeta{Name: "generated"}}
	program.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: "quay.io/x/y:latest"}
	program.Spec.TcxNsProgramInfo = v1alpha1.TcxNsProgramInfo{
		BpfProgramCommon:  v1alpha1.BpfProgramCommon{BpfFunctionName: "f"},
		InterfaceSelector: v1alpha1.InterfaceSelector{PrimaryNodeInterface: &primary},
		Containers:        &v1alpha1.ContainerNsSelector{},
		Direction:         "ingress",
	}
	created, err := programs.Create(deadline(t), program, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := afterTest()
		defer cancel()
		if err := programs.Delete(ctx, "generated", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	created.Status.ObservedGeneration = created.Generation
	created.Status.Nodes = &v1alpha1.NodeCounts{Selected: 1, Attached: 1}
	if _, err := programs.UpdateStatus(deadline(t), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	factory := informers.NewSharedInformerFactory(c, time.Hour)
	lister := factory.Bpfman().V1alpha1().TcxNsPrograms().Lister()
	ctx := deadline(t)
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("%v not synchronized", kind)
		}
	}
	listed, err := lister.TcxNsPrograms(metav1.NamespaceDefault).List(labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	if len(listed) != 1 || listed[0].Status.Nodes == nil || listed[0].Status.Nodes.Attached != 1 || listed[0].Spec.BpfFunctionName != "f" {
		t.Errorf("listed %+v", listed)
	}
}
