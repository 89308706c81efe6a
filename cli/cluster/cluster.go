// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package cluster reads bpfman's objects, and those that say something about them, from the cluster that kubectl's
// flags and its kubeconfig name.
package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// NodePods are the labels of the pods of the node components.
var NodePods = client.MatchingLabels{"name": "bpfman-daemon"}

const (
	// requestTimeout is for each request where --request-timeout gives none.
	requestTimeout = 30 * time.Second
	// page is how many objects a request asks for.
	page = 500
)

// Cluster is a connection.
type Cluster struct {
	client.Reader
	// API is bpfman's API, for lists that are too large to be read as a whole.
	API rest.Interface
	// Config is for what a Reader can't do, such as exec.
	Config *rest.Config
	// Namespace is that of --namespace, or of the context.
	Namespace string
}

// Connect is how commands get at their cluster, once they need it. It sends no request.
type Connect func() (*Cluster, error)

// With returns the Connect of kubectl's flags.
func With(flags *genericclioptions.ConfigFlags) Connect {
	return func() (*Cluster, error) {
		config, err := flags.ToRESTConfig()
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
		namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return nil, fmt.Errorf("read namespace of kubeconfig: %w", err)
		}
		// Warnings of the API server are for those who write.
		config.WarningHandler = rest.NoWarnings{}
		requests := rest.CopyConfig(config)
		if requests.Timeout == 0 {
			requests.Timeout = requestTimeout
		}
		// The API server knows best how much it can take.
		requests.QPS = -1
		scheme := Scheme()
		reader, err := client.New(requests, client.Options{Scheme: scheme, Mapper: mapper()})
		if err != nil {
			return nil, fmt.Errorf("create client: %w", err)
		}
		requests.APIPath, requests.GroupVersion = "/apis", &v1alpha1.SchemeGroupVersion
		requests.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		api, err := rest.RESTClientFor(requests)
		if err != nil {
			return nil, fmt.Errorf("create client: %w", err)
		}
		return &Cluster{Reader: reader, API: api, Config: config, Namespace: namespace}, nil
	}
}

// Scheme knows the kinds that commands read.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.Install} {
		if err := add(scheme); err != nil {
			panic(err) // two kinds of the same name are compiled in
		}
	}
	return scheme
}

// mapper knows the kinds that commands read without asking the API server, which would be asked for all of its kinds.
func mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.SchemeGroupVersion, corev1.SchemeGroupVersion})
	for _, k := range kinds() {
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(v1alpha1.SchemeGroupVersion.WithKind(k.name), scope)
	}
	for kind, scope := range map[string]meta.RESTScope{
		"ConfigMap": meta.RESTScopeNamespace, "Event": meta.RESTScopeNamespace, "Namespace": meta.RESTScopeRoot,
		"Node": meta.RESTScopeRoot, "Pod": meta.RESTScopeNamespace,
	} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), scope)
	}
	return mapper
}

// Each lists objects page by page, so that neither side has all of them at once, and hands them to visit. A limit among
// the options is the number of objects of a page.
func Each[O client.Object](ctx context.Context, from client.Reader, list client.ObjectList, visit func(O) error, options ...client.ListOption) error {
	options = append([]client.ListOption{client.Limit(page)}, options...)
	for next := ""; ; {
		if err := from.List(ctx, list, append(options, client.Continue(next))...); err != nil {
			return err //nolint:wrapcheck // it says what was listed
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			o, ok := item.(O)
			if !ok {
				return fmt.Errorf("a list has an item of %T", item)
			}
			return visit(o)
		})
		if err != nil {
			return err //nolint:wrapcheck // the visitor's own
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
		// A list keeps what a page doesn't have.
		if err := meta.SetList(list, nil); err != nil {
			return fmt.Errorf("empty a list: %w", err)
		}
		list.SetContinue("")
	}
}
