// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const installed = `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: some-operator.v0.0.0}
spec: {displayName: Some, description: Something}
---
apiVersion: scorecard.operatorframework.io/v1alpha3
kind: Configuration
metadata: {name: config}
---
apiVersion: v1
kind: Namespace
metadata: {name: some, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: some-operator, namespace: some}
spec:
  selector: {matchLabels: {app: some}}
  template:
    metadata: {labels: {app: some}}
    spec:
      serviceAccountName: some
      containers: [{name: operator, image: example.com/operator:v1}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: some, namespace: some}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: some}
data: {node.agent.image: example.com/agent:v1, log.level: info}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: some}
rules:
- {apiGroups: [""], resources: [namespaces], resourceNames: [some], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: some-viewer}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: some}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: some}
subjects: [{kind: ServiceAccount, name: some, namespace: some}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: some-privileged}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:openshift:scc:privileged"}
subjects: [{kind: ServiceAccount, name: some, namespace: some}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: some-scraper, namespace: some}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: some-scraper, namespace: some}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: some-scraper}
subjects: [{kind: ServiceAccount, name: scraper, namespace: monitoring}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: some}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: some, namespace: some}
`

func parse(t *testing.T, text string) []unstructured.Unstructured {
	t.Helper()
	objects, err := Objects(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func generate(t *testing.T) *Bundle {
	t.Helper()
	b, err := Generate(parse(t, installed), nil, Options{Version: "1.2.3", Channels: []string{"fast", "stable"}, DefaultChannel: "stable"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGenerate_PutsEachObjectWhereOLMTakesIt(t *testing.T) {
	b := generate(t)
	if b.CSV.Name != "some-operator.v1.2.3" || b.CSV.Spec.Version != "1.2.3" || b.Annotations[annotationChannels] != "fast,stable" {
		t.Errorf("%s, version %s, in %s", b.CSV.Name, b.CSV.Spec.Version, b.Annotations[annotationChannels])
	}
	var names []string
	for _, object := range b.Objects {
		names = append(names, describeObject(object))
		if object.GetNamespace() != "" {
			t.Errorf("%s is in %s", describeObject(object), object.GetNamespace())
		}
	}
	if want := []string{"ConfigMap config", "ClusterRole some-viewer", "Role some-scraper", "RoleBinding some-scraper"}; !slices.Equal(names, want) {
		t.Errorf("the bundle has %q, not %q", names, want)
	}
	wantRules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{
			APIGroups: []string{"security.openshift.io"}, Resources: []string{"securitycontextconstraints"},
			ResourceNames: []string{"privileged"}, Verbs: []string{"use"},
		},
	}
	if want := []Permission{{ServiceAccountName: "some", Rules: wantRules}}; !reflect.DeepEqual(b.CSV.Spec.Install.Spec.ClusterPermissions, want) {
		t.Errorf("permissions are %v, not %v", b.CSV.Spec.Install.Spec.ClusterPermissions, want)
	}
	wantImages := []RelatedImage{{Name: "node-agent", Image: "example.com/agent:v1"}, {Name: "operator", Image: "example.com/operator:v1"}}
	if !slices.Equal(b.CSV.Spec.RelatedImages, wantImages) {
		t.Errorf("images are %v, not %v", b.CSV.Spec.RelatedImages, wantImages)
	}
	if b.CSV.Annotations[annotationCreatedAt] != "" {
		t.Error("it depends on when it was made")
	}
}

func TestGenerate_RefusesWhatItHasNoPlaceFor(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"an unknown kind": func(text string) string {
			return text + "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: some}\n"
		},
		"an unknown field of the ClusterServiceVersion": func(text string) string {
			return strings.Replace(text, "displayName", "displayedName", 1)
		},
		"no Deployment": func(text string) string { return strings.Replace(text, "kind: Deployment", "kind: ConfigMap", 1) },
		"two Namespaces": func(text string) string {
			return text + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n"
		},
		"an unknown role": func(text string) string { return strings.Replace(text, "system:openshift:scc:", "cluster-", 1) },
		"an unknown ServiceAccount": func(text string) string {
			return strings.Replace(text, "kind: ServiceAccount\nmetadata: {name: some,", "kind: ServiceAccount\nmetadata: {name: other,", 1)
		},
		"a binding for others too": func(text string) string {
			return strings.Replace(text, "{kind: ServiceAccount, name: some, namespace: some}", "{kind: ServiceAccount, name: some, namespace: some}, {kind: Group, name: all}", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := change(installed)
			if changed == installed {
				t.Fatal("nothing was changed")
			}
			if _, err := Generate(parse(t, changed), nil, Options{Version: "1.2.3"}); err == nil {
				t.Error("it made a bundle")
			}
		})
	}
}

func TestBundle_IsWrittenTheSameEachTime(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		if err := generate(t).Write(filepath.Join(dir, "bundle"), filepath.Join(dir, "bundle.Dockerfile")); err != nil {
			t.Fatal(err)
		}
	}
	first, second := files(t, dirs[0]), files(t, dirs[1])
	if len(first) != 8 || !reflect.DeepEqual(first, second) {
		t.Errorf("%d files, then %d, or others", len(first), len(second))
	}
	b, err := Read(filepath.Join(dirs[0], "bundle"), filepath.Join(dirs[0], "bundle.Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	if b.CSV.Name != "some-operator.v1.2.3" || len(b.Objects) != 4 || b.Annotations[annotationDefaultChannel] != "stable" || b.Size == 0 {
		t.Errorf("%s with %d objects is read, in %s", b.CSV.Name, len(b.Objects), b.Annotations[annotationDefaultChannel])
	}
}

// TestWrittenFiles_CanBeReadByEveryUser checks the file modes, which images of the bundle and the catalog keep.
// Such images run as any user.
func TestWrittenFiles_CanBeReadByEveryUser(t *testing.T) {
	dir := t.TempDir()
	b := generate(t)
	if err := b.Write(filepath.Join(dir, "bundle"), filepath.Join(dir, "bundle.Dockerfile")); err != nil {
		t.Fatal(err)
	}
	if err := NewCatalog(b, "example.com/bundle:v1").Write(filepath.Join(dir, "catalog/configs/some-operator/catalog.yaml")); err != nil {
		t.Fatal(err)
	}
	entries := 0
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		entries++
		want := os.FileMode(0o644)
		if entry.IsDir() {
			want = 0o755
		}
		if mode := info.Mode().Perm(); mode != want {
			t.Errorf("%s has mode %o, not %o", strings.TrimPrefix(path, dir), mode, want)
		}
		return nil
	})
	if err != nil || entries < 12 {
		t.Fatalf("%d files and directories, error %v", entries, err)
	}
}

// files returns all files below a directory, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	content := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		content[strings.TrimPrefix(path, dir)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestRead_RefusesAFieldThatNobodyKnows(t *testing.T) {
	dir := t.TempDir()
	if err := generate(t).Write(filepath.Join(dir, "bundle"), filepath.Join(dir, "bundle.Dockerfile")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bundle/manifests/some-operator.clusterserviceversion.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(content, "more: true\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(filepath.Join(dir, "bundle"), filepath.Join(dir, "bundle.Dockerfile")); err == nil {
		t.Error("it is read")
	}
}

func TestKindTitle(t *testing.T) {
	for kind, want := range map[string]string{
		"XdpProgram":       "XDP Program",
		"TcxNsProgram":     "Namespaced TCX Program",
		"BpfApplication":   "BPF Application",
		"UprobeNsProgram":  "Namespaced Uprobe Program",
		"BpfNsApplication": "Namespaced BPF Application",
	} {
		if got := kindTitle(kind); got != want {
			t.Errorf("%s is %q, not %q", kind, got, want)
		}
	}
}
