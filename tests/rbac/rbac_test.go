// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rbac

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// role contains the permissions in config/default of a ClusterRole or Role.
type role struct {
	namespace string
	labels    map[string]string
	rules     []rbacv1.PolicyRule
}

var readRoles = sync.OnceValues(func() (map[string]role, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("..", "..", "config", "default"))
	if err != nil {
		return nil, err
	}
	roles := map[string]role{}
	for _, resource := range resources.Resources() {
		if kind := resource.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		var r rbacv1.Role // a ClusterRole has the same fields
		if err := yaml.Unmarshal([]byte(resource.MustYaml()), &r); err != nil {
			return nil, err
		}
		roles[resource.GetKind()+" "+r.Name] = role{r.Namespace, r.Labels, r.Rules}
	}
	return roles, nil
})

func rolesOf(t *testing.T) map[string]role {
	t.Helper()
	roles, err := readRoles()
	if err != nil {
		t.Fatal(err)
	}
	return roles
}

// components contains the roles to which each component's ServiceAccount is bound.
var components = map[string][]string{
	"bpfman-operator":  {"ClusterRole bpfman-operator-role", "Role bpfman-operator-role", "Role bpfman-leader-election-role"},
	"bpfman-agent":     {"ClusterRole bpfman-agent-role", "Role bpfman-agent-policy-role"},
	"bpfman-csi":       {"ClusterRole bpfman-csi-role"},
	"bpfman-inspector": {"ClusterRole bpfman-inspector-role"},
}

func rights(t *testing.T) []Right {
	t.Helper()
	var all []Right
	for _, component := range slices.Sorted(maps.Keys(components)) {
		for _, name := range components[component] {
			r, ok := rolesOf(t)[name]
			if !ok {
				t.Fatalf("no %s", name)
			}
			all = append(all, Rights(component, r.namespace, r.rules)...)
		}
	}
	return all
}

// TestAuditLog compares the permissions with the requests in the audit log of a cluster on which the
// tests ran.
func TestAuditLog(t *testing.T) {
	path := os.Getenv("AUDIT_LOG")
	if path == "" {
		prerequisite.Missing(t, "AUDIT_LOG names none: see `make test-rbac`", prerequisite.AuditLog)
	}
	log, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	requests, err := ReadRequests(log)
	if err != nil {
		t.Fatal(err)
	}
	all := rights(t)
	denied, unused := Compare(all, requests)
	t.Logf("%d rights, %d kinds of requests", len(all), len(requests))
	for _, request := range denied {
		t.Errorf("not allowed: %s", request)
	}
	for _, right := range unused {
		t.Errorf("not used: %s", right)
	}
}

// TestEveryRoleIsKnown checks that each role is either for a component or for users.
func TestEveryRoleIsKnown(t *testing.T) {
	known := map[string]bool{"ClusterRole bpfman-metrics-reader": true}
	for _, names := range components {
		for _, name := range names {
			known[name] = true
		}
	}
	for _, kind := range v1alpha1.UserKinds {
		known["ClusterRole bpfman-"+strings.ToLower(kind.Name)+"-editor-role"] = true
		known["ClusterRole bpfman-"+strings.ToLower(kind.Name)+"-viewer-role"] = true
	}
	for _, kind := range v1alpha1.ProgramKinds {
		known["ClusterRole bpfman-"+strings.ToLower(kind.Name)+"-viewer-role"] = true
	}
	for _, kind := range v1alpha1.StateKinds {
		known["ClusterRole bpfman-"+strings.ToLower(kind.Name)+"-viewer-role"] = true
	}
	known["ClusterRole bpfman-bpfnode-viewer-role"] = true
	for _, policy := range []string{"bytecodepolicy", "rolloutpolicy"} {
		known["ClusterRole bpfman-"+policy+"-editor-role"] = true
		known["ClusterRole bpfman-"+policy+"-viewer-role"] = true
	}
	there := rolesOf(t)
	for name := range there {
		if !known[name] {
			t.Errorf("%s is nobody's", name)
		}
	}
	for name := range known {
		if _, ok := there[name]; !ok {
			t.Errorf("no %s", name)
		}
	}
}

// TestComponentsKnowEveryKind checks the permissions of components for each kind of the API.
func TestComponentsKnowEveryKind(t *testing.T) {
	all := rights(t)
	check := func(component, resource string, verbs ...string) {
		var have []string
		for _, r := range all {
			if r.Component == component && r.Group == v1alpha1.SchemeGroupVersion.Group && r.Resource == resource {
				have = append(have, r.Verb)
			}
		}
		slices.Sort(have)
		slices.Sort(verbs)
		if !slices.Equal(have, verbs) {
			t.Errorf("%s may %q %s, not %q", component, have, resource, verbs)
		}
	}
	for _, kind := range v1alpha1.UserKinds {
		check("bpfman-agent", kind.Resource(), "list", "watch")
		check("bpfman-agent", kind.Resource()+"/status")
		// The admission policy restricts what it can patch.
		check("bpfman-operator", kind.Resource(), "list", "watch", "patch")
		check("bpfman-operator", kind.Resource()+"/status", "patch")
	}
	for _, kind := range v1alpha1.ProgramKinds {
		// For a watch, the API server would compare each report with each node.
		check("bpfman-agent", kind.Resource(), "list", "create", "update", "delete")
		check("bpfman-agent", kind.Resource()+"/status", "update")
		check("bpfman-operator", kind.Resource(), "list", "watch", "patch", "delete")
		check("bpfman-operator", kind.Resource()+"/status")
		check("bpfman-inspector", kind.Resource(), "list")
	}
	node := v1alpha1.NodeKind.Resource()
	check("bpfman-inspector", node, "get", "create", "patch")
	check("bpfman-inspector", node+"/status", "update")
	check("bpfman-operator", node, "list", "watch", "delete")
}

// TestNoRightIsVast checks that there are no wildcards, and no permissions that would make a
// component's token an administrator's.
func TestNoRightIsVast(t *testing.T) {
	for _, r := range rights(t) {
		if strings.Contains(r.Verb+r.Group+r.Resource, "*") {
			t.Errorf("a wildcard: %s", r)
		}
		writes := !slices.Contains([]string{"get", "list", "watch"}, r.Verb)
		// Deleting upstream's roles by name grants no permissions.
		removesRole := r.Name != "" && slices.Contains([]string{"get", "delete"}, r.Verb)
		if r.Group == "rbac.authorization.k8s.io" && !removesRole || r.Verb == "impersonate" || r.Resource == "secrets" && r.Verb != "get" ||
			writes && slices.Contains([]string{"pods", "nodes", "pods/exec", "serviceaccounts/token"}, r.Resource) {
			t.Errorf("too much: %s", r)
		}
	}
}

// TestRolesForPeople checks the editor and viewer roles of each kind, and their aggregation to default
// roles.
func TestRolesForPeople(t *testing.T) {
	const prefix = "rbac.authorization.k8s.io/aggregate-to-"
	check := func(name, resource string, verbs []string, aggregation ...string) {
		r := rolesOf(t)["ClusterRole "+name]
		wanted := map[Right]bool{{name, "", "get", "bpfman.io", resource + "/status", ""}: true}
		for _, verb := range verbs {
			wanted[Right{name, "", verb, "bpfman.io", resource, ""}] = true
		}
		have := map[Right]bool{}
		for _, right := range Rights(name, r.namespace, r.rules) {
			have[right] = true
		}
		if !maps.Equal(have, wanted) {
			t.Errorf("%s may %v, not %v", name, have, wanted)
		}
		var aggregated []string
		for label, value := range r.labels {
			if to, ok := strings.CutPrefix(label, prefix); ok && value == "true" {
				aggregated = append(aggregated, to)
			}
		}
		if !slices.Equal(aggregated, aggregation) {
			t.Errorf("%s is part of %q, not %q", name, aggregated, aggregation)
		}
	}
	view := []string{"get", "list", "watch"}
	edit := append([]string{"create", "delete", "deletecollection", "patch", "update"}, view...)
	for _, kind := range v1alpha1.UserKinds {
		name := "bpfman-" + strings.ToLower(kind.Name)
		check(name+"-viewer-role", kind.Resource(), view, "view")
		if kind.Namespaced {
			check(name+"-editor-role", kind.Resource(), edit, "admin")
		} else {
			check(name+"-editor-role", kind.Resource(), edit)
		}
	}
	for _, kind := range v1alpha1.ProgramKinds {
		check("bpfman-"+strings.ToLower(kind.Name)+"-viewer-role", kind.Resource(), view, "view")
	}
	check("bpfman-bpfnode-viewer-role", v1alpha1.NodeKind.Resource(), view, "view")
	// Only the operator writes the status.
	for name, resource := range map[string]string{
		v1alpha1.PolicyKind.Name: v1alpha1.PolicyKind.Resource(), v1alpha1.RolloutPolicyKind.Name: v1alpha1.RolloutPolicyKind.Resource(),
	} {
		check("bpfman-"+strings.ToLower(name)+"-viewer-role", resource, view, "view")
		check("bpfman-"+strings.ToLower(name)+"-editor-role", resource, edit)
	}
}

func TestCompare(t *testing.T) {
	const log = `{"stage":"ResponseComplete","verb":"watch","user":{"username":"system:serviceaccount:bpfman:bpfman-daemon"},"userAgent":"bpfman-agent","objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"verb":"patch","user":{"username":"system:serviceaccount:bpfman:bpfman-operator"},"userAgent":"bpfman-operator/v0","objectRef":{"resource":"daemonsets","namespace":"bpfman","name":"bpfman-daemon","apiGroup":"apps"},"responseStatus":{"code":201}}
{"verb":"get","user":{"username":"system:serviceaccount:bpfman:bpfman-operator"},"userAgent":"bpfman-operator/v0","responseStatus":{"code":200}}
{"verb":"update","user":{"username":"system:serviceaccount:bpfman:bpfman-daemon"},"userAgent":"bpfman-agent","objectRef":{"resource":"bpfprograms","subresource":"status","name":"x","apiGroup":"bpfman.io"},"responseStatus":{"code":403}}
{"verb":"list","user":{"username":"kubernetes-admin"},"userAgent":"kubectl","objectRef":{"resource":"secrets"},"responseStatus":{"code":200}}
{"verb":"get","user":{"username":"unfinished`
	requests, err := ReadRequests(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	agent := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}}
	operator := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"create"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{"bpfman-daemon", "other"}, Verbs: []string{"patch"}},
	}
	denied, unused := Compare(append(Rights("bpfman-agent", "", agent), Rights("bpfman-operator", "bpfman", operator)...), requests)
	wantDenied := []Request{{"bpfman-agent", "", "update", "bpfman.io", "bpfprograms/status", "x"}}
	wantUnused := []Right{{"bpfman-agent", "", "get", "", "pods", ""}, {"bpfman-operator", "bpfman", "patch", "apps", "daemonsets", "other"}}
	if !slices.Equal(denied, wantDenied) || !slices.Equal(unused, wantUnused) {
		t.Errorf("denied %v, unused %v", denied, unused)
	}
}
