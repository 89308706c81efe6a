// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// traces returns the cluster's objects of all kinds that name bpfman, and those that are
// being deleted. It leaves out Events, which expire, and objects of the tests.
func traces(ctx context.Context) ([]string, error) {
	ours, err := namesOf(ctx, &corev1.NamespaceList{}, client.HasLabels{label})
	if err != nil {
		return nil, err
	}
	nodes, err := namesOf(ctx, &corev1.NodeList{})
	if err != nil {
		return nil, err
	}
	var found []string
	err = everyObject(ctx, func(resource string, o unstructured.Unstructured) {
		if o.GetLabels()[label] != "" || slices.Contains(ours, o.GetNamespace()) {
			return
		}
		if why := traceIn(o, nodes); why != "" {
			found = append(found, fmt.Sprintf("%s %s/%s %s", resource, o.GetNamespace(), o.GetName(), why))
		}
	})
	return found, err
}

// names returns the cluster's objects of all kinds, with their UIDs, which distinguish them
// from others with the same names. It leaves out Events and Leases, which change all the
// time.
func names(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var found []string
	err := everyObject(ctx, func(resource string, o unstructured.Unstructured) {
		if o.GetKind() != "Lease" {
			found = append(found, fmt.Sprintf("%s %s/%s %s", resource, o.GetNamespace(), o.GetName(), o.GetUID()))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

// everyObject calls visit with the cluster's objects of all kinds except Events.
func everyObject(ctx context.Context, visit func(resource string, o unstructured.Unstructured)) error {
	lists, err := under.clientset.Discovery().ServerPreferredResources()
	if err != nil {
		return fmt.Errorf("list the kinds that there are: %w", err)
	}
	config := rest.CopyConfig(under.resources.GetConfig())
	config.WarningHandler = rest.NoWarnings{} // without warnings about deprecated kinds
	api, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for objects of any kind: %w", err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return fmt.Errorf("group %s: %w", list.GroupVersion, err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Event" {
				continue
			}
			objects, err := api.Resource(version.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue // its kind was just deleted
			}
			if err != nil {
				return fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range objects.Items {
				visit(r.Name, o)
			}
		}
	}
	return nil
}

// traceIn returns why an object is one of the traces, or nothing.
func traceIn(o unstructured.Unstructured, nodes []string) string {
	if o.GetDeletionTimestamp() != nil {
		return "is being deleted"
	}
	// A node's status names images, and managed fields name previous writers.
	delete(o.Object, "status")
	o.SetManagedFields(nil)
	text, err := json.Marshal(o.Object)
	if err != nil {
		return err.Error()
	}
	content := string(text)
	for _, name := range nodes {
		content = strings.ReplaceAll(content, name, "")
	}
	if strings.Contains(content, "bpfman") {
		return "names bpfman"
	}
	return ""
}

func namesOf(ctx context.Context, list client.ObjectList, options ...client.ListOption) ([]string, error) {
	if err := under.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	var names []string
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, err := meta.Accessor(o)
		if err == nil {
			names = append(names, object.GetName())
		}
		return err
	})
	return names, err
}
