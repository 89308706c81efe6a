// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package kindcache is a manager's cache that reads the API's kinds each apart from the
// others, as package kinds does, with a mapper, and with sources that no controller waits for.
package kindcache

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/kinds"
)

// Source starts the source of a kind. The controller doesn't wait until its
// handler has got all objects: reading a kind before is an UnreadError, so that
// one which can't be read holds up no other.
func Source[request comparable](of source.TypedSyncingSource[request]) source.TypedSource[request] {
	return eventSource[request]{of}
}

// eventSource isn't a source.TypedSyncingSource, for which a controller waits.
type eventSource[request comparable] struct{ of source.TypedSource[request] }

// Start implements source.TypedSource.
func (s eventSource[request]) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[request]) error {
	if err := s.of.Start(ctx, q); err != nil {
		return fmt.Errorf("start %v: %w", s.of, err)
	}
	return nil
}

// String names the source in logs.
func (s eventSource[request]) String() string { return fmt.Sprint(s.of) }

// MarshalText names the source in logs of log/slog, which doesn't use String.
func (s eventSource[request]) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Mapper maps the API's kinds without asking the API server, which may lack their
// definitions just now. It asks for all others.
func Mapper(config *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	known := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.SchemeGroupVersion})
	add := func(name, resource string, namespaced bool) {
		group := v1alpha1.SchemeGroupVersion
		var scope meta.RESTScope = meta.RESTScopeRoot
		if namespaced {
			scope = meta.RESTScopeNamespace
		}
		known.AddSpecific(group.WithKind(name), group.WithResource(resource), group.WithResource(strings.ToLower(name)), scope)
	}
	for _, k := range v1alpha1.UserKinds {
		add(k.Name, k.Resource(), k.Namespaced)
	}
	for _, k := range v1alpha1.ProgramKinds {
		add(k.Name, k.Resource(), k.Namespaced)
	}
	add(v1alpha1.NodeKind.Name, v1alpha1.NodeKind.Resource(), v1alpha1.NodeKind.Namespaced)
	add(v1alpha1.PolicyKind.Name, v1alpha1.PolicyKind.Resource(), v1alpha1.PolicyKind.Namespaced)
	others, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("create REST mapper: %w", err)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, others}}, nil
}

// New returns a function that makes a manager's cache. known records which of its kinds can be read.
func New(known *kinds.Kinds) cache.NewCacheFunc {
	return func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		return newCache(known, config, options)
	}
}

func newCache(known *kinds.Kinds, config *rest.Config, options cache.Options) (cache.Cache, error) {
	api, err := kinds.NewClient(config, options.HTTPClient, options.Scheme)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what failed
	}
	selected := map[schema.GroupVersionKind]cache.ByObject{}
	for object, by := range options.ByObject {
		gvk, err := apiutil.GVKForObject(object, options.Scheme)
		if err != nil {
			return nil, fmt.Errorf("find the kind of %T: %w", object, err)
		}
		selected[gvk] = by
	}
	options.NewInformer = func(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		gvk, err := apiutil.GVKForObject(object, options.Scheme)
		if err != nil {
			return toolscache.NewSharedIndexInformer(lw, object, resync, indexers) // of no kind that can be waited for
		}
		from := toolscache.ToListerWatcherWithContext(lw)
		if resource, newList, own := ownKind(object); own {
			from = ofKind(api, resource, newList, selected[gvk])
		}
		informer := toolscache.NewSharedIndexInformer(known.Watch(gvk, from), object, resync, indexers)
		known.Listed(gvk, informer.HasSynced)
		return informer
	}
	c, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("create cache: %w", err)
	}
	return &apart{c, known, options.Scheme}, nil
}

// ownKind finds the resource and the list of an object of the API's.
func ownKind(object runtime.Object) (resource string, newList func() runtime.Object, own bool) {
	switch object.(type) {
	case v1alpha1.UserObject:
		for _, k := range v1alpha1.UserKinds {
			if fmt.Sprintf("%T", k.New()) == fmt.Sprintf("%T", object) {
				return k.Resource(), k.NewList, true
			}
		}
	case v1alpha1.ProgramObject:
		for _, k := range v1alpha1.ProgramKinds {
			if fmt.Sprintf("%T", k.New()) == fmt.Sprintf("%T", object) {
				return k.Resource(), k.NewList, true
			}
		}
	}
	return "", nil, false
}

// ofKind lists and watches a kind of the API's.
func ofKind(api rest.Interface, resource string, newList func() runtime.Object, by cache.ByObject) *toolscache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		if by.Label != nil {
			o.LabelSelector = by.Label.String()
		}
		if by.Field != nil {
			o.FieldSelector = by.Field.String()
		}
		return api.Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec)
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			err := request(o).Do(ctx).Into(list)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch, o.AllowWatchBookmarks = true, true
			return request(o).Watch(ctx)
		},
	}
}

// apart is a cache whose kinds don't wait for each other.
type apart struct {
	cache.Cache
	kinds  *kinds.Kinds
	scheme *runtime.Scheme
}

// Get gets an object. It doesn't wait for a kind that hasn't been listed.
func (a *apart) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(object, a.scheme)
	if err != nil {
		return fmt.Errorf("find the kind of %T: %w", object, err)
	}
	if err := a.kinds.Read(gvk); err != nil {
		return err
	}
	return a.Cache.Get(ctx, key, object, options...) //nolint:wrapcheck // callers ask whether it is NotFound
}

// List lists objects. It doesn't wait for a kind that hasn't been listed.
func (a *apart) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, a.scheme)
	if err != nil {
		return fmt.Errorf("find the kind of %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if err := a.kinds.Read(gvk); err != nil {
		return err
	}
	return a.Cache.List(ctx, list, options...) //nolint:wrapcheck // as above
}

// WaitForCacheSync waits for nothing: who needs a kind waits for its own source,
// or is told that the kind hasn't been read.
func (a *apart) WaitForCacheSync(ctx context.Context) bool { return ctx.Err() == nil }
