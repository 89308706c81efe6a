// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package consumers has what operators of other projects send for their ClusterBpfApplications, and the volumes of their
// pods. Both were recorded while these operators, unmodified, ran with the definitions of this project. Each file says of
// which version.
package consumers

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/tests/must"
)

//go:embed *.json
var files embed.FS

// Consumer is an operator of another project.
type Consumer struct {
	// Source is the repository and the commit of the operator that was recorded.
	Source string
	// Requests are what it sends for its only ClusterBpfApplication, in order.
	Requests []Request
	// Pod has the maps in a volume.
	Pod Pod
	// ServiceAccount is the operator's own. Rules are the part of its roles that is about bpfman.io.
	ServiceAccount types.NamespacedName
	Rules          []rbacv1.PolicyRule
}

// Request creates the application, or replaces it.
type Request struct {
	// Step is what the user changed before.
	Step string
	// Application is the body, without what the API server sets in its metadata and status.
	Application json.RawMessage
}

// Pod is what the consumer's DaemonSet says about the volume and the container that mounts it.
type Pod struct {
	Volume          corev1.Volume
	VolumeMount     corev1.VolumeMount
	SecurityContext *corev1.SecurityContext
}

// NetObserv returns the requests of NetObserv's operator, which the user has switch features on and off.
func NetObserv(tb testing.TB) *Consumer {
	tb.Helper()
	return read(tb, "netobserv.json")
}

// IngressNodeFirewall returns the requests of the operator of Ingress Node Firewall.
func IngressNodeFirewall(tb testing.TB) *Consumer {
	tb.Helper()
	return read(tb, "ingress-node-firewall.json")
}

func read(tb testing.TB, file string) *Consumer {
	tb.Helper()
	text, err := files.ReadFile(file)
	must.Succeed(tb, err)
	var c Consumer
	must.Succeed(tb, json.Unmarshal(text, &c))
	return &c
}

// Request returns the body of the request after a step.
func (c *Consumer) Request(tb testing.TB, step string) *unstructured.Unstructured {
	tb.Helper()
	for i := range c.Requests {
		if c.Requests[i].Step == step {
			return c.Requests[i].Object(tb)
		}
	}
	tb.Fatalf("no request for %q was recorded", step)
	return nil
}

// Object returns the body of the request. Its values are as they were sent, with each null.
func (r *Request) Object(tb testing.TB) *unstructured.Unstructured {
	tb.Helper()
	o := &unstructured.Unstructured{}
	must.Succeed(tb, o.UnmarshalJSON(r.Application))
	return o
}

// Send gets the object, and creates it, or replaces it by the body of a request, as both operators do. The body then has the
// metadata that the API server set, and the status without what their types don't have.
func Send(ctx context.Context, c client.Client, body *unstructured.Unstructured) error {
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(body.GroupVersionKind())
	switch err := c.Get(ctx, client.ObjectKeyFromObject(body), now); {
	case apierrors.IsNotFound(err):
		return c.Create(ctx, body)
	case err != nil:
		return fmt.Errorf("get %s %s: %w", body.GetKind(), body.GetName(), err)
	}
	labels, owners := body.GetLabels(), body.GetOwnerReferences()
	body.Object["metadata"] = now.Object["metadata"]
	body.SetLabels(labels)
	body.SetOwnerReferences(owners)
	if conditions, found, err := unstructured.NestedSlice(now.Object, "status", "conditions"); err == nil && found {
		body.Object["status"] = map[string]any{"conditions": conditions}
	}
	return c.Update(ctx, body)
}
