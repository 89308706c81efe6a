// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package upstream

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Roles returns the roles and bindings of upstream's config/default.
func Roles(namespace string) []client.Object {
	all := []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	looks := []string{"get", "list", "watch"}
	bpfman := []string{"bpfman.io"}
	reports := []rbacv1.PolicyRule{{APIGroups: bpfman, Resources: []string{"bpfprograms"}, Verbs: all}, {APIGroups: bpfman, Resources: []string{"bpfprograms/status"}, Verbs: []string{"get"}}}
	nsReports := []rbacv1.PolicyRule{{APIGroups: bpfman, Resources: []string{"bpfnsprograms"}, Verbs: all}, {APIGroups: bpfman, Resources: []string{"bpfnsprograms/status"}, Verbs: []string{"get"}}}
	look := []rbacv1.PolicyRule{{APIGroups: bpfman, Resources: []string{"bpfnsprograms"}, Verbs: looks}}
	proxy := []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
	operator := []rbacv1.PolicyRule{
		{APIGroups: bpfman, Resources: []string{"tcxprograms"}, Verbs: all},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: all},
	}
	agent := []rbacv1.PolicyRule{{APIGroups: bpfman, Resources: []string{"bpfprograms", "bpfnsprograms"}, Verbs: all}}
	election := []rbacv1.PolicyRule{{APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases"}, Verbs: all}}
	return []client.Object{
		clusterRole("bpfman-operator-role", operator), clusterBinding("bpfman-bpfman-operator-rolebinding", "bpfman-operator-role", namespace, "bpfman-operator"),
		role(namespace, "bpfman-operator-role", look), binding(namespace, "bpfman-operator-rolebinding", "bpfman-operator-role", "bpfman-operator"),
		clusterRole("bpfman-agent-role", agent), clusterBinding("bpfman-agent-rolebinding", "bpfman-agent-role", namespace, "bpfman-daemon"),
		role(namespace, "bpfman-agent-role", look), binding(namespace, "bpfman-agent-rolebinding", "bpfman-agent-role", "bpfman-daemon"),
		role(namespace, "bpfman-leader-election-role", election), binding(namespace, "bpfman-leader-election-rolebinding", "bpfman-leader-election-role", "bpfman-operator"),
		clusterRole("bpfman-proxy-role", proxy), clusterBinding("bpfman-proxy-rolebinding", "bpfman-proxy-role", namespace, "bpfman-operator"),
		clusterRole("bpfman-metrics-reader", []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}),
		clusterRole("bpfman-bpfprogram-editor-role", reports), clusterRole("bpfman-bpfprogram-viewer-role", reports[1:]),
		role(namespace, "bpfman-bpfnsprogram-editor-role", nsReports), role(namespace, "bpfman-bpfnsprogram-viewer-role", look),
	}
}

// Only returns the roles and bindings of upstream's config/default, in v0.5 and v0.6.0, that this project's installation
// doesn't have.
func Only(namespace string) []client.Object {
	only := []client.Object{clusterBinding("bpfman-auth-delegator", "system:auth-delegator", namespace, "bpfman-operator")} // of v0.6.0
	for _, o := range Roles(namespace) {
		switch kind := o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetName(); kind {
		case "ClusterRole bpfman-proxy-role", "ClusterRole bpfman-bpfprogram-editor-role",
			"ClusterRoleBinding bpfman-proxy-rolebinding", "ClusterRoleBinding bpfman-bpfman-operator-rolebinding",
			"Role bpfman-agent-role", "RoleBinding bpfman-agent-rolebinding", "Role bpfman-bpfnsprogram-editor-role", "Role bpfman-bpfnsprogram-viewer-role":
			only = append(only, o)
		}
	}
	return only
}

func typed(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func clusterRole(name string, rules []rbacv1.PolicyRule) client.Object {
	return &rbacv1.ClusterRole{TypeMeta: typed("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func role(namespace, name string, rules []rbacv1.PolicyRule) client.Object {
	return &rbacv1.Role{TypeMeta: typed("Role"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
}

func clusterBinding(name, role, namespace, account string) client.Object {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta: typed("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}},
	}
}

func binding(namespace, name, role, account string) client.Object {
	return &rbacv1.RoleBinding{
		TypeMeta: typed("RoleBinding"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}},
	}
}
