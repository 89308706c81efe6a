// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package rollback tests the way back to upstream's operator, on a real kube-apiserver.
package rollback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const root = "../../.."

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

// upstreamDefinitions returns the definitions of upstream's v0.5 from the directory UPSTREAM_DEFINITIONS, such as
// config/crd/bases of its repository. Without it, they are this project's, in which a status has only conditions, as
// in upstream's.
func upstreamDefinitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	dir, published := os.LookupEnv("UPSTREAM_DEFINITIONS")
	if !published {
		dir = filepath.Join(root, "config/crd/bases")
	}
	files, err := filepath.Glob(filepath.Join(dir, "bpfman.io_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %q, %v", dir, files, err)
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text := must.Read(t, file)
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, definition); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if status, has := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]; has && !published {
			status.Properties = map[string]apiextensionsv1.JSONSchemaProps{"conditions": status.Properties["conditions"]}
			status.XValidations = nil
			definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"] = status
		}
		definitions = append(definitions, definition)
	}
	return definitions
}

// TestBackToUpstream runs the commands of docs/from-upstream.md that save the objects, and restore them under
// upstream's definitions.
func TestBackToUpstream(t *testing.T) {
	c := connect(t)
	page := must.Read(t, filepath.Join(root, "docs/from-upstream.md"))
	_, section, _ := strings.Cut(string(page), "## Go back to upstream")
	commands := regexp.MustCompile(`(?m)^ +(kubectl .*programs\.yaml.*)$`).FindAllStringSubmatch(section, -1)
	if len(commands) != 2 {
		t.Fatalf("the page has the commands %q", commands)
	}
	dir := t.TempDir()
	shell := func(command string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		run := exec.CommandContext(ctx, "bash", "-c", command)
		run.Dir = dir
		assets, err := filepath.Abs(os.Getenv("KUBEBUILDER_ASSETS"))
		if err != nil {
			t.Fatal(err)
		}
		run.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "PATH="+assets+":"+os.Getenv("PATH"))
		if output, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, output)
		}
	}

	samples, err := envtest.Build("config/samples")
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]any{}
	for _, o := range samples {
		if o.GroupVersionKind().Group != v1alpha1.SchemeGroupVersion.Group || o.GetKind() == "BytecodePolicy" {
			continue
		}
		if space := o.GetNamespace(); space != "" {
			err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		before[nameOf(o)] = o.Object["spec"]
		o.Object["status"] = map[string]any{
			"observedGeneration": int64(1), "nodes": map[string]any{"selected": int64(1), "attached": int64(1), "failed": int64(0)},
			"conditions": []any{map[string]any{
				"type": "ReconcileSuccess", "status": "True", "reason": "ReconcileSuccess", "message": "Attached on 1 of 1 selected node",
				"lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339), "observedGeneration": int64(1),
			}},
		}
		if err := c.Status().Update(t.Context(), o); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	if len(before) < 14 {
		t.Fatalf("only %d samples", len(before))
	}
	shell(commands[0][1])

	c.removeDefinitions(t)
	for _, definition := range upstreamDefinitions(t) {
		must.Succeed(t, c.Create(t.Context(), definition))
	}
	c.established(t)
	shell(commands[1][1])
	for name, spec := range before {
		kind, rest, _ := strings.Cut(name, " ")
		namespace, object, _ := strings.Cut(rest, "/")
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: object}, now); err != nil {
			t.Error(err)
			continue
		}
		if !reflect.DeepEqual(now.Object["spec"], spec) {
			t.Errorf("%s has %v, want %v", name, now.Object["spec"], spec)
		}
	}
}

func nameOf(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// removeDefinitions removes this project's definitions, and waits until they are gone.
func (c *cluster) removeDefinitions(t *testing.T) {
	t.Helper()
	all := &apiextensionsv1.CustomResourceDefinition{}
	must.Succeed(t, c.DeleteAllOf(t.Context(), all))
	envtest.Eventually(t, "all definitions are gone", func(ctx context.Context) error {
		var left apiextensionsv1.CustomResourceDefinitionList
		if err := c.List(ctx, &left); err != nil || len(left.Items) == 0 {
			return err
		}
		return fmt.Errorf("there are %d", len(left.Items))
	})
}

// established waits until the definitions are in the API server's discovery.
func (c *cluster) established(t *testing.T) {
	t.Helper()
	found, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	envtest.Eventually(t, "all kinds are served", func(context.Context) error {
		served, err := found.ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
		if err != nil {
			return err
		}
		for _, kind := range v1alpha1.UserKinds {
			if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Name }) {
				return errors.New("no " + kind.Name)
			}
		}
		return nil
	})
}
