// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/definitions"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// deadline is the timeout of one request.
const deadline = 30 * time.Second

// The errors aren't wrapped: callers add context, and check for NotFound and others.

// Secret reads a Secret from the API server. Secrets are never cached.
func (c *Cluster) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, do(ctx, c.core.Get().Namespace(namespace).Resource("secrets").Name(name), secret)
}

// ConfigMap reads a ConfigMap from the API server, not from the cache.
func (c *Cluster) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	configMap := &corev1.ConfigMap{}
	return configMap, do(ctx, c.core.Get().Namespace(namespace).Resource("configmaps").Name(name), configMap)
}

// CreateReport creates a report, without its status. The functions that write a report
// replace its content with the response of the API server.
func (c *Cluster) CreateReport(ctx context.Context, o v1alpha1.ProgramObject) error {
	return do(ctx, about(c.bpfman.Post(), o).Body(o), o)
}

// UpdateReport updates a report, except for its status.
func (c *Cluster) UpdateReport(ctx context.Context, o v1alpha1.ProgramObject) error {
	return do(ctx, about(c.bpfman.Put(), o).Name(o.GetName()).Body(o), o)
}

// UpdateReportStatus updates the status of a report.
func (c *Cluster) UpdateReportStatus(ctx context.Context, o v1alpha1.ProgramObject) error {
	return do(ctx, about(c.bpfman.Put(), o).Name(o.GetName()).SubResource("status").Body(o), o)
}

// DeleteReport deletes a report, unless another object has replaced it under the same name.
func (c *Cluster) DeleteReport(ctx context.Context, o v1alpha1.ProgramObject) error {
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(o.GetUID())}}
	return do(ctx, about(c.bpfman.Delete(), o).Name(o.GetName()).Body(options), nil)
}

// Definitions returns a *definitions.ForeignError if the cluster's CRDs in the group bpfman.io define another API.
// Otherwise, it calls Serve.
func (c *Cluster) Definitions(ctx context.Context) error {
	served, err := definitions.Served(ctx, c.bpfman)
	if err == nil {
		err = definitions.Foreign(served)
	}
	if err != nil {
		return err
	}
	return c.Serve(served)
}

func about(request *rest.Request, o v1alpha1.ProgramObject) *rest.Request {
	namespaced := o.GetNamespace() != ""
	return request.Resource(v1alpha1.ProgramKind(namespaced).Resource()).NamespaceIfScoped(o.GetNamespace(), namespaced)
}

// do sends a request, and decodes the response into an object, unless that is nil.
func do(ctx context.Context, request *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	result := request.Do(ctx)
	if err := result.Error(); err != nil || into == nil {
		return err //nolint:wrapcheck // see above
	}
	// Decoding doesn't reset the fields that the response lacks, such as the status of a new
	// report.
	reflect.ValueOf(into).Elem().SetZero()
	return result.Into(into) //nolint:wrapcheck // see above
}
