// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package takeover

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/contest"
)

const finalizer = "bpfman.io.operator/finalizer"

var configMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "bpfman-config", UID: "config"}}

// cluster returns a client of a cluster with objects, an announcer, and what it announces.
func cluster(t *testing.T, objects ...client.Object) (client.WithWatch, *Announcer, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.Install(scheme)); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, configMap.DeepCopy())...).
		// Lists of metadata have no spec, and all pods are on one node.
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(client.Object) []string { return []string{"node"} }).
		WithIndex(&corev1.Pod{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	recorder := events.NewFakeRecorder(10)
	return c, &Announcer{Client: c, Recorder: recorder, ConfigMap: client.ObjectKeyFromObject(configMap)}, recorder
}

// said returns the next Event, or "".
func said(recorder *events.FakeRecorder) string {
	select {
	case event := <-recorder.Events:
		return event
	default:
		return ""
	}
}

func TestFinalizersOfUserObjects(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		finalizers []string
		deleted    *metav1.Time
		left       []string
		event      string
	}{
		"upstream's":              {[]string{finalizer}, nil, nil, "Removed the finalizer " + finalizer},
		"upstream's and a user's": {[]string{"example.com/keep", finalizer}, nil, []string{"example.com/keep"}, "Removed the finalizer " + finalizer},
		"deleted":                 {[]string{finalizer, "example.com/keep"}, &now, []string{"example.com/keep"}, "Removed the finalizer " + finalizer},
		"a user's":                {[]string{"example.com/keep"}, nil, []string{"example.com/keep"}, ""},
		"none":                    {nil, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Finalizers: test.finalizers, DeletionTimestamp: test.deleted}}
			c, announcer, recorder := cluster(t, o)
			r := &Objects{Client: c, Recorder: recorder, Announcer: announcer, Contests: &contest.Ledger[types.UID]{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))}, Kind: v1alpha1.UserKinds[slices.IndexFunc(v1alpha1.UserKinds, func(k v1alpha1.Kind[v1alpha1.UserObject]) bool { return k.Name == "XdpProgram" })]}
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			if got := said(recorder); !slices.Equal(o.Finalizers, test.left) || !strings.Contains(got, test.event) || (got == "") != (test.event == "") {
				t.Errorf("the finalizers are %q, and the Event is %q", o.Finalizers, got)
			}
		})
	}
}

// A finalizer that another operator adds again and again is removed less and less often, and administrators are told.
func TestFinalizerThatComesBack(t *testing.T) {
	o := &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Finalizers: []string{finalizer}}}
	c, announcer, _ := cluster(t, o)
	told := events.NewFakeRecorder(10)
	announcer.Recorder = told
	r := &Objects{Client: c, Recorder: events.NewFakeRecorder(100), Announcer: announcer, Contests: &contest.Ledger[types.UID]{Clock: clocktesting.NewFakeClock(time.Unix(0, 0))}}
	for _, kind := range v1alpha1.UserKinds {
		if kind.Name == "XdpProgram" {
			r.Kind = kind
		}
	}
	for range 20 {
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if result.RequeueAfter > 0 {
			if event := said(told); len(o.Finalizers) != 1 || !strings.Contains(event, "The finalizer "+finalizer+" reappears on XdpProgram /a each time it is removed") {
				t.Errorf("the finalizers are %q, and the Event is %q", o.Finalizers, event)
			}
			return
		}
		o.Finalizers = []string{finalizer}
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("it never waits")
}

func TestReportsOfANode(t *testing.T) {
	report := func(name, node string, labels map[string]string, finalizers ...string) *v1alpha1.BpfProgram {
		o := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: finalizers, Labels: map[string]string{v1alpha1.LabelHostname: node}}}
		maps.Copy(o.Labels, labels)
		return o
	}
	pod := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "agent", Labels: labels}, Spec: corev1.PodSpec{NodeName: "node"}}
	}
	agent := map[string]string{"name": "bpfman-daemon"}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		left string
	}{
		"upstream's agent runs": {pod(map[string]string{"name": "bpfman-daemon"}), "nobodys other ours theirs"},
		"our agent runs":        {pod(map[string]string{"name": "bpfman-daemon", PartOfLabel: partOf}), "nobodys other ours"},
		"another pod runs":      {pod(map[string]string{"name": "web"}), "nobodys other ours"},
	} {
		t.Run(name, func(t *testing.T) {
			c, announcer, recorder := cluster(t, test.pod, report("theirs", "node", nil, finalizer), report("other", "node-2", nil, finalizer),
				report("ours", "node", map[string]string{v1alpha1.LabelOwnerKind: "XdpProgram"}, finalizer), report("nobodys", "node", nil))
			r := &Reports{Client: c, Live: c, Announcer: announcer, Namespace: "bpfman", AgentLabels: agent}
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}})
			if err != nil {
				t.Fatal(err)
			}
			var list v1alpha1.BpfProgramList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, o := range list.Items {
				left = append(left, o.Name)
			}
			waits := strings.Contains(test.left, "theirs")
			if event := said(recorder); strings.Join(left, " ") != test.left || (result.RequeueAfter > 0) != waits ||
				strings.Contains(event, "Deleted 1 reports of upstream's agent on node ") == waits {
				t.Errorf("left are %q, again after %s, and the Event is %q", left, result.RequeueAfter, event)
			}
		})
	}
}

// An object that was changed since it was read keeps its finalizers until it is read again.
func TestFinalizersOfAChangedObject(t *testing.T) {
	for name, refusal := range map[string]error{
		"changed": apierrors.NewConflict(v1alpha1.SchemeGroupVersion.WithResource("xdpprograms").GroupResource(), "a", errors.New("changed")),
		"deleted": apierrors.NewNotFound(v1alpha1.SchemeGroupVersion.WithResource("xdpprograms").GroupResource(), "a"),
		"refused": apierrors.NewForbidden(v1alpha1.SchemeGroupVersion.WithResource("xdpprograms").GroupResource(), "a", errors.New("no")),
	} {
		c, _, _ := cluster(t)
		refusing := interceptor.NewClient(c, interceptor.Funcs{
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return refusal
			},
		})
		removed, err := RemoveFinalizers(t.Context(), refusing, &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{finalizer}}})
		if len(removed) > 0 || (err != nil) != (name == "refused") {
			t.Errorf("%s: removed %q, %v", name, removed, err)
		}
	}
}

func TestRival(t *testing.T) {
	lease := func(holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: leaseName}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	pod := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "operator-1", Labels: labels}}
	}
	ending := pod(nil)
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.Now()), []string{"example.com/keep"}
	for name, test := range map[string]struct {
		objects []client.Object
		rival   bool
	}{
		"no Lease":          {nil, false},
		"a free Lease":      {[]client.Object{lease("")}, false},
		"our replica":       {[]client.Object{lease("operator-1_x"), pod(map[string]string{PartOfLabel: partOf})}, false},
		"upstream's":        {[]client.Object{lease("operator-1_x"), pod(nil)}, true},
		"upstream's, ended": {[]client.Object{lease("operator-1_x")}, false},
		"upstream's, ends":  {[]client.Object{lease("operator-1_x"), ending}, false},
	} {
		c, announcer, _ := cluster(t, test.objects...)
		l := &Lease{Live: c, Announcer: announcer, Lease: types.NamespacedName{Namespace: "bpfman", Name: leaseName}}
		note, err := l.rival(t.Context())
		if err != nil || strings.Contains(note, "pod operator-1 of another operator holds the Lease") != test.rival {
			t.Errorf("%s: %q, %v", name, note, err)
		}
	}
}

const leaseName = "8730d955.bpfman.io"

func TestRolesAreRemoved(t *testing.T) {
	role := func(name string, groups ...string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Rules: []rbacv1.PolicyRule{{APIGroups: groups}}}
	}
	c, announcer, recorder := cluster(t, role("bpfman-proxy-role", "authentication.k8s.io"), role("bpfman-bpfprogram-editor-role", "bpfman.io", "apps"), role("mine", "bpfman.io"))
	r := &Roles{Client: c, Live: c, Announcer: announcer, Namespace: "bpfman"}
	if err := r.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left rbacv1.ClusterRoleList
	if err := c.List(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 2 || left.Items[0].Name != "bpfman-bpfprogram-editor-role" || left.Items[1].Name != "mine" {
		t.Errorf("left are %v", left.Items)
	}
	if event := said(recorder); !strings.Contains(event, "Deleted objects that only upstream's installation uses: ClusterRole bpfman-proxy-role") {
		t.Errorf("the Event is %q", event)
	}
}
