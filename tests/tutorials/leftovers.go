// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tutorials

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// passing are the resources whose objects are created and deleted without the tutorial.
var passing = sets.New("events", "leases", "endpoints", "endpointslices", "bpfnodes", "nodes", "csinodes", "componentstatuses", "controllerrevisions", "ipaddresses")

// Objects lists the objects of a cluster, as "kind namespace/name". Those that a controller creates have the name of their
// controller instead, because it replaces them.
type Objects struct {
	client    metadata.Interface
	resources []resource
}

type resource struct {
	schema.GroupVersionResource
	kind string
}

// NewObjects discovers the resources of the cluster.
func NewObjects(config *rest.Config) (*Objects, error) {
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for discovery: %w", err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for metadata: %w", err)
	}
	lists, err := found.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	o := &Objects{client: client}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("discover resources: %w", err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && !passing.Has(r.Name) {
				o.resources = append(o.resources, resource{version.WithResource(r.Name), r.Kind})
			}
		}
	}
	return o, nil
}

// List returns the current objects.
func (o *Objects) List(ctx context.Context) (sets.Set[string], error) {
	objects := sets.New[string]()
	for _, r := range o.resources {
		list, err := o.client.Resource(r.GroupVersionResource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.Resource, err)
		}
		for _, object := range list.Items {
			name := object.Name
			if controller := metav1.GetControllerOf(&object); controller != nil {
				name = controller.Kind + " " + controller.Name
			}
			objects.Insert(fmt.Sprintf("%s %s/%s", r.kind, object.Namespace, name))
		}
	}
	return objects, nil
}
