// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package kindcache provides a manager's cache that reads kinds independently of each
// other, as package kinds does. It also provides a REST mapper for the cache, and sources
// that controllers don't wait for.
package kindcache

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// Source returns a source of the events of the object's kind. The controller doesn't wait until
// the handler has received all objects, so that a kind that can't be read doesn't delay others.
// To read a kind before that returns a [kinds.UnreadError]. The event of an object can arrive before
// that, so a controller that gets the error tries again later.
func Source[request comparable](
	from cache.Cache, object client.Object, to handler.TypedEventHandler[client.Object, request], matching ...predicate.Predicate,
) *Events[request] {
	return &Events[request]{of: source.TypedKind(from, object, to, matching...)}
}

// Events is a source of the events of a kind. It isn't a [source.TypedSyncingSource], which a
// controller waits for.
type Events[request comparable] struct {
	of     source.TypedSyncingSource[request]
	listed atomic.Bool
}

// Start implements [source.TypedSource].
func (s *Events[request]) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[request]) error {
	if err := s.of.Start(ctx, q); err != nil {
		return fmt.Errorf("start %v: %w", s.of, err)
	}
	go func() {
		if err := s.of.WaitForSync(ctx); err == nil && ctx.Err() == nil {
			s.listed.Store(true)
		}
	}()
	return nil
}

// Listed reports whether the handler has received all objects that existed at the start.
func (s *Events[request]) Listed() bool { return s.listed.Load() }

// String names the source in logs.
func (s *Events[request]) String() string { return fmt.Sprint(s.of) }

// MarshalText names the source in logs of log/slog, which doesn't use String.
func (s *Events[request]) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Mapper returns a function that creates a REST mapper. It maps the API's kinds, with the scopes of a scheme, without
// requests to the API server, which might not have their CRDs at that time. For other kinds, it asks the API server.
func Mapper(scheme *runtime.Scheme) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(config *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
		known := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.SchemeGroupVersion})
		for _, k := range v1alpha1.AllKindsOf(scheme) {
			known.Add(k.GroupVersionKind(), k.Scope())
		}
		for _, k := range v1alpha1.StateKindsOf(scheme) {
			known.Add(k.GroupVersionKind(), k.Scope())
		}
		others, err := apiutil.NewDynamicRESTMapper(config, httpClient)
		if err != nil {
			return nil, fmt.Errorf("create REST mapper: %w", err)
		}
		return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, others}}, nil
	}
}

// New returns a function that creates a manager's cache. known records which of its kinds can be read.
func New(known *kinds.Kinds) cache.NewCacheFunc {
	return func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		return newCache(known, config, options)
	}
}

func newCache(known *kinds.Kinds, config *rest.Config, options cache.Options) (cache.Cache, error) {
	api, err := kinds.NewClient(config, options.Scheme)
	if err != nil {
		return nil, err
	}
	options.NewInformer = func(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		gvk, err := apiutil.GVKForObject(object, options.Scheme)
		if err != nil {
			return toolscache.NewSharedIndexInformer(lw, object, resync, indexers) // can't be recorded in known
		}
		from := toolscache.ToListerWatcherWithContext(lw)
		// Metadata alone can always be decoded.
		if _, partial := object.(*metav1.PartialObjectMetadata); !partial {
			for _, kind := range v1alpha1.AllKinds() {
				if kind.GroupVersionKind() == gvk {
					from = toolscache.NewListWatchFromClient(api, kind.Resource(), metav1.NamespaceAll, fields.Everything())
				}
			}
		}
		informer := toolscache.NewSharedIndexInformer(known.Watch(gvk, from), object, resync, indexers)
		known.SetListed(gvk, informer.HasSynced)
		return informer
	}
	c, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("create cache: %w", err)
	}
	return &independent{c, known, options.Scheme}, nil
}

// independent is a cache whose kinds don't wait for each other.
type independent struct {
	cache.Cache
	kinds  *kinds.Kinds
	scheme *runtime.Scheme
}

// Get gets an object. It doesn't wait for a kind that hasn't been listed.
func (c *independent) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(object, c.scheme)
	if err != nil {
		return fmt.Errorf("find the kind of %T: %w", object, err)
	}
	if err := c.kinds.CheckReadable(gvk); err != nil {
		return err
	}
	return c.Cache.Get(ctx, key, object, options...) //nolint:wrapcheck // callers ask whether it is NotFound
}

// List lists objects. It doesn't wait for a kind that hasn't been listed.
func (c *independent) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, c.scheme)
	if err != nil {
		return fmt.Errorf("find the kind of %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if err := c.kinds.CheckReadable(gvk); err != nil {
		return err
	}
	return c.Cache.List(ctx, list, options...) //nolint:wrapcheck // as above
}

// WaitForCacheSync doesn't wait. Callers that read a kind get a [kinds.UnreadError] until it
// has been listed.
func (c *independent) WaitForCacheSync(ctx context.Context) bool { return ctx.Err() == nil }
