// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package envtest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Build returns the objects of an overlay of the repository, such as config/default, in the order in which they
// are applied.
func Build(overlay string) ([]*unstructured.Unstructured, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, overlay))
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", overlay, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range resources.Resources() {
		object := &unstructured.Unstructured{}
		if object.Object, err = resource.Map(); err != nil {
			return nil, fmt.Errorf("read %s: %w", overlay, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// Apply applies an overlay of the repository, such as config/default, without the kinds in skip, and without its
// CustomResourceDefinitions, which already exist.
func Apply(ctx context.Context, c client.Client, overlay string, skip ...string) error {
	objects, err := Build(overlay)
	if err != nil {
		return err
	}
	skip = append(skip, "CustomResourceDefinition")
	for _, object := range objects {
		if slices.Contains(skip, object.GetKind()) {
			continue
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s of %s: %w", object.GetKind(), object.GetName(), overlay, err)
		}
	}
	return nil
}

// As returns the configuration of a client that acts as a ServiceAccount, with only its permissions.
func As(config *rest.Config, namespace, serviceAccount string) *rest.Config {
	own := rest.CopyConfig(config)
	own.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + serviceAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	return own
}
