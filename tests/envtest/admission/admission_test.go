// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package admission tests, on a real kube-apiserver, who can write the agent's reports.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/upstream"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	envtest.Main(m)
}

// privileged returns the configuration of a user with every permission that a role can grant.
func privileged(t *testing.T, name string) *rest.Config {
	t.Helper()
	config := envtest.Config(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters", "system:authenticated"}}
	return config
}

// privilegedClient returns a client of such a user.
func privilegedClient(t *testing.T, name string) client.Client {
	t.Helper()
	return envtest.Client(t, privileged(t, name))
}

// accountClient returns a client of one of bpfman's ServiceAccounts, with only its permissions.
func accountClient(t *testing.T, name string) client.Client {
	t.Helper()
	return envtest.Client(t, envtest.As(envtest.Config(t), "bpfman", name))
}

// deployed returns a client of an administrator of a cluster with config/default.
func deployed(t *testing.T) client.Client {
	t.Helper()
	admin := privilegedClient(t, "an-administrator")
	must.Succeed(t, envtest.Apply(t.Context(), admin, "config/default", "Deployment"))
	return admin
}

// inForce waits until a policy denies what it has to, which takes a moment.
func inForce(t *testing.T, name string, denies func(context.Context) bool) {
	t.Helper()
	envtest.Eventually(t, name, func(ctx context.Context) error {
		if !denies(ctx) {
			return errors.New("it isn't in force")
		}
		return nil
	})
}

func report(kind v1alpha1.Kind[v1alpha1.ProgramObject], name string) v1alpha1.ProgramObject {
	object := kind.New()
	object.SetName(name)
	if kind.Namespaced {
		object.SetNamespace("default")
	}
	object.GetSpec().Type = "xdp"
	object.SetLabels(map[string]string{v1alpha1.LabelOwnerKind: "XdpProgram"})
	return object
}

// refused reports whether the admission policy refused a request, and not RBAC.
func refused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "change or delete the object that a program was loaded for")
}

func TestReportsAreTheAgentsAlone(t *testing.T) {
	admin := deployed(t)
	agent := accountClient(t, "bpfman-daemon")
	for _, kind := range v1alpha1.ProgramKinds {
		inForce(t, "the policy for "+kind.Name, func(ctx context.Context) bool {
			return refused(admin.Create(ctx, report(kind, "probe"), client.DryRunAll))
		})
	}

	for _, kind := range v1alpha1.ProgramKinds {
		t.Run(kind.Name, func(t *testing.T) {
			object := report(kind, "report")
			if err := agent.Create(t.Context(), object); err != nil {
				t.Fatalf("the agent can't create: %v", err)
			}
			object.GetStatus().Node = "node"
			v1alpha1.SetConditions(&object.GetStatus().Conditions, v1alpha1.BpfProgCondLoaded.Condition(""))
			if err := agent.Status().Update(t.Context(), object); err != nil {
				t.Fatalf("the agent can't write status: %v", err)
			}
			object.SetLabels(map[string]string{v1alpha1.LabelOwnerKind: "XdpProgram", "a": "b"})
			if err := agent.Update(t.Context(), object); err != nil {
				t.Fatalf("the agent can't update: %v", err)
			}

			others := map[string]client.Client{
				"an administrator": admin,
				"another ServiceAccount of bpfman's namespace": privilegedClient(t, "system:serviceaccount:bpfman:default"),
				"a namesake in another namespace":              privilegedClient(t, "system:serviceaccount:evil:bpfman-daemon"),
			}
			for who, c := range others {
				edited := object.DeepCopyObject().(v1alpha1.ProgramObject) //nolint:errcheck // a copy has the same type
				edited.GetSpec().Type = "tc"
				if err := c.Update(t.Context(), edited); !refused(err) {
					t.Errorf("%s can update: %v", who, err)
				}
				edited.GetStatus().Node = "elsewhere"
				if err := c.Status().Update(t.Context(), edited); !refused(err) {
					t.Errorf("%s can write status: %v", who, err)
				}
				if err := c.Delete(t.Context(), edited); !refused(err) {
					t.Errorf("%s can delete: %v", who, err)
				}
			}
			// Finalizers can be removed, and nothing else at the same time.
			held := object.DeepCopyObject().(v1alpha1.ProgramObject) //nolint:errcheck // a copy has the same type
			held.SetFinalizers([]string{upstream.ReportFinalizer("XdpProgram"), "example.com/keep"})
			if err := admin.Update(t.Context(), held); !refused(err) {
				t.Errorf("an administrator can add finalizers: %v", err)
			}
			must.Succeed(t, agent.Update(t.Context(), held))
			held.SetFinalizers([]string{"example.com/keep"})
			held.SetLabels(map[string]string{v1alpha1.LabelOwnerKind: "XdpProgram", "a": "c"})
			if err := admin.Update(t.Context(), held); !refused(err) {
				t.Errorf("an administrator can change labels with finalizers: %v", err)
			}
			for _, remover := range []struct {
				who   string
				c     client.Client
				patch string
			}{
				{"an administrator", admin, `{"metadata":{"finalizers":["example.com/keep"]}}`},
				{"the operator", accountClient(t, "bpfman-operator"), `{"metadata":{"finalizers":null}}`},
			} {
				if err := remover.c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(remover.patch))); err != nil {
					t.Errorf("%s can't remove finalizers: %v", remover.who, err)
				}
			}
			if len(object.GetFinalizers()) > 0 {
				t.Errorf("finalizers %q", object.GetFinalizers())
			}

			operator := privilegedClient(t, "system:serviceaccount:bpfman:bpfman-operator")
			edited := object.DeepCopyObject().(v1alpha1.ProgramObject) //nolint:errcheck // a copy has the same type
			edited.GetSpec().Type = "tc"
			// One of the two policies refuses it.
			if err := operator.Update(t.Context(), edited); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Errorf("the operator can update: %v", err)
			}

			// A report that this project's agent didn't write.
			foreign := report(kind, "foreign")
			foreign.SetLabels(nil)
			must.Succeed(t, agent.Create(t.Context(), foreign))
			if err := admin.Delete(t.Context(), foreign); err != nil {
				t.Errorf("an administrator can't delete a report of upstream's agent: %v", err)
			}

			// Orphaning removes the owner from the object. Garbage collection deletes the object.
			collector := privilegedClient(t, "system:serviceaccount:kube-system:generic-garbage-collector")
			if err := collector.Create(t.Context(), report(kind, "new")); !refused(err) {
				t.Errorf("the garbage collector can create: %v", err)
			}
			if err := collector.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"ownerReferences":null}}`))); err != nil {
				t.Errorf("the garbage collector can't orphan: %v", err)
			}
			if err := collector.Delete(t.Context(), object); err != nil {
				t.Errorf("the garbage collector can't delete: %v", err)
			}
			for name, c := range map[string]client.Client{
				"operator":             accountClient(t, "bpfman-operator"),
				"namespace controller": privilegedClient(t, "system:serviceaccount:kube-system:namespace-controller"),
				"controller manager":   privilegedClient(t, "system:kube-controller-manager"),
				"agent":                agent,
			} {
				again := report(kind, "again")
				must.Succeed(t, agent.Create(t.Context(), again))
				if err := c.Delete(t.Context(), again); err != nil {
					t.Errorf("the %s can't delete: %v", name, err)
				}
			}
		})
	}
}

// onNode returns a client of the node components of a node, whose token names it.
func onNode(t *testing.T, node string) client.Client {
	t.Helper()
	config := envtest.As(envtest.Config(t), "bpfman", "bpfman-daemon")
	config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	return envtest.Client(t, config)
}

// A node that somebody controls can't report for others, and so can't decide about rollouts there.
func TestNodesWriteTheirOwnReports(t *testing.T) {
	deployed(t)
	long := strings.Repeat("long-name.", 12) + "example"
	for _, name := range []string{"one", long} {
		node, other := onNode(t, name), onNode(t, "other")
		of := func(report v1alpha1.ProgramObject) client.Object {
			report.SetLabels(map[string]string{v1alpha1.LabelOwnerKind: "XdpProgram", v1alpha1.LabelHostname: v1alpha1.LabelValue(name)})
			report.GetStatus().Node = name
			return report
		}
		denied := func(err error) bool {
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "a node can only write its own")
		}
		objects := []client.Object{&v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: name}}}
		for _, kind := range v1alpha1.ProgramKinds {
			objects = append(objects, of(report(kind, "of-a-node")))
		}
		for _, o := range objects {
			inForce(t, "the policy for nodes", func(ctx context.Context) bool {
				return denied(other.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll)) //nolint:errcheck // a copy has the same type
			})
			must.Succeed(t, node.Create(t.Context(), o))
			writes := map[string]func(client.Client, client.Object) error{
				"write the status of": func(c client.Client, o client.Object) error { return c.Status().Update(t.Context(), o) },
				"delete":              func(c client.Client, o client.Object) error { return c.Delete(t.Context(), o, client.DryRunAll) },
				"update":              func(c client.Client, o client.Object) error { return c.Update(t.Context(), o) },
			}
			if _, is := o.(*v1alpha1.BpfNode); is { // the permissions of the inspector
				delete(writes, "delete")
				writes["update"] = func(c client.Client, o client.Object) error {
					return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)))
				}
			}
			for what, write := range writes {
				if err := write(other, o.DeepCopyObject().(client.Object)); !denied(err) { //nolint:errcheck // a copy has the same type
					t.Errorf("another node can %s %T: %v", what, o, err)
				}
				if err := write(node, o); err != nil {
					t.Errorf("the node can't %s %T: %v", what, o, err)
				}
			}
			if program, is := o.(v1alpha1.ProgramObject); is {
				program.GetStatus().Node = "other"
				if err := node.Status().Update(t.Context(), program); !denied(err) {
					t.Errorf("a node can report in the name of another: %v", err)
				}
				taken := o.DeepCopyObject().(client.Object) //nolint:errcheck // a copy has the same type
				taken.SetLabels(map[string]string{v1alpha1.LabelOwnerKind: "XdpProgram", v1alpha1.LabelHostname: "other"})
				if err := node.Update(t.Context(), taken); !denied(err) {
					t.Errorf("a node can give its report to another: %v", err)
				}
				must.Succeed(t, node.Delete(t.Context(), o))
			}
		}
	}
}

// Nodes run what status.rollout says, so that permission to write a status isn't permission to load programs.
func TestRolloutsAreTheOperators(t *testing.T) {
	admin := deployed(t)
	operator := accountClient(t, "bpfman-operator")
	for _, kind := range v1alpha1.UserKinds {
		t.Run(kind.Name, func(t *testing.T) {
			o := objectOf(t, kind, func() map[string]any {
				return map[string]any{
					"bpffunctionname": "f", "interfaceselector": map[string]any{"interfaces": []string{"eth0"}}, "priority": 1, "direction": "ingress",
					"func_name": "f", "hook_name": "file_open", "target": "libc", "names": []string{"syscalls/sys_enter_kill"},
				}
			}, []v1alpha1.EBPFProgType{"TCX"})
			o.SetName("rollout")
			o.SetAppCommon(v1alpha1.BpfAppCommon{ByteCode: v1alpha1.BytecodeSelector{Path: new("/opt/x.o")}})
			must.Succeed(t, admin.Create(t.Context(), o))
			patch := func(c client.Client, text string, options ...client.SubResourcePatchOption) error {
				return c.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text)), options...)
			}
			denied := func(err error) bool {
				return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "only bpfman's operator can write status.rollout")
			}
			const held = `{"status":{"rollout":{"state":"Progressing","hash":"h","until":0,"previous":{"revision":1,"object":{"spec":{}}}}}}`
			inForce(t, "the policy for rollouts", func(context.Context) bool { return denied(patch(admin, held, client.DryRunAll)) })
			if err := patch(operator, held); err != nil {
				t.Fatalf("the operator can't write a rollout: %v", err)
			}
			for _, text := range []string{`{"status":{"rollout":null}}`, `{"status":{"rollout":{"previous":{"object":{"spec":{"a":1}}}}}}`, `{"status":{"rollout":{"until":null}}}`, `{"status":{"revision":{"number":1,"hash":"h"}}}`} {
				if err := patch(admin, text); !denied(err) {
					t.Errorf("an administrator can write %s: %v", text, err)
				}
			}
			if err := patch(admin, `{"status":{"observedGeneration":1}}`); err != nil {
				t.Errorf("an administrator can't write the rest: %v", err)
			}
		})
	}
}

// The operator removes finalizers of users' objects. Its token allows no other change to them.
func TestTheOperatorChangesNoProgram(t *testing.T) {
	admin := deployed(t)
	operator := accountClient(t, "bpfman-operator")
	o := &v1alpha1.TracepointProgram{}
	o.SetName("policy")
	o.SetFinalizers([]string{upstream.Finalizer, "example.com/keep"})
	o.Spec.ByteCode = v1alpha1.BytecodeSelector{Path: new("/bytecode.o")}
	o.Spec.BpfFunctionName = "enter"
	o.Spec.Names = []string{"syscalls/sys_enter_kill"}
	must.Succeed(t, admin.Create(t.Context(), o))
	patch := func(text string, options ...client.PatchOption) error {
		return operator.Patch(t.Context(), o.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)), options...)
	}
	denied := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "can only remove finalizers from users' objects")
	}
	inForce(t, "the policy for programs", func(context.Context) bool {
		return denied(patch(`{"spec":{"bpffunctionname":"other"}}`, client.DryRunAll))
	})
	for _, change := range []string{
		`{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`, `{"metadata":{"finalizers":["example.com/more"]}}`,
		`{"metadata":{"finalizers":null},"spec":{"names":["syscalls/sys_enter_openat"]}}`,
	} {
		if err := patch(change); !denied(err) {
			t.Errorf("%s: %v", change, err)
		}
	}
	if err := patch(`{"metadata":{"finalizers":["example.com/keep"]}}`); err != nil {
		t.Errorf("the operator can't remove a finalizer: %v", err)
	}
	status := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"observedGeneration":1}}`))
	if err := operator.Status().Patch(t.Context(), o.DeepCopy(), status); err != nil {
		t.Errorf("the operator can't write a status: %v", err)
	}
}

// The operator writes States, so it repairs their labels and owners. It can't change users' objects that way.
func TestTheOperatorRepairsStates(t *testing.T) {
	admin := deployed(t)
	definitions, err := envtest.Build("config/states")
	must.Succeed(t, err)
	for _, definition := range definitions {
		must.Succeed(t, admin.Create(t.Context(), definition))
	}
	var operator client.Client
	envtest.Eventually(t, "States are served", func(ctx context.Context) error {
		operator, admin = accountClient(t, "bpfman-operator"), privilegedClient(t, "an-administrator") // clients remember what isn't served
		return operator.List(ctx, &v1alpha1.ClusterBpfApplicationStateList{})
	})
	owner := metav1.OwnerReference{APIVersion: "bpfman.io/v1alpha1", Kind: "ClusterBpfApplication", Name: "owner", UID: "owner", Controller: new(true)}
	state := func(name string) *v1alpha1.ClusterBpfApplicationState {
		return &v1alpha1.ClusterBpfApplicationState{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelOwnedByProgram: "owner"}, OwnerReferences: []metav1.OwnerReference{owner},
		}}
	}
	must.Succeed(t, operator.Create(t.Context(), state("edited")))
	program := &v1alpha1.ClusterBpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "not-repaired"}}
	must.Succeed(t, json.Unmarshal([]byte(`{"nodeSelector":{},"byteCode":{"path":"/object.o"},"programs":[{"name":"pass","type":"XDP","xdp":{}}]}`), &program.Spec))
	must.Succeed(t, admin.Create(t.Context(), program))
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"bpfman.io/ownedByProgram":"other"}}}`))
	inForce(t, "the policy for programs", func(ctx context.Context) bool {
		return apierrors.IsForbidden(operator.Patch(ctx, program.DeepCopy(), label, client.DryRunAll))
	})
	for _, edit := range []string{`{"metadata":{"labels":null}}`, `{"metadata":{"ownerReferences":null}}`} {
		must.Succeed(t, admin.Patch(t.Context(), state("edited"), client.RawPatch(types.MergePatchType, []byte(edit))))
		whole, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": state("").Labels, "ownerReferences": []metav1.OwnerReference{owner}}})
		must.Succeed(t, err)
		if err := operator.Patch(t.Context(), state("edited"), client.RawPatch(types.MergePatchType, whole)); err != nil {
			t.Errorf("the operator can't repair %s: %v", edit, err)
		}
	}
}

// The operator keeps the revisions of users' objects. Its token allows it to write no other ControllerRevision.
func TestTheOperatorChangesNoOtherRevision(t *testing.T) {
	admin := deployed(t)
	operator := accountClient(t, "bpfman-operator")
	revision := func(name, apiVersion, kind string) *appsv1.ControllerRevision {
		owner := metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "owner", Controller: new(true)}
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", OwnerReferences: []metav1.OwnerReference{owner}},
			Revision:   1, Data: runtime.RawExtension{Raw: []byte("{}")},
		}
	}
	ours, other := revision("ours", "bpfman.io/v1alpha1", "XdpProgram"), revision("other", "apps/v1", "DaemonSet")
	must.Succeed(t, admin.Create(t.Context(), other))
	denied := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "can only write ControllerRevisions of its users' objects")
	}
	inForce(t, "the policy for revisions", func(ctx context.Context) bool {
		return denied(operator.Create(ctx, revision("another", "apps/v1", "DaemonSet"), client.DryRunAll))
	})
	taken := other.DeepCopy()
	taken.OwnerReferences[0].APIVersion, taken.OwnerReferences[0].Kind = "bpfman.io/v1alpha1", "XdpProgram"
	orphan := revision("orphan", "bpfman.io/v1alpha1", "XdpProgram")
	orphan.OwnerReferences = nil
	for name, err := range map[string]error{
		"take": operator.Update(t.Context(), taken), "delete": operator.Delete(t.Context(), other), "create an orphan": operator.Create(t.Context(), orphan),
	} {
		if !denied(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must.Succeed(t, operator.Create(t.Context(), ours))
	ours.Revision = 2
	if err := errors.Join(operator.Update(t.Context(), ours), operator.Delete(t.Context(), ours)); err != nil {
		t.Error(err)
	}
}

// TestBpfNodesAreTheInspectorsAlone checks what differs from BpfPrograms: nobody can delete a BpfNode because it
// lacks a label.
func TestBpfNodesAreTheInspectorsAlone(t *testing.T) {
	admin := deployed(t)
	named := func(name string) *v1alpha1.BpfNode {
		return &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	inForce(t, "the policy for BpfNodes", func(ctx context.Context) bool { return refused(admin.Create(ctx, named("probe"), client.DryRunAll)) })

	inspector := accountClient(t, "bpfman-daemon")
	object := named("node")
	if err := inspector.Create(t.Context(), object); err != nil {
		t.Fatalf("the inspector can't create: %v", err)
	}
	object.Status.ProgramCount = 1
	if err := inspector.Status().Update(t.Context(), object); err != nil {
		t.Fatalf("the inspector can't write status: %v", err)
	}
	edited := object.DeepCopy()
	edited.Status.ProgramCount = 0
	if err := admin.Status().Update(t.Context(), edited); !refused(err) {
		t.Errorf("an administrator can write status: %v", err)
	}
	if err := admin.Delete(t.Context(), edited); !refused(err) {
		t.Errorf("an administrator can delete: %v", err)
	}
	for name, c := range map[string]client.Client{
		"operator":          accountClient(t, "bpfman-operator"),
		"garbage collector": privilegedClient(t, "system:serviceaccount:kube-system:generic-garbage-collector"),
	} {
		again := named("again")
		must.Succeed(t, inspector.Create(t.Context(), again))
		if err := c.Delete(t.Context(), again); err != nil {
			t.Errorf("the %s can't delete: %v", name, err)
		}
	}
}
