// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package openshift tests the operator on OpenShift, with a real kube-apiserver that serves two of OpenShift's
// APIs, and only the permissions in config/openshift.
package openshift

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlenvtest "sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/bpfman/bpfman-operator/operator"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const (
	namespace = "bpfman"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	envtest.Main(m)
}

// definition returns a minimal definition of one of OpenShift's kinds.
func definition(group, kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural},
			Scope: apiextensionsv1.ClusterScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
}

func TestConstraints(t *testing.T) {
	config := envtest.Config(t)
	_, err := ctrlenvtest.InstallCRDs(config, ctrlenvtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{
		definition("route.openshift.io", "Route", "routes"),
		definition(deploy.ConstraintsKind.Group, deploy.ConstraintsKind.Kind, "securitycontextconstraints"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := envtest.Client(t, config)
	must.Succeed(t, envtest.Apply(t.Context(), c, "config/openshift", "Deployment", "ServiceMonitor", "PodMonitor", "PrometheusRule"))
	mgr, err := operator.New(envtest.As(config, namespace, "bpfman-operator"), operator.Options{Namespace: namespace, MetricsAddr: "0", HealthAddr: "0"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the operator ended: %v", err)
		}
	})

	made := constraints(t, c, "the constraints are there", func(*unstructured.Unstructured) error { return nil })
	wanted, err := deploy.Constraints()
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(made.Object["volumes"]) != fmt.Sprint(wanted.Object["volumes"]) {
		t.Errorf("volumes are %v", made.Object["volumes"])
	}

	edited := made.DeepCopy()
	edited.Object["allowPrivilegedContainer"] = true
	must.Succeed(t, c.Update(t.Context(), edited))
	constraints(t, c, "an edit is repaired", func(o *unstructured.Unstructured) error {
		if o.Object["allowPrivilegedContainer"] != false {
			return errors.New("privileged containers are allowed")
		}
		return nil
	})

	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deploy.ConfigMapName}}
	must.Succeed(t, c.Delete(t.Context(), configMap))
	envtest.Eventually(t, "without the ConfigMap the constraints go", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(made), made); !apierrors.IsNotFound(err) {
			return fmt.Errorf("they are there: %w", err)
		}
		return nil
	})
}

// constraints waits until the constraints pass the check.
func constraints(t *testing.T, c client.Client, what string, check func(*unstructured.Unstructured) error) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(deploy.ConstraintsKind)
	envtest.Eventually(t, what, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: deploy.ConstraintsName}, object); err != nil {
			return err
		}
		return check(object)
	})
	return object
}
