// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package install tests the checks before installing bpfman, and uninstalling it, on a real kube-apiserver: the
// scripts, and the operator if nothing was checked before. There are no nodes, and none of Kubernetes' own
// controllers.
package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/operator"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/upstream"
)

const (
	root      = "../../.."
	namespace = "bpfman"
	mark      = "bpfman.io/owned-definition"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	envtest.Main(m)
}

// cluster is the API server of the tests.
type cluster struct{ *envtest.Cluster }

func connect(t *testing.T) *cluster {
	t.Helper()
	return &cluster{envtest.Connect(t)}
}

// run runs a script, and returns its output.
func (c *cluster) run(t *testing.T, input []byte, script string, arguments ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(root, "hack/install", script), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "KUBECTL="+filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "IMAGES_LOADED=yes")
	command.Stdin = bytes.NewReader(input)
	output, err := command.CombinedOutput()
	return string(output), err
}

// helm runs helm on the chart, from HELM or from the output of `make helm`.
func (c *cluster) helm(t *testing.T, command, release string, arguments ...string) (string, error) {
	t.Helper()
	program := cmp.Or(os.Getenv("HELM"), filepath.Join(root, "bin/helm"))
	if _, err := os.Stat(program); err != nil {
		prerequisite.Missing(t, "run `make helm` first", prerequisite.Helm)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	arguments = append([]string{command, release, filepath.Join(root, "charts/bpfman-operator"), "--set", "images.loaded=true"}, arguments...)
	helm := exec.CommandContext(ctx, program, arguments...)
	helm.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + c.Kubeconfig}
	output, err := helm.CombinedOutput()
	return string(output), err
}

// manifests returns the output of kustomize for an overlay.
func manifests(t *testing.T, overlay string) []byte {
	t.Helper()
	objects, err := envtest.Build(overlay)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, object := range objects {
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n")
		text.Write(document)
	}
	return text.Bytes()
}

// definitions returns the definitions in bpfman.io, and whether they have this project's label.
func (c *cluster) definitions(t *testing.T) map[string]bool {
	t.Helper()
	var list apiextensionsv1.CustomResourceDefinitionList
	must.Succeed(t, c.List(t.Context(), &list))
	found := map[string]bool{}
	for _, definition := range list.Items {
		if definition.Spec.Group == "bpfman.io" {
			found[definition.Name] = definition.Labels[mark] == "true"
		}
	}
	return found
}

// everything returns each object of the cluster with its version. It leaves out Events and Leases, which change
// all the time.
func (c *cluster) everything(t *testing.T) []string {
	t.Helper()
	discovery, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := discovery.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	quiet := rest.CopyConfig(c.Config)
	quiet.WarningHandler = rest.NoWarnings{}
	api, err := dynamic.NewForConfig(quiet)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains([]string{"Event", "Lease", "LeaseCandidate"}, resource.Kind) {
				continue
			}
			objects, err := api.Resource(version.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list %s: %v", resource.Name, err)
			}
			for _, o := range objects.Items {
				found = append(found, fmt.Sprintf("%s %s/%s %s", resource.Name, o.GetNamespace(), o.GetName(), o.GetResourceVersion()))
			}
		}
	}
	slices.Sort(found)
	return found
}

// create creates an object with its status.
func (c *cluster) create(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	status, found, _ := unstructured.NestedMap(object.Object, "status")
	envtest.Eventually(t, "create "+object.GetName(), func(ctx context.Context) error { return c.Create(ctx, object) })
	if !found {
		return
	}
	object.Object["status"] = status
	if err := c.Status().Update(t.Context(), object); err != nil {
		t.Fatalf("write the status of %s: %v", object.GetName(), err)
	}
}

// awaitGone waits until no definition in bpfman.io is left.
func (c *cluster) awaitGone(t *testing.T) {
	t.Helper()
	envtest.Eventually(t, "all definitions in bpfman.io are gone", func(context.Context) error {
		if left := c.definitions(t); len(left) > 0 { //nolint:contextcheck // it has the test's context
			return fmt.Errorf("there are %v", left)
		}
		return nil
	})
}

// program returns an object of this API with finalizers.
func program(finalizers ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bpfman.io/v1alpha1", "kind": "TracepointProgram",
		"spec": map[string]any{
			"nodeselector": map[string]any{}, "bpffunctionname": "f", "names": []any{"syscalls/sys_enter_kill"},
			"bytecode": map[string]any{"path": "/f.o"},
		},
	}}
	object.SetName("counter")
	object.SetFinalizers(finalizers)
	return object
}

// TestInstallAndUninstall takes over definitions of v0.5, which have no label. It then removes them, including
// objects whose finalizers no controller removes.
func TestInstallAndUninstall(t *testing.T) {
	c := connect(t)
	for _, resource := range upstream.NewerResources() {
		name := resource + ".bpfman.io"
		must.Succeed(t, c.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		envtest.Eventually(t, "the definition "+name+", which v0.5 doesn't have, is gone", func(context.Context) error {
			if _, there := c.definitions(t)[name]; there { //nolint:contextcheck // it has the test's context
				return errors.New("it is there")
			}
			return nil
		})
	}
	for name, marked := range c.definitions(t) {
		if marked {
			t.Fatalf("%s is marked before it is installed", name)
		}
	}
	must.Succeed(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	if said, err := c.run(t, nil, "uninstall.sh", "--definitions"); err == nil || !strings.Contains(said, "nothing is deleted") || len(c.definitions(t)) != 16 {
		t.Fatalf("definitions without the mark: %v, %s", err, said)
	}

	// What a deployment tool applied, and the user's edits.
	theirs, err := runtime.DefaultUnstructuredConverter.ToUnstructured(upstream.Deployment(namespace, upstream.StandIn{Image: "quay.io/bpfman/bpfman-operator:v0.5.6"}))
	if err != nil {
		t.Fatal(err)
	}
	delete(theirs, "status")
	deployment := &unstructured.Unstructured{Object: theirs}
	must.Succeed(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(deployment), client.FieldOwner("argocd-controller")))
	configMap := upstream.ConfigMap(namespace)
	configMap.Finalizers = nil
	configMap.Data["bpfman.agent.log.level"] = "debug"
	must.Succeed(t, c.Create(t.Context(), configMap))

	whole := manifests(t, "config/default")
	before := c.everything(t)
	said, err := c.run(t, whole, "install.sh", "--check", "-")
	for _, expected := range []string{
		c.Config.Host, "operator       quay.io/bpfman/bpfman-operator:latest", "agent          quay.io/bpfman/bpfman-agent:latest",
		"daemon         quay.io/bpfman/bpfman:v0.6.0", "csi.registrar  registry.k8s.io/sig-storage/csi-node-driver-registrar:v",
		"taken over", "  bpfapplications.bpfman.io (Cluster)", "  xdpnsprograms.bpfman.io (Namespaced)",
	} {
		if err != nil || !strings.Contains(said, expected) {
			t.Errorf("install.sh --check doesn't say %q: %v\n%s", expected, err, said)
		}
	}
	if after := c.everything(t); !slices.Equal(before, after) {
		t.Errorf("a look changed something:\n%q\n%q", before, after)
	}

	t.Run("so does the chart", func(t *testing.T) {
		said, err := c.helm(t, "install", "bpfman", "--namespace", namespace, "--take-ownership", "--force-conflicts", "--dry-run=server")
		for _, expected := range []string{"agent     quay.io/bpfman/bpfman-agent:latest", `bpfman.io/upstream-config: "{\"bpfman.agent.healthprobe.addr`} {
			if err != nil || !strings.Contains(said, expected) {
				t.Errorf("helm install --dry-run=server: %v, without %q:\n%s", err, expected, said)
			}
		}
	})

	if said, err := c.run(t, whole, "install.sh", "--no-wait", "-"); err != nil || strings.Contains(said, "duplicate port") {
		t.Fatalf("install.sh: %v\n%s", err, said)
	}
	must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment))
	if containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers"); len(containers) != 1 {
		t.Errorf("the Deployment has %d containers, upstream's too: %v", len(containers), containers)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(configMap), configMap); err != nil || !strings.Contains(configMap.Annotations[deploy.UpstreamConfig], `"bpfman.agent.log.level":"debug"`) {
		t.Errorf("the user's values aren't kept: %v, annotations %q", err, configMap.Annotations)
	}
	c.failsToRun(t, whole)
	for name, marked := range c.definitions(t) {
		if !marked {
			t.Errorf("%s isn't marked once it is installed", name)
		}
	}
	t.Run("a part isn't taken for the whole", func(t *testing.T) {
		before := c.everything(t)
		for _, part := range []string{"config/states", "config/prometheus/objects", "config/rbac"} {
			said, err := c.run(t, manifests(t, part), "uninstall.sh", "-")
			if err == nil || !strings.Contains(said, "nothing is deleted: - doesn't contain the operator") {
				t.Errorf("uninstall.sh with %s: %v\n%s", part, err, said)
			}
		}
		if !slices.Equal(before, c.everything(t)) {
			t.Error("something is deleted")
		}
	})
	t.Run("a Helm release of another namespace stays", func(t *testing.T) { c.keepsOtherReleases(t, whole) })
	c.create(t, program("bpfman.io.operator/finalizer"))
	admins := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "bpfman-bpfapplication-admin-role"}} // of config/namespaced
	must.Succeed(t, c.Create(t.Context(), admins))
	if said, err := c.run(t, nil, "uninstall.sh", "--definitions"); err != nil {
		t.Fatalf("uninstall.sh --definitions: %v\n%s", err, said)
	}
	c.awaitGone(t)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(admins), admins); !apierrors.IsNotFound(err) {
		t.Errorf("the role of the namespaced BpfApplication: %v", err)
	}
}

// keepsOtherReleases checks that nothing is deleted while a release runs that the script doesn't uninstall.
func (c *cluster) keepsOtherReleases(t *testing.T, whole []byte) {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "bpfman-operator"}
	other := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "bpfman-operator", Labels: labels,
			Annotations: map[string]string{"meta.helm.sh/release-name": "ebpf", "meta.helm.sh/release-namespace": "default"},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "operator", Image: "operator"}}}},
		},
	}
	must.Succeed(t, c.Create(t.Context(), other))
	refuses := func(expected string) {
		t.Helper()
		before := c.everything(t)
		for _, argument := range []string{"--helm", "-"} {
			said, err := c.run(t, whole, "uninstall.sh", argument)
			for _, expected := range []string{"nothing is deleted", expected, c.Config.Host} {
				if err == nil || !strings.Contains(said, expected) {
					t.Errorf("uninstall.sh %s: %v, without %q:\n%s", argument, err, expected, said)
				}
			}
		}
		if after := c.everything(t); !slices.Equal(before, after) {
			t.Errorf("something changed:\n%q\n%q", before, after)
		}
	}
	refuses("helm uninstall ebpf --namespace default")
	// As another tool applies the chart. The controller of Deployments adds an annotation.
	other.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	must.Succeed(t, c.Update(t.Context(), other))
	refuses("another tool than Helm installed the Helm chart in namespace default")
	must.Succeed(t, c.Delete(t.Context(), other))
}

// failsToRun waits for bpfman, whose only pod can't start.
func (c *cluster) failsToRun(t *testing.T, whole []byte) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stuck"},
		Spec:       corev1.PodSpec{ServiceAccountName: "bpfman-operator", Containers: []corev1.Container{{Name: "stuck", Image: "stuck"}}},
	}
	must.Succeed(t, c.Create(t.Context(), pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "stuck", Image: "stuck", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"},
	}}}
	must.Succeed(t, c.Status().Update(t.Context(), pod))
	t.Setenv("TIMEOUT", "1s")
	said, err := c.run(t, whole, "install.sh", "-")
	for _, expected := range []string{"bpfman doesn't run within 1s", "stuck: stuck ImagePullBackOff no such image"} {
		if err == nil || !strings.Contains(said, expected) {
			t.Errorf("install.sh: %v, without %q:\n%s", err, expected, said)
		}
	}
	if err := c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}
}

// TestOldVersions refuses a kubectl whose kustomize leaves out replacements, and an API server without admission policies.
func TestOldVersions(t *testing.T) {
	for want, minors := range map[string][2]string{
		"nothing is applied: kubectl 1.31 or later is required, not 1.30":    {"30", "36"},
		"nothing is applied: Kubernetes 1.30 or later is required, not 1.29": {"31", "29+"},
	} {
		kubectl := filepath.Join(t.TempDir(), "kubectl")
		script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = version ] && minor=%s || minor=%s\nprintf '{\\n \"major\": \"1\",\\n \"minor\": \"%%s\"\\n}\\n' $minor\n", minors[0], minors[1])
		must.Succeed(t, os.WriteFile(kubectl, []byte(script), 0o700))
		command := exec.CommandContext(t.Context(), filepath.Join(root, "hack/install/install.sh"), "-")
		command.Env = append(os.Environ(), "KUBECTL="+kubectl)
		command.Stdin = strings.NewReader("kind: Namespace\n")
		if said, err := command.CombinedOutput(); err == nil || !strings.Contains(string(said), want) {
			t.Errorf("%v: %s, want %s", err, said, want)
		}
	}
}

// TestForeignDefinitions installs upstream's v0.6 in the cluster. It runs after the test that removes this
// project's definitions.
func TestForeignDefinitions(t *testing.T) {
	c := connect(t)
	ours := c.definitions(t)
	for name := range ours {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must.Succeed(t, c.Delete(t.Context(), definition))
	}
	c.awaitGone(t)
	for _, definition := range upstream.V06Definitions() {
		c.create(t, definition)
	}
	users := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "users"}}
	must.Succeed(t, c.Create(t.Context(), users))
	objects := upstream.V06Objects(users.Name)
	for _, object := range objects {
		c.create(t, object)
	}
	unchanged := func() {
		t.Helper()
		for _, object := range objects {
			now := object.DeepCopy()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), now); err != nil || now.GetResourceVersion() != object.GetResourceVersion() ||
				now.GetDeletionTimestamp() != nil {
				t.Errorf("%s %s was written or deleted: %v", object.GetKind(), object.GetName(), err)
			}
		}
		for _, definition := range upstream.V06Definitions() {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(definition), definition); err != nil || definition.GetDeletionTimestamp() != nil {
				t.Errorf("definition %s: %v", definition.GetName(), err)
			}
		}
	}
	whole := manifests(t, "config/default")

	t.Run("the installer applies nothing", func(t *testing.T) {
		before := c.everything(t)
		for _, part := range []string{"config/default", "config/crd", "config/release/agent"} {
			said, err := c.run(t, manifests(t, part), "install.sh", "-")
			for _, expected := range []string{
				"nothing is applied", "  bpfapplications.bpfman.io (Namespaced)", "  bpfapplicationstates.bpfman.io (Namespaced)", "  configs.bpfman.io (Cluster)", "v0.6",
			} {
				if err == nil || !strings.Contains(said, expected) {
					t.Errorf("%s: %v, without %q:\n%s", part, err, expected, said)
				}
			}
		}
		for _, argument := range []string{"--definitions", "--helm", "-"} {
			if said, err := c.run(t, whole, "uninstall.sh", argument); err == nil || !strings.Contains(said, "nothing is deleted") {
				t.Errorf("uninstall.sh %s: %v\n%s", argument, err, said)
			}
		}
		if after := c.everything(t); !slices.Equal(before, after) {
			t.Errorf("something changed:\n%q\n%q", before, after)
		}
	})

	t.Run("the chart installs nothing", func(t *testing.T) {
		before := c.everything(t)
		said, err := c.helm(t, "install", "bpfman", "--namespace", namespace, "--create-namespace", "--take-ownership", "--force-conflicts")
		for _, expected := range []string{"nothing is installed", "bpfapplications.bpfman.io (Namespaced), ", "bpfapplicationstates.bpfman.io (Namespaced)", "configs.bpfman.io (Cluster)"} {
			if err == nil || !strings.Contains(said, expected) {
				t.Errorf("helm install: %v, without %q:\n%s", err, expected, said)
			}
		}
		if after := c.everything(t); !slices.Equal(before, after) {
			t.Errorf("something changed:\n%q\n%q", before, after)
		}
	})

	// What kubectl apply does without a check.
	applied, err := envtest.Build("config/default")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range applied {
		err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl"))
		clashes := object.GetName() == "bpfapplications.bpfman.io" || object.GetName() == "clusterbpfapplications.bpfman.io"
		if (err != nil) != clashes {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deploy.ConfigMapName}}
	must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(configMap), configMap))

	t.Run("the operator writes nothing", func(t *testing.T) {
		before := c.everything(t)
		ctx, cancel := context.WithCancel(t.Context())
		mgr, err := operator.New(envtest.As(c.Config, namespace, "bpfman-operator"), operator.Options{Namespace: namespace, MetricsAddr: "0", HealthAddr: "0", LeaderElection: true})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		envtest.Eventually(t, "an Event says why", func(ctx context.Context) error {
			var list eventsv1.EventList
			if err := c.List(ctx, &list); err != nil {
				return err
			}
			for _, event := range list.Items {
				if event.Regarding.UID == configMap.UID && event.Reason == operator.ReasonForeignDefinitions && strings.Contains(event.Note, "Config (cluster-scoped)") {
					return nil
				}
			}
			return fmt.Errorf("%d Events, not that", len(list.Items))
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if after := c.everything(t); !slices.Equal(before, after) {
			t.Errorf("something changed:\n%q\n%q", before, after)
		}
	})
	unchanged()

	t.Run("what was applied is uninstalled", func(t *testing.T) {
		said, err := c.run(t, whole, "uninstall.sh", "-")
		for _, expected := range []string{"stay, and the namespace bpfman", "no agent runs: on nodes where one ran before, /var/lib/bpfman/bytecode stays"} {
			if err != nil || !strings.Contains(said, expected) {
				t.Errorf("uninstall.sh: %v, without %q:\n%s", err, expected, said)
			}
		}
		if again, err := c.run(t, whole, "uninstall.sh", "-"); err == nil || strings.Contains(again, "/var/lib/bpfman") {
			t.Errorf("uninstall.sh again: %v\n%s", err, again)
		}
		for name, marked := range c.definitions(t) {
			if marked {
				t.Errorf("%s is still there", name)
			}
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(configMap), configMap); !apierrors.IsNotFound(err) {
			t.Errorf("the ConfigMap: %v", err)
		}
		kept := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil || kept.DeletionTimestamp != nil {
			t.Errorf("the namespace: %v", err)
		}
	})
	unchanged()

	t.Run("docs/from-v0.6.md deletes the definitions, and the installer takes over one", func(t *testing.T) {
		for _, object := range objects {
			if strings.HasSuffix(object.GetKind(), "State") {
				continue // its agent has ended, so that its finalizer stays
			}
			object.SetFinalizers(nil)
			must.Succeed(t, c.Update(t.Context(), object))
		}
		page := must.Read(t, filepath.Join(root, "docs/from-v0.6.md"))
		const first, last = "kubectl get clusterbpfapplicationstates,", " configs.bpfman.io\n"
		_, commands, found := strings.Cut(string(page), first)
		commands, _, ended := strings.Cut(commands, last)
		if !found || !ended {
			t.Fatalf("the page has no commands from %q to %q", first, last)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", first+commands+last)
		command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
		if said, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, said)
		}
		const taken = "clusterbpfapplications.bpfman.io"
		envtest.Eventually(t, "only "+taken+" is left", func(context.Context) error {
			left := c.definitions(t) //nolint:contextcheck // it has the test's context
			if marked, there := left[taken]; !there || marked || len(left) != 1 {
				return fmt.Errorf("there are %v", left)
			}
			return nil
		})
		said, err := c.run(t, manifests(t, "config/crd"), "install.sh", "-")
		if err != nil || !strings.Contains(said, "taken over") || !strings.Contains(said, "  "+taken+" (Cluster)") {
			t.Errorf("install.sh: %v\n%s", err, said)
		}
		if !c.definitions(t)[taken] {
			t.Errorf("%s isn't marked", taken)
		}
		for _, object := range objects {
			if object.GetKind() != "ClusterBpfApplication" {
				continue
			}
			var now v1alpha1.ClusterBpfApplication
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), &now); err != nil || now.UID != object.GetUID() || len(now.Spec.Programs[0].TCX.Links) != 1 {
				t.Errorf("%s after the takeover: %v, %+v", object.GetName(), err, now.Spec)
			}
		}
	})

	t.Run("the scope of BpfApplication isn't changed, and upstream's definition is taken over", func(t *testing.T) {
		const name = "bpfapplications.bpfman.io"
		before := c.everything(t)
		said, err := c.run(t, manifests(t, "config/namespaced"), "install.sh", "-")
		if err == nil || !strings.Contains(said, name+" is to have the scope Namespaced. The cluster's has the scope Cluster") {
			t.Errorf("install.sh: %v\n%s", err, said)
		}
		if after := c.everything(t); !slices.Equal(before, after) {
			t.Errorf("something changed:\n%q\n%q", before, after)
		}
		must.Succeed(t, c.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		envtest.Eventually(t, "the definition is gone", func(context.Context) error {
			if _, there := c.definitions(t)[name]; there { //nolint:contextcheck // it has the test's context
				return errors.New("it is still there")
			}
			return nil
		})
		for _, definition := range upstream.V06Definitions() {
			if definition.GetName() == name {
				c.create(t, definition)
			}
		}
		said, err = c.run(t, manifests(t, "config/namespaced/crd"), "install.sh", "-")
		if err != nil || !strings.Contains(said, "taken over") || !strings.Contains(said, "  "+name+" (Namespaced)") {
			t.Errorf("install.sh: %v\n%s", err, said)
		}
		if !c.definitions(t)[name] {
			t.Errorf("%s isn't marked", name)
		}
	})
}
