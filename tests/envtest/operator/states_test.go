// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const statedNode = "stated"

// stateOf waits for the only State of an application on the node that a check accepts.
func stateOf(t *testing.T, c client.Client, o *v1alpha1.ClusterBpfApplication, what string, check func(*v1alpha1.ClusterBpfApplicationState) error) *v1alpha1.ClusterBpfApplicationState {
	t.Helper()
	var found v1alpha1.ClusterBpfApplicationState
	envtest.Eventually(t, what, func(ctx context.Context) error {
		var list v1alpha1.ClusterBpfApplicationStateList
		// As upstream's clients find it.
		err := c.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelOwnedByProgram: v1alpha1.LabelValue(o.Name), v1alpha1.LabelHostname: statedNode})
		if err != nil || len(list.Items) != 1 {
			return errors.Join(fmt.Errorf("%d States", len(list.Items)), err)
		}
		found = list.Items[0]
		return check(&found)
	})
	return &found
}

func hasCondition(want string) func(*v1alpha1.ClusterBpfApplicationState) error {
	return func(s *v1alpha1.ClusterBpfApplicationState) error {
		if c := s.Status.Conditions; len(c) != 1 || c[0].Type+": "+c[0].Message != want {
			return fmt.Errorf("conditions %+v, want %s", c, want)
		}
		return nil
	}
}

const loadedState = "Success: All programs are loaded, and attached where the application selects something"

// applicationReport writes the report of an application's only program, as the agent does.
func applicationReport(t *testing.T, c client.Client, o *v1alpha1.ClusterBpfApplication, change func(*v1alpha1.BpfProgramStatus)) *v1alpha1.BpfProgram {
	t.Helper()
	p := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{
		Name: "stated-" + statedNode,
		Labels: map[string]string{
			v1alpha1.LabelOwnedByProgram: v1alpha1.LabelValue(o.Name), v1alpha1.LabelHostname: statedNode, v1alpha1.LabelAppProgramID: "tcx-ingress-pass", v1alpha1.LabelOwnerKind: "ClusterBpfApplication",
		},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterBpfApplication", Name: o.Name, UID: o.UID, Controller: new(true),
		}},
	}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		must.Succeed(t, c.Create(t.Context(), p, asAgent))
	}
	p.Status = v1alpha1.BpfProgramStatus{
		Node: statedNode, OwnerGeneration: o.Generation, ProgramID: programID, Function: "pass", ProgramType: "tcx",
		Conditions: []metav1.Condition{v1alpha1.BpfProgCondLoaded.Condition()},
		Links: []v1alpha1.BpfProgramLink{{
			AttachPoint: "eth0 ingress", Digest: "0123456789abcdef", LinkID: 4294967295, State: v1alpha1.LinkAttached,
			Hook: &v1alpha1.BpfProgramHook{Interface: "eth0", Direction: "ingress", Priority: new(int32(0))},
		}},
	}
	p.Status.Conditions[0].LastTransitionTime = metav1.Now()
	if change != nil {
		change(&p.Status)
	}
	must.Succeed(t, c.Status().Update(t.Context(), p, asAgent))
	return p
}

// installStates installs the definition of States until the test ends.
func installStates(t *testing.T, c client.Client) {
	t.Helper()
	objects, err := envtest.Build("config/states")
	must.Succeed(t, err)
	for _, o := range objects {
		create(t, c, o)
	}
	envtest.Eventually(t, "States are served", func(ctx context.Context) error {
		return c.List(ctx, &v1alpha1.ClusterBpfApplicationStateList{})
	})
}

// When the definition of States is installed, the operator writes one for each application and node, from the reports. It
// deletes those of upstream's agent, and those whose reports go. It repairs what others change, and writes nothing after a
// restart. When the definition is removed, it goes on without, and writes them again when it is back.
func TestStates(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "stated", map[string]string{"pool": "stated"})
	// Without the label, the pod would be one of upstream's agent, which still needs its States.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-stated", Namespace: namespace}}
	must.Succeed(t, c.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app.kubernetes.io/part-of":"bpfman"}}}`))))
	o := &v1alpha1.ClusterBpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "stated"}}
	must.Succeed(t, json.Unmarshal([]byte(`{"nodeSelector":{"matchLabels":{"pool":"stated"}},"byteCode":{"path":"/object.o"},"programs":[
		{"name":"pass","type":"TCX","tcx":{"links":[{"interfaceSelector":{"interfaces":["eth0"]},"direction":"Ingress","priority":0}]}}]}`), &o.Spec))
	create(t, c, o)
	report := applicationReport(t, c, o, nil)
	shows(t, c, o, "1/1/0 Success: Attached on 1 of 1 selected node")

	installStates(t, c)
	s := stateOf(t, c, o, "a State", hasCondition(loadedState))
	want := v1alpha1.ApplicationStateStatus{
		UpdateCount: 1, Node: "stated", AppLoadStatus: v1alpha1.ApplicationLoadSuccess,
		Programs: []v1alpha1.ApplicationProgramState{{
			Name: "pass", Type: v1alpha1.ApplicationTCX, ProgramLinkStatus: v1alpha1.ProgramLinkSuccess, ProgramID: new(uint32(programID)),
			TCX: &v1alpha1.TcxLinkStates{Links: []v1alpha1.TcxLinkState{{
				NetworkLinkState: v1alpha1.NetworkLinkState{
					ApplicationLinkState: v1alpha1.ApplicationLinkState{
						ShouldAttach: true, UUID: s.Status.Programs[0].TCX.Links[0].UUID, LinkID: new(uint32(4294967295)), LinkStatus: v1alpha1.ApplicationLinkAttached,
					},
					InterfaceName: "eth0",
				},
				Direction: "Ingress",
			}}},
		}},
	}
	if diff := cmp.Diff(want, s.Status, cmpopts.IgnoreFields(v1alpha1.ApplicationStateStatus{}, "Conditions")); diff != "" {
		t.Error(diff)
	}
	if owner := metav1.GetControllerOf(s); owner == nil || owner.UID != o.UID || owner.BlockOwnerDeletion != nil || len(s.Finalizers) > 0 {
		t.Errorf("%+v", s.ObjectMeta)
	}

	// What upstream's agent left goes. Ours stays as it is.
	const finalizer = "bpfman.io.clbpfapplicationcontroller/finalizer"
	theirs := &v1alpha1.ClusterBpfApplicationState{ObjectMeta: metav1.ObjectMeta{Name: "stated-0a1b2c3d", Labels: s.Labels, Finalizers: []string{finalizer}}}
	create(t, c, theirs)
	envtest.Eventually(t, "upstream's State goes", gone(c, theirs))
	orphan := &v1alpha1.ClusterBpfApplicationState{ObjectMeta: metav1.ObjectMeta{
		Name: "gone-0a1b2c3d", Labels: map[string]string{v1alpha1.LabelOwnedByProgram: "gone", v1alpha1.LabelHostname: "stated"}, Finalizers: []string{finalizer},
	}}
	create(t, c, orphan)
	envtest.Eventually(t, "upstream's State of a deleted application goes", gone(c, orphan))

	// An edit is repaired.
	edited := s.DeepCopy()
	edited.Status.AppLoadStatus = "NotSelected"
	edited.Status.Conditions = append(edited.Status.Conditions, metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Other", LastTransitionTime: metav1.Now()})
	must.Succeed(t, c.Status().Update(t.Context(), edited))
	repaired := stateOf(t, c, o, "the State is repaired", hasCondition(loadedState))
	if repaired.UID != s.UID || repaired.Status.UpdateCount != 2 || repaired.Status.AppLoadStatus != v1alpha1.ApplicationLoadSuccess ||
		!repaired.Status.Conditions[0].LastTransitionTime.Equal(&s.Status.Conditions[0].LastTransitionTime) {
		t.Errorf("%+v", repaired)
	}

	// So is the owner. A label of another client stays, and nothing is written for it.
	must.Succeed(t, c.Patch(t.Context(), repaired.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"},"ownerReferences":null}}`))))
	owned := stateOf(t, c, o, "the owner is repaired", func(s *v1alpha1.ClusterBpfApplicationState) error {
		if owner := metav1.GetControllerOf(s); owner == nil || owner.UID != o.UID || s.Status.UpdateCount != 3 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if owned.UID != s.UID || owned.Labels["a"] != "b" {
		t.Errorf("%+v", owned.ObjectMeta)
	}

	// After a restart, the next change is the next write.
	restart(t)
	applicationReport(t, c, o, func(status *v1alpha1.BpfProgramStatus) {
		status.Conditions[0] = v1alpha1.BpfProgCondNotLoaded.Condition("no such device")
		status.Conditions[0].LastTransitionTime = metav1.Now()
		status.Links[0].State, status.Links[0].LinkID, status.Links[0].Error = v1alpha1.LinkNotAttached, 0, "no such device"
	})
	failed := stateOf(t, c, o, "the State fails", hasCondition("Error: pass: no such device"))
	link := failed.Status.Programs[0].TCX.Links[0]
	if failed.Status.UpdateCount != 4 || link.LinkID != nil || link.LinkStatus != v1alpha1.ApplicationLinkAttachError || link.UUID != s.Status.Programs[0].TCX.Links[0].UUID {
		t.Errorf("%+v", failed.Status)
	}

	// A new program isn't there yet.
	o.Spec.Programs = append(o.Spec.Programs, v1alpha1.ClusterBpfApplicationProgram{Name: "other", Type: v1alpha1.ApplicationKProbe, KProbe: &v1alpha1.KprobeLinks{}})
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"programs": o.Spec.Programs}})
	must.Succeed(t, err)
	must.Succeed(t, c.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", patch)))
	stateOf(t, c, o, "another program", func(s *v1alpha1.ClusterBpfApplicationState) error {
		if p := s.Status.Programs; len(p) != 2 || p[1].ProgramLinkStatus != v1alpha1.ProgramLinkPending || s.Status.AppLoadStatus != v1alpha1.ApplicationNotLoaded {
			return fmt.Errorf("%+v", s.Status)
		}
		return nil
	})

	// Without the report, as after the node unloaded the programs, the State goes.
	must.Succeed(t, c.Delete(t.Context(), report))
	envtest.Eventually(t, "the State goes", gone(c, s))

	// Without the definition, nothing fails.
	applicationReport(t, c, o, nil)
	stateOf(t, c, o, "a State again", func(*v1alpha1.ClusterBpfApplicationState) error { return nil })
	must.Succeed(t, c.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "clusterbpfapplicationstates.bpfman.io"}}))
	cluster(t)
}
