// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package takeover

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestFinalizers(t *testing.T) {
	for _, c := range []struct{ has, upstreams []string }{
		{nil, nil},
		{[]string{"bpfman.io.operator/finalizer"}, []string{"bpfman.io.operator/finalizer"}},
		{[]string{"example.com/keep", "bpfman.io.xdpnsprogramcontroller/finalizer"}, []string{"bpfman.io.xdpnsprogramcontroller/finalizer"}},
		// Finalizers of users, and of Kubernetes.
		{[]string{"bpfman.io/mine", "bpfman.iox.operator/finalizer", "foregroundDeletion"}, nil},
	} {
		o := &metav1.ObjectMeta{Finalizers: c.has}
		if got := Finalizers(o); !slices.Equal(got, c.upstreams) {
			t.Errorf("of %q upstream's are %q, not %q", c.has, got, c.upstreams)
		}
		if kept := len(others(o)); kept != len(c.has)-len(c.upstreams) || !slices.Equal(o.Finalizers, c.has) {
			t.Errorf("%d of %q are kept", kept, c.has)
		}
	}
}

func TestReports(t *testing.T) {
	attachPoint := map[string]string{attachPointAnnotation: "eth0"}
	for name, c := range map[string]struct {
		meta      metav1.ObjectMeta
		upstreams bool
	}{
		"upstream's": {metav1.ObjectMeta{
			Labels:      map[string]string{v1alpha1.LabelOwnedByProgram: "a", v1alpha1.LabelAppProgramID: "", v1alpha1.LabelHostname: "n"},
			Annotations: attachPoint, Finalizers: []string{"bpfman.io.tcxprogramcontroller/finalizer"},
		}, true},
		"upstream's, freed by hand": {metav1.ObjectMeta{Annotations: attachPoint}, true},
		"ours":                      {metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelOwnerKind: "TcxProgram"}}, false},
		"ours, whatever else it has": {metav1.ObjectMeta{
			Labels:      map[string]string{v1alpha1.LabelOwnerKind: "TcxProgram"},
			Annotations: attachPoint, Finalizers: []string{"bpfman.io.tcxprogramcontroller/finalizer"},
		}, false},
		"nobody's": {metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelOwnedByProgram: "a"}}, false},
	} {
		if IsReport(&c.meta) != c.upstreams {
			t.Errorf("%s: is upstream's: %v", name, !c.upstreams)
		}
	}
}

func TestRolesOfOthersAreKnown(t *testing.T) {
	r := &Roles{Namespace: "bpfman"}
	rule := func(groups ...string) []rbacv1.PolicyRule { return []rbacv1.PolicyRule{{APIGroups: groups}} }
	subject := func(namespace, name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	}
	ours := metav1.ObjectMeta{Labels: map[string]string{PartOfLabel: partOf}}
	for name, c := range map[string]struct {
		object    client.Object
		upstreams bool
	}{
		"proxy":                  {&rbacv1.ClusterRole{Rules: rule("authentication.k8s.io", "authorization.k8s.io")}, true},
		"editor":                 {&rbacv1.Role{Rules: rule("bpfman.io")}, true},
		"operator's binding":     {&rbacv1.ClusterRoleBinding{Subjects: subject("bpfman", "bpfman-operator")}, true},
		"agent's binding":        {&rbacv1.RoleBinding{Subjects: subject("bpfman", "bpfman-daemon")}, true},
		"of more groups":         {&rbacv1.ClusterRole{Rules: rule("bpfman.io", "")}, false},
		"of somebody else":       {&rbacv1.ClusterRoleBinding{Subjects: subject("bpfman", "somebody")}, false},
		"of another namespace":   {&rbacv1.RoleBinding{Subjects: subject("other", "bpfman-daemon")}, false},
		"part of our own things": {&rbacv1.ClusterRole{ObjectMeta: ours, Rules: rule("bpfman.io")}, false},
	} {
		if r.isUpstreams(c.object) != c.upstreams {
			t.Errorf("%s: is upstream's: %v", name, !c.upstreams)
		}
	}
}
