// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sccRole is the prefix of the names of the ClusterRoles that allow the use of OpenShift's
// SecurityContextConstraints.
const sccRole = "system:openshift:scc:"

// access contains the ServiceAccounts, roles, and bindings of the manifests. OLM creates those of an
// operator itself, from the permissions in its ClusterServiceVersion.
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
	// For both scopes, the types have the same fields, except for one of ClusterRoles that isn't
	// used.
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

// isOurs reports whether a binding is for the project's own ServiceAccounts.
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

// permissions returns the permissions of the ServiceAccounts in the cluster and in their namespace.
// rest contains the objects with permissions for others.
func (a *access) permissions(namespace string) (cluster, namespaced []v1alpha1.StrategyDeploymentPermissions, rest []unstructured.Unstructured, err error) {
	rules := map[string]map[string][]rbacv1.PolicyRule{"ClusterRoleBinding": {}, "RoleBinding": {}}
	ours, others := map[rbacv1.RoleRef]bool{}, map[rbacv1.RoleRef]bool{}
	for _, b := range a.bindings {
		own, err := a.isOurs(b, namespace)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", describeObject(b.object), err)
		}
		if !own {
			others[b.roleRef] = true
			rest = append(rest, b.object)
			continue
		}
		granted, err := a.rulesOf(b.roleRef)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", describeObject(b.object), err)
		}
		ours[b.roleRef] = true
		for _, subject := range b.subjects {
			rules[b.object.GetKind()][subject.Name] = append(rules[b.object.GetKind()][subject.Name], granted...)
		}
	}
	for _, r := range a.roles {
		if !ours[r.ref()] || others[r.ref()] {
			rest = append(rest, r.object)
		}
	}
	return sorted(rules["ClusterRoleBinding"], namespace), sorted(rules["RoleBinding"], namespace), rest, nil
}

func (r *role) ref() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: r.object.GetKind(), Name: r.object.GetName()}
}

// rulesOf returns the rules of a role of the project. It also returns those of OpenShift's roles
// that allow the use of SecurityContextConstraints. These have no effect on other clusters.
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

// sorted returns the permissions, sorted by name. It changes rules that name the project's
// namespace, because with OLM, the user chooses the namespace.
func sorted(rules map[string][]rbacv1.PolicyRule, namespace string) []v1alpha1.StrategyDeploymentPermissions {
	var permissions []v1alpha1.StrategyDeploymentPermissions
	for _, account := range slices.Sorted(maps.Keys(rules)) {
		for i, rule := range rules[account] {
			if slices.Equal(rule.Resources, []string{"namespaces"}) && slices.Equal(rule.ResourceNames, []string{namespace}) {
				rules[account][i].ResourceNames = nil
			}
		}
		permissions = append(permissions, v1alpha1.StrategyDeploymentPermissions{ServiceAccountName: account, Rules: rules[account]})
	}
	return permissions
}
