// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package kinds reads the kinds of the API, each apart from the others: an object
// that can't be decoded stops nothing but itself, and a kind that can't be listed,
// because its definition or a right is missing, nothing but its own objects.
//
// A manager that uses it has a cache, a mapper and probes from here, and watches
// the kinds by [Source].
package kinds

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Kinds knows of each kind that a manager's cache holds whether it can be read.
// The zero value is ready; Log may be set.
type Kinds struct {
	Log logr.Logger
	// Held says why nothing works yet, whatever can be read; nil where nothing holds it up.
	Held func() error

	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]*kind
	// api reads the API's kinds, once there is a cache.
	api   rest.Interface
	codec runtime.ParameterCodec
}

// kind is the state of one kind.
type kind struct {
	// synced tells whether all objects have been listed; it is nil for a kind that isn't
	// watched.
	synced func() bool
	// err is why the API server refused the last attempt to list or watch.
	err error
	// open starts to watch a kind that isn't watched from the start; it is nil for others,
	// and once it has been called.
	open func()
	// empty tells of a kind that isn't watched that it had no objects when it was last
	// looked at.
	empty bool
	// optional tells that everything works without the kind.
	optional bool
}

// UnreadError is the error of reading objects of a kind that hasn't been listed
// yet: they may be there or not.
type UnreadError struct {
	Kind string
	// Err is why the kind couldn't be listed, nil if that hasn't failed.
	Err error
	// Unused tells that the kind isn't watched, because it had no objects when it was
	// last looked at.
	Unused bool
}

func (e *UnreadError) Error() string {
	switch {
	case e.Err != nil:
		return e.Kind + "s can't be read: " + e.Err.Error()
	case e.Unused:
		return e.Kind + "s aren't watched because there are none"
	}
	return e.Kind + "s have not been read yet"
}

func (e *UnreadError) Unwrap() error { return e.Err }

// Unread tells whether an error comes from a kind that hasn't been read.
func Unread(err error) bool {
	unread := (*UnreadError)(nil)
	return errors.As(err, &unread)
}

// Source starts the source of a kind. The controller doesn't wait until its
// handler has got all objects: reading a kind before is an UnreadError, so that
// one which can't be read holds up no other.
func Source[request comparable](of source.TypedSyncingSource[request]) source.TypedSource[request] {
	return SourceThen(of, func(workqueue.TypedRateLimitingInterface[request]) {})
}

// SourceThen is Source, and calls listed once the handler has got all objects.
func SourceThen[request comparable](of source.TypedSyncingSource[request], listed func(workqueue.TypedRateLimitingInterface[request])) source.TypedSource[request] {
	return eventSource[request]{of: of, listed: listed}
}

// eventSource isn't a source.TypedSyncingSource, for which a controller waits.
type eventSource[request comparable] struct {
	of     source.TypedSyncingSource[request]
	listed func(workqueue.TypedRateLimitingInterface[request])
}

// Start implements source.TypedSource.
func (s eventSource[request]) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[request]) error {
	if err := s.of.Start(ctx, q); err != nil {
		return fmt.Errorf("start %v: %w", s.of, err)
	}
	go func() {
		if err := s.of.WaitForSync(ctx); err == nil && ctx.Err() == nil {
			s.listed(q)
		}
	}()
	return nil
}

// String names the source in logs.
func (s eventSource[request]) String() string { return fmt.Sprint(s.of) }

// MarshalText names the source in logs of log/slog, which doesn't use String.
func (s eventSource[request]) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Mapper maps the API's kinds without asking the API server, which may lack their
// definitions just now, and the few of Kubernetes' that every agent reads: what the
// server says of all kinds of a cluster would stay in the memory of each. It asks for
// all others.
func Mapper(config *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	known := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.SchemeGroupVersion, corev1.SchemeGroupVersion})
	add := func(group schema.GroupVersion, name, resource string, namespaced bool) {
		var scope meta.RESTScope = meta.RESTScopeRoot
		if namespaced {
			scope = meta.RESTScopeNamespace
		}
		known.AddSpecific(group.WithKind(name), group.WithResource(resource), group.WithResource(strings.ToLower(name)), scope)
	}
	for _, k := range v1alpha1.UserKinds {
		add(v1alpha1.SchemeGroupVersion, k.Name, k.Resource(), k.Namespaced)
	}
	for _, k := range v1alpha1.ProgramKinds {
		add(v1alpha1.SchemeGroupVersion, k.Name, k.Resource(), k.Namespaced)
	}
	add(v1alpha1.SchemeGroupVersion, v1alpha1.NodeKind.Name, v1alpha1.NodeKind.Resource(), v1alpha1.NodeKind.Namespaced)
	add(v1alpha1.SchemeGroupVersion, v1alpha1.PolicyKind.Name, v1alpha1.PolicyKind.Resource(), v1alpha1.PolicyKind.Namespaced)
	add(corev1.SchemeGroupVersion, "Node", "nodes", false)
	add(corev1.SchemeGroupVersion, "Pod", "pods", true)
	add(corev1.SchemeGroupVersion, "ConfigMap", "configmaps", true)
	add(corev1.SchemeGroupVersion, "Secret", "secrets", true)
	others, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("create REST mapper: %w", err)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, others}}, nil
}

// NewClient makes a client of the API's kinds, which decodes lists and events
// though some object can't be decoded. HTTPClient may be nil.
func NewClient(config *rest.Config, httpClient *http.Client, scheme *runtime.Scheme) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	version := v1alpha1.SchemeGroupVersion
	config.GroupVersion, config.APIPath, config.ContentType = &version, "/apis", runtime.ContentTypeJSON
	config.NegotiatedSerializer = lenient{
		serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}, scheme,
	}
	var api rest.Interface
	var err error
	if httpClient != nil {
		api, err = rest.RESTClientForConfigAndClient(config, httpClient)
	} else {
		api, err = rest.RESTClientFor(config)
	}
	if err != nil {
		return nil, fmt.Errorf("create API client: %w", err)
	}
	return api, nil
}

// NewCache makes a manager's cache; it is a [cache.NewCacheFunc].
func (k *Kinds) NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	api, err := NewClient(config, options.HTTPClient, options.Scheme)
	if err != nil {
		return nil, err
	}
	k.api, k.codec = api, runtime.NewParameterCodec(options.Scheme)
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
			from = ofKind(api, resource, newList, selected[gvk], k.codec)
		}
		informer := toolscache.NewSharedIndexInformer(k.watched(gvk, from), object, resync, indexers)
		k.change(gvk, func(s *kind) { s.synced = informer.HasSynced })
		return informer
	}
	c, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("create cache: %w", err)
	}
	return &apart{c, k, options.Scheme}, nil
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
func ofKind(api rest.Interface, resource string, newList func() runtime.Object, by cache.ByObject, codec runtime.ParameterCodec) *toolscache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		if by.Label != nil {
			o.LabelSelector = by.Label.String()
		}
		if by.Field != nil {
			o.FieldSelector = by.Field.String()
		}
		return api.Get().Resource(resource).VersionedParams(&o, codec)
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

// Watch has k know of a kind that the manager's cache doesn't hold: it takes note of
// what the API server answers to from. Synced tells whether all objects are known.
func (k *Kinds) Watch(gvk schema.GroupVersionKind, from toolscache.ListerWatcherWithContext, synced func() bool) *toolscache.ListWatch {
	k.Listed(gvk, synced)
	return k.watched(gvk, from)
}

// watched takes note of what the API server answers.
func (k *Kinds) watched(gvk schema.GroupVersionKind, from toolscache.ListerWatcherWithContext) *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, o)
			if err != nil {
				k.note(gvk, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := from.WatchWithContext(ctx, o)
			k.note(gvk, err)
			return events, err
		},
	}
}

// change changes the state of a kind.
func (k *Kinds) change(gvk schema.GroupVersionKind, change func(*kind)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds == nil {
		k.kinds = map[schema.GroupVersionKind]*kind{}
	}
	if k.kinds[gvk] == nil {
		k.kinds[gvk] = &kind{}
	}
	change(k.kinds[gvk])
}

// note keeps what the API server said of a kind. That it can't be reached says
// nothing about a kind, nor that a watch has to begin anew.
func (k *Kinds) note(gvk schema.GroupVersionKind, err error) {
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil:
	case !errors.As(err, &status), apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsServiceUnavailable(err):
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.kinds[gvk]
	if s == nil {
		return
	}
	switch {
	case err != nil && (s.err == nil || s.err.Error() != err.Error()):
		k.Log.Error(err, "Failed to read a kind; its objects are left unchanged", "kind", gvk.Kind)
	case err == nil && s.err != nil:
		k.Log.Info("Recovered from failing to read a kind", "kind", gvk.Kind)
	}
	s.err = err
}

// Read is an UnreadError where a kind's objects haven't been listed yet.
func (k *Kinds) Read(gvk schema.GroupVersionKind) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.kinds[gvk]; s != nil && !s.read() {
		return s.unread(gvk)
	}
	return nil
}

// read tells whether all objects have been listed.
func (s *kind) read() bool { return s.synced != nil && s.synced() }

func (s *kind) unread(gvk schema.GroupVersionKind) error {
	return &UnreadError{Kind: gvk.Kind, Err: s.err, Unused: s.unused()}
}

// unused tells that a kind isn't watched because it had no objects.
func (s *kind) unused() bool { return s.open != nil && s.empty }

// apart is a cache whose kinds don't wait for each other.
type apart struct {
	cache.Cache
	kinds  *Kinds
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
