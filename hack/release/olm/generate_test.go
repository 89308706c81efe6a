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

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const installed = `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: some-operator.v0.0.0
  annotations: {capabilities: Basic Install, categories: Networking}
spec:
  displayName: Some
  description: Something
  maturity: alpha
  minKubeVersion: 1.30.0
  keywords: [some]
  provider: {name: Someone}
  maintainers: [{name: Someone, email: someone@example.com}]
  links: [{name: Some, url: "https://example.com"}]
  icon: [{base64data: PHN2Zy8+, mediatype: image/svg+xml}]
  installModes: [{type: AllNamespaces, supported: true}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: someprograms.example.com}
spec:
  group: example.com
  names: {kind: SomeProgram, listKind: SomeProgramList, plural: someprograms, singular: someprogram}
  scope: Cluster
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: "An object\n\nIts details."
        properties: {spec: {type: object, properties: {bpffunctionname: {type: string, description: The function.}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bpfnodes.example.com}
spec:
  group: example.com
  names: {kind: BpfNode, listKind: BpfNodeList, plural: bpfnodes, singular: bpfnode}
  scope: Cluster
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, description: A report}}
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
      containers: [{name: operator, image: "example.com/operator:v1", resources: {requests: {cpu: 5m, memory: 20Mi}}}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
        {matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]}]}}}
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

const sample = `
apiVersion: example.com/v1alpha1
kind: SomeProgram
metadata: {name: sample}
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
	b, err := Generate(parse(t, installed), parse(t, sample), options)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write writes a bundle, and returns its directory.
func write(t *testing.T, b *Bundle) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bundle")
	if err := b.Write(dir, dir+".Dockerfile"); err != nil {
		t.Fatal(err)
	}
	return dir
}

var options = Options{
	Version: "1.2.3", Replaces: "some-operator.v1.2.0", SkipRange: ">=1.0.0 <1.2.3", Channels: []string{"fast", "stable"}, DefaultChannel: "stable",
}

func TestGenerate_PutsEachObjectWhereOLMTakesIt(t *testing.T) {
	b := generate(t)
	if b.CSV.Name != "some-operator.v1.2.3" || b.CSV.Spec.Version.String() != "1.2.3" || b.Annotations[annotationChannels] != "fast,stable" {
		t.Errorf("%s, version %s, in %s", b.CSV.Name, b.CSV.Spec.Version, b.Annotations[annotationChannels])
	}
	var names []string
	for _, object := range b.Objects {
		names = append(names, describeObject(object))
		if object.GetNamespace() != "" {
			t.Errorf("%s is in %s", describeObject(object), object.GetNamespace())
		}
	}
	if want := []string{"ConfigMap config", "RoleBinding some-scraper", "ClusterRole some-viewer", "Role some-scraper"}; !slices.Equal(names, want) {
		t.Errorf("the bundle has %q, not %q", names, want)
	}
	wantRules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{
			APIGroups: []string{"security.openshift.io"}, Resources: []string{"securitycontextconstraints"},
			ResourceNames: []string{"privileged"}, Verbs: []string{"use"},
		},
	}
	want := []v1alpha1.StrategyDeploymentPermissions{{ServiceAccountName: "some", Rules: wantRules}}
	if got := b.CSV.Spec.InstallStrategy.StrategySpec.ClusterPermissions; !reflect.DeepEqual(got, want) {
		t.Errorf("permissions are %v, not %v", got, want)
	}
	wantImages := []v1alpha1.RelatedImage{{Name: "node-agent", Image: "example.com/agent:v1"}, {Name: "operator", Image: "example.com/operator:v1"}}
	if !slices.Equal(b.CSV.Spec.RelatedImages, wantImages) {
		t.Errorf("images are %v, not %v", b.CSV.Spec.RelatedImages, wantImages)
	}
	for _, owned := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		if owned.Kind == "SomeProgram" && (owned.DisplayName != "Some Program" || owned.Description != "An object" || owned.Resources[0].Kind != "BpfProgram" ||
			len(owned.SpecDescriptors) != 1 || owned.SpecDescriptors[0].DisplayName != "BPF function") {
			t.Errorf("SomeProgram is described as %+v", owned)
		}
	}
	if b.CSV.Annotations[annotationInternalObjects] != `["bpfnodes.example.com"]` || b.CSV.Labels[labelArchitecture+"amd64"] != supported {
		t.Errorf("annotations are %v, and labels %v", b.CSV.Annotations, b.CSV.Labels)
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
		"no architectures": func(text string) string { return strings.Replace(text, "kubernetes.io/arch", "zone", 1) },
		"no Deployment":    func(text string) string { return strings.Replace(text, "kind: Deployment", "kind: ConfigMap", 1) },
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
			if _, err := Generate(parse(t, changed), nil, options); err == nil {
				t.Error("it made a bundle")
			}
		})
	}
}

func TestGenerate_RefusesOptionsThatContradictEachOther(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no version":                     func(o *Options) { o.Version = "" },
		"a version with a v":             func(o *Options) { o.Version = "v1.2.3" },
		"replaces itself":                func(o *Options) { o.Replaces = "some-operator.v1.2.3" },
		"replaces another":               func(o *Options) { o.Replaces = "other.v1.2.0" },
		"no range":                       func(o *Options) { o.SkipRange = "1.x.y" },
		"an unpublished default channel": func(o *Options) { o.DefaultChannel = "candidate" },
	} {
		t.Run(name, func(t *testing.T) {
			o := options
			change(&o)
			if _, err := Generate(parse(t, installed), nil, o); err == nil {
				t.Error("it made a bundle")
			}
		})
	}
}

// TestValidate checks that warnings count, except those for reports.
func TestValidate(t *testing.T) {
	if err := Validate(write(t, generate(t))); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		change func(*Bundle)
		want   string
	}{
		"an unknown category":    {func(b *Bundle) { b.CSV.Annotations["categories"] = "eBPF" }, `"eBPF" is not in the set of standard categories`},
		"no example":             {func(b *Bundle) { b.CSV.Annotations[annotationExamples] = "[]" }, "Kind=SomeProgram: provided API should have an example"},
		"an unknown channel":     {func(b *Bundle) { b.Annotations[annotationChannels] = "alpha" }, `channel(s) ["alpha"] are not following`},
		"a missing definition":   {func(b *Bundle) { b.CRDs = b.CRDs[1:] }, "owned CRD"},
		"an API that is removed": {func(b *Bundle) { b.Objects = append(b.Objects, object("policy/v1beta1", "PodDisruptionBudget")) }, "removed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := generate(t)
			c.change(b)
			if err := Validate(write(t, b)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func object(apiVersion, kind string) unstructured.Unstructured {
	var o unstructured.Unstructured
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName("other")
	return o
}

func TestBundle_IsWrittenTheSameEachTime(t *testing.T) {
	first, second := files(t, filepath.Dir(write(t, generate(t)))), files(t, filepath.Dir(write(t, generate(t))))
	if len(first) != 10 || !reflect.DeepEqual(first, second) {
		t.Errorf("%d files, then %d, or others", len(first), len(second))
	}
}

// TestWrittenFiles_CanBeReadByEveryUser checks the file modes, which images of the bundle and the catalog keep.
// Such images run as any user.
func TestWrittenFiles_CanBeReadByEveryUser(t *testing.T) {
	bundle := write(t, generate(t))
	dir := filepath.Dir(bundle)
	if err := WriteCatalog(bundle, "example.com/bundle:v1", filepath.Join(dir, "catalog/configs/some-operator/catalog.yaml")); err != nil {
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
