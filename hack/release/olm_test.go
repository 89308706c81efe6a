// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/operator-framework/api/crds"
	"github.com/operator-framework/api/pkg/manifests"
	operators "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// catalogSpace is the namespace where OLM's own scripts install OLM.
const catalogSpace = "olm"

// ownerLabel is the label of ClusterRoles that OLM removes with the ClusterServiceVersion.
const ownerLabel = "olm.owner"

// manager does what the Operator Lifecycle Manager does with a Subscription. OLM can't be installed from Go modules, so
// this shows that the catalog and the bundle have everything that OLM needs, not that OLM itself accepts them. The
// kinds are OLM's own.
type manager struct {
	*user

	csv   *operators.ClusterServiceVersion
	files int
}

// startManager defines OLM's kinds, and then waits for a Subscription, and installs what that requests. The function
// that it returns removes what OLM removes with the operator, and then OLM.
func (u *user) startManager() (stop func()) {
	u.t.Helper()
	m := &manager{user: u}
	definitions := []*apiextensionsv1.CustomResourceDefinition{crds.CatalogSource(), crds.ClusterServiceVersion(), crds.InstallPlan(), crds.OperatorGroup(), crds.Operator(), crds.Subscription()}
	for _, definition := range definitions {
		m.must(m.apply(definition, ""))
	}
	u.run("kubectl", "wait", "--for=condition=Established", "customresourcedefinitions", "--all")
	m.must(m.apply(&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: catalogSpace}}, ""))
	done := make(chan error, 1)
	go func() { done <- m.install() }()
	u.t.Cleanup(func() {
		if err := <-done; err != nil {
			u.t.Errorf("install what the Subscription requests: %v", err)
		}
	})
	return func() {
		u.run("kubectl", "delete", "clusterroles,clusterrolebindings", "-l", ownerLabel)
		u.run("kubectl", "delete", "namespace", catalogSpace)
		for _, definition := range definitions {
			u.run("kubectl", "delete", "customresourcedefinition", definition.Name)
		}
	}
}

func (m *manager) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// install waits for a Subscription, and creates what its channel's newest bundle has.
func (m *manager) install() error {
	if output, err := m.try("kubectl", "wait", "--for=create", "--namespace=bpfman", "subscription/bpfman-operator", "--timeout=5m"); err != nil {
		return errors.New(output)
	}
	var subscription operators.Subscription
	if err := m.get(&subscription, "--namespace=bpfman", "subscription/bpfman-operator"); err != nil {
		return err
	}
	spec := subscription.Spec
	var source operators.CatalogSource
	if err := m.get(&source, "--namespace="+spec.CatalogSourceNamespace, "catalogsource/"+spec.CatalogSource); err != nil {
		return err
	}
	catalog, err := m.unpack(source.Spec.Image)
	if err != nil {
		return err
	}
	image, err := bundleOf(catalog, spec.Package, spec.Channel)
	if err != nil {
		return err
	}
	unpacked, err := m.unpack(image)
	if err != nil {
		return err
	}
	bundle, err := manifests.GetBundleFromDir(unpacked)
	if err != nil {
		return fmt.Errorf("read bundle %s: %w", image, err)
	}
	if err := m.create(bundle); err != nil {
		return err
	}
	return m.report()
}

// bundleOf returns the image of a channel's newest bundle. This project's catalogs have one in each channel.
func bundleOf(catalog, pkg, channel string) (string, error) {
	files, err := filepath.Glob(filepath.Join(catalog, "configs", "*", "*"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("the catalog has the files %q, %w", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return "", err
	}
	var head, image string
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var blob struct {
			Schema, Package, Name, Image string
			Entries                      []struct{ Name string }
		}
		if err = errors.Join(err, yaml.Unmarshal(document, &blob)); err != nil {
			return "", fmt.Errorf("read %s: %w", files[0], err)
		}
		switch {
		case blob.Package != pkg:
		case blob.Schema == "olm.channel" && blob.Name == channel && len(blob.Entries) == 1:
			head = blob.Entries[0].Name
		case blob.Schema == "olm.bundle" && blob.Name == head:
			image = blob.Image
		}
	}
	if image == "" {
		return "", fmt.Errorf("the catalog has no bundle of package %s in channel %s", pkg, channel)
	}
	return image, nil
}

// create creates what a bundle has, and what OLM makes of its ClusterServiceVersion: ServiceAccounts with their
// permissions, and Deployments.
func (m *manager) create(bundle *manifests.Bundle) error {
	for _, definition := range bundle.V1CRDs {
		if err := m.apply(definition, ""); err != nil {
			return err
		}
	}
	m.csv = bundle.CSV
	m.csv.Labels = map[string]string{"operators.coreos.com/bpfman-operator.bpfman": ""}
	if err := m.apply(m.csv, "bpfman"); err != nil {
		return err
	}
	if err := m.get(m.csv, "--namespace=bpfman", "clusterserviceversion/"+m.csv.Name); err != nil {
		return err
	}
	for _, object := range bundle.Objects {
		switch kind := object.GetKind(); kind {
		case "CustomResourceDefinition", operators.ClusterServiceVersionKind, "ServiceMonitor", "PrometheusRule":
		case "ClusterRole", "ClusterRoleBinding":
			if err := m.apply(object, ""); err != nil {
				return err
			}
		default:
			if err := m.apply(object, "bpfman"); err != nil {
				return err
			}
		}
	}
	strategy := m.csv.Spec.InstallStrategy.StrategySpec
	for i, permission := range slices.Concat(strategy.ClusterPermissions, strategy.Permissions) {
		inCluster := i < len(strategy.ClusterPermissions)
		if err := m.permit(fmt.Sprintf("%s-%d", m.csv.Name, i), permission, inCluster); err != nil {
			return err
		}
	}
	for _, deployment := range strategy.DeploymentSpecs {
		object := &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Name: deployment.Name, Labels: deployment.Label},
			Spec:       deployment.Spec,
		}
		if err := m.apply(object, "bpfman"); err != nil {
			return err
		}
	}
	return nil
}

// permit creates a ServiceAccount, and gives it permissions.
func (m *manager) permit(called string, permission operators.StrategyDeploymentPermissions, inCluster bool) error {
	prefix, namespace := "", "bpfman"
	if inCluster {
		prefix, namespace = "Cluster", ""
	}
	const version = "rbac.authorization.k8s.io/v1"
	named := metav1.ObjectMeta{Name: called}
	account := metav1.ObjectMeta{Name: permission.ServiceAccountName, Namespace: "bpfman"}
	return errors.Join(
		m.apply(&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: account}, "bpfman"),
		m.apply(&rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: prefix + "Role"}, ObjectMeta: named, Rules: permission.Rules}, namespace),
		m.apply(&rbacv1.ClusterRoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: prefix + "RoleBinding"}, ObjectMeta: named,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: prefix + "Role", Name: called},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}},
		}, namespace),
	)
}

// report creates what users wait for, and what they delete: the finished InstallPlan, and OLM's record of the operator.
func (m *manager) report() error {
	plan := &operators.InstallPlan{
		TypeMeta:   metav1.TypeMeta{APIVersion: operators.SchemeGroupVersion.String(), Kind: operators.InstallPlanKind},
		ObjectMeta: metav1.ObjectMeta{Name: "install-bpfman"},
		Spec:       operators.InstallPlanSpec{ClusterServiceVersionNames: []string{m.csv.Name}, Approval: operators.ApprovalAutomatic, Approved: true},
	}
	record := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "operators.coreos.com/v1", "kind": "Operator", "metadata": map[string]any{"name": "bpfman-operator.bpfman"},
	}}
	if err := errors.Join(m.apply(plan, "bpfman"), m.apply(record, "")); err != nil {
		return err
	}
	for object, status := range map[string]string{
		"installplan/" + plan.Name:     `{"status": {"phase": "Complete", "catalogSources": []}}`,
		"subscription/bpfman-operator": `{"status": {"lastUpdated": "2020-01-01T00:00:00Z", "installPlanRef": {"name": "` + plan.Name + `"}}}`,
	} {
		if output, err := m.try("kubectl", "--namespace=bpfman", "patch", object, "--subresource=status", "--type=merge", "--patch="+status); err != nil {
			return errors.New(output)
		}
	}
	return nil
}

// apply creates an object. What OLM creates for a ClusterServiceVersion goes with that.
func (m *manager) apply(object any, namespace string) error {
	content, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("marshal an object: %w", err)
	}
	applied := &unstructured.Unstructured{}
	if err := json.Unmarshal(content, &applied.Object); err != nil {
		return fmt.Errorf("read an object: %w", err)
	}
	delete(applied.Object, "status")
	applied.SetNamespace(namespace)
	if m.csv != nil && m.csv.UID != "" {
		switch applied.GetKind() {
		case operators.InstallPlanKind, "Operator":
		case "ClusterRole", "ClusterRoleBinding":
			if strings.HasPrefix(applied.GetName(), m.csv.Name) {
				applied.SetLabels(map[string]string{ownerLabel: m.csv.Name})
			}
		default:
			applied.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: operators.SchemeGroupVersion.String(), Kind: operators.ClusterServiceVersionKind, Name: m.csv.Name, UID: m.csv.UID}})
		}
	}
	if content, err = json.Marshal(applied); err != nil {
		return fmt.Errorf("marshal an object: %w", err)
	}
	m.files++
	file := filepath.Join(m.home, fmt.Sprintf("olm-%d.json", m.files))
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("write an object: %w", err)
	}
	if output, err := m.try("kubectl", "apply", "--server-side", "--filename="+file); err != nil {
		return fmt.Errorf("%s %s: %s", applied.GetKind(), applied.GetName(), output)
	}
	return nil
}

func (m *manager) get(into any, arguments ...string) error {
	output, err := m.try("kubectl", append([]string{"get", "--output=json"}, arguments...)...)
	if err == nil {
		err = json.Unmarshal([]byte(output), into)
	}
	if err != nil {
		return fmt.Errorf("get %q: %w\n%s", arguments, err, output)
	}
	return nil
}

// unpack returns a directory with the files of an image.
func (m *manager) unpack(image string) (string, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", fmt.Errorf("read the name of an image: %w", err)
	}
	content, err := remote.Image(ref, m.access)
	if err != nil {
		return "", fmt.Errorf("get image %s: %w", image, err)
	}
	dir := filepath.Join(m.home, "unpacked-"+ref.Context().RepositoryStr())
	files := mutate.Extract(content)
	defer files.Close()
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return dir, nil
		}
		if err != nil {
			return "", fmt.Errorf("unpack image %s: %w", image, err)
		}
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(strings.TrimPrefix(header.Name, "/")) {
			continue
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			return "", fmt.Errorf("unpack image %s: %w", image, err)
		}
		path := filepath.Join(dir, header.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, text, 0o600)); err != nil {
			return "", fmt.Errorf("unpack image %s: %w", image, err)
		}
	}
}

// installsFromCatalog follows docs/olm.md.
func (u *user) installsFromCatalog(t *testing.T) {
	u = u.in(t)
	u.own = u.choices()
	stop := u.startManager()
	u.follow("olm.md", "Install from a catalog")
	u.trustRegistry()
	u.follow("install.md", "Check the installation")
	u.runsOnly(newVersion)
	u.follow("get-started.md", "Attach a program", "Read its map from a pod")
	u.used()
	u.follow("get-started.md", "Clean up")
	u.follow("olm.md", "Uninstall")
	stop()
	u.nothingIsLeft()
}
