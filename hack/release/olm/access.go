// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sccRole is the start of the names of the ClusterRoles by which OpenShift gives the use of
// its SecurityContextConstraints.
const sccRole = "system:openshift:scc:"

// access is who may do what. OLM makes the ServiceAccounts, roles and bindings of an operator
// itself, of the permissions in its ClusterServiceVersion.
type access struct {
	accounts []string
	roles    []role
	bindings []binding
}

// role is a Role or a ClusterRole.
type role struct {
	object unstructured.Unstructured
	rules  []rbacv1.PolicyRule
}

// binding is a RoleBinding or a ClusterRoleBinding.
type binding struct {
	object   unstructured.Unstructured
	roleRef  rbacv1.RoleRef
	subjects []rbacv1.Subject
}

func (a *access) takes(kind string) bool {
	return slices.Contains([]string{"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ServiceAccount"}, kind)
}

func (a *access) add(object unstructured.Unstructured) error {
	// Both kinds of each have the same fields, but for one of ClusterRoles that the rules don't need.
	switch object.GetKind() {
	case "ServiceAccount":
		a.accounts = append(a.accounts, object.GetName())
	case "Role", "ClusterRole":
		var decoded rbacv1.ClusterRole
		if err := decode(object, &decoded); err != nil {
			return err
		}
		a.roles = append(a.roles, role{object, decoded.Rules})
	default:
		var decoded rbacv1.ClusterRoleBinding
		if err := decode(object, &decoded); err != nil {
			return err
		}
		a.bindings = append(a.bindings, binding{object, decoded.RoleRef, decoded.Subjects})
	}
	return nil
}

// isOurs tells whether a binding is for the project's own ServiceAccounts, not for ones of others.
func (a *access) isOurs(b binding, namespace string) (bool, error) {
	ours := 0
	for _, subject := range b.subjects {
		switch {
		case subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == namespace && slices.Contains(a.accounts, subject.Name):
			ours++
		case subject.Namespace == namespace:
			return false, fmt.Errorf("%s %s isn't among the manifests", subject.Kind, subject.Name)
		}
	}
	if ours > 0 && ours < len(b.subjects) {
		return false, fmt.Errorf("%d of its %d subjects are others'", len(b.subjects)-ours, len(b.subjects))
	}
	return ours > 0, nil
}

// permissions are what the ServiceAccounts may do in the cluster, and in their namespace; what
// others get is left as objects.
func (a *access) permissions(namespace string) (cluster, namespaced []Permission, rest []unstructured.Unstructured, err error) {
	rules := map[string]map[string][]rbacv1.PolicyRule{"ClusterRoleBinding": {}, "RoleBinding": {}}
	taken := map[rbacv1.RoleRef]bool{}
	var others []unstructured.Unstructured
	for _, b := range a.bindings {
		fail := func(err error) ([]Permission, []Permission, []unstructured.Unstructured, error) {
			return nil, nil, nil, fmt.Errorf("%s: %w", describeObject(b.object), err)
		}
		ours, err := a.isOurs(b, namespace)
		if err != nil {
			return fail(err)
		}
		if !ours {
			others = append(others, b.object)
			continue
		}
		granted, err := a.rulesOf(b.roleRef)
		if err != nil {
			return fail(err)
		}
		taken[b.roleRef] = true
		for _, subject := range b.subjects {
			rules[b.object.GetKind()][subject.Name] = append(rules[b.object.GetKind()][subject.Name], granted...)
		}
	}
	for _, r := range a.roles {
		if !taken[r.ref()] || slices.ContainsFunc(a.bindings, func(b binding) bool {
			return b.roleRef == r.ref() && slices.ContainsFunc(others, func(o unstructured.Unstructured) bool { return describeObject(o) == describeObject(b.object) })
		}) {
			rest = append(rest, r.object)
		}
	}
	return sorted(rules["ClusterRoleBinding"], namespace), sorted(rules["RoleBinding"], namespace), append(rest, others...), nil
}

func (r *role) ref() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: r.object.GetKind(), Name: r.object.GetName()}
}

// rulesOf are the rules of a role of the project, or of those of OpenShift's that give the use of
// SecurityContextConstraints, which elsewhere mean nothing.
func (a *access) rulesOf(ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	for _, r := range a.roles {
		if r.ref() == ref {
			return r.rules, nil
		}
	}
	if constraints, isSCC := strings.CutPrefix(ref.Name, sccRole); isSCC {
		return []rbacv1.PolicyRule{{
			APIGroups:     []string{"security.openshift.io"},
			Resources:     []string{"securitycontextconstraints"},
			ResourceNames: []string{constraints},
			Verbs:         []string{"use"},
		}}, nil
	}
	return nil, fmt.Errorf("%s %s isn't among the manifests", ref.Kind, ref.Name)
}

// sorted are permissions by name. Where a rule names the project's own namespace, any is meant:
// under OLM who installs chooses it.
func sorted(rules map[string][]rbacv1.PolicyRule, namespace string) []Permission {
	var permissions []Permission
	for _, account := range slices.Sorted(maps.Keys(rules)) {
		for i, rule := range rules[account] {
			if slices.Equal(rule.Resources, []string{"namespaces"}) && slices.Equal(rule.ResourceNames, []string{namespace}) {
				rules[account][i].ResourceNames = nil
			}
		}
		permissions = append(permissions, Permission{ServiceAccountName: account, Rules: rules[account]})
	}
	return permissions
}
