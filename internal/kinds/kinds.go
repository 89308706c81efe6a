// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package kinds reads the kinds of the API independently of each other. An object that
// can't be decoded doesn't affect other objects. A kind that can't be listed, because its
// CRD or a permission is missing, doesn't affect other kinds.
//
// It doesn't import controller-runtime or client-go's clientset, which contain the types of
// all API groups, to save memory in the agent on each node.
package kinds

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/apis/definitions"
	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/restclient"
)

// Kinds contains, for each kind that is cached, whether it can be read. The zero value is
// ready to use. Log is optional.
type Kinds struct {
	Log logr.Logger
	// API is the client that Find and List use: see [NewClient].
	API rest.Interface
	// Held returns the reason why nothing works yet, independently of kinds, or nil. Held
	// itself can be nil.
	Held func() error
	// Rescoped receives definitions.ErrOtherScope after the API server has sent an object of the other scope than its type's.
	// It can be nil, or has room for one error.
	Rescoped chan error

	// lane has room for one check of Look. A caller whose context ends leaves the queue, unlike with a mutex. See looking.
	lane  chan struct{}
	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]*kind
}

// kind is the state of one kind.
type kind struct {
	// synced reports whether all objects have been listed. It is nil for a kind that isn't
	// watched.
	synced func() bool
	// err is the API server's error from the last attempt to list or watch, or nil.
	err error
	// open starts to watch a kind that is watched on demand. It is nil for other kinds, and
	// after it has been called.
	open func()
	// empty means that a kind that isn't watched had no objects at the last check. looked is when the last check of
	// [Kinds.Look] began, and failed its error.
	empty  bool
	looked time.Time
	failed error
	// optional means that everything works without the kind.
	optional bool
}

// UnreadError is the error of reading objects of a kind that hasn't been listed yet. The
// objects might exist.
type UnreadError struct {
	Kind string
	// Err is the error of listing the kind, or nil.
	Err error
	// Unused means that the kind isn't watched, because it had no objects at the last
	// check.
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

// Unread reports whether an error is caused by a kind that hasn't been listed.
func Unread(err error) bool {
	unread := (*UnreadError)(nil)
	return errors.As(err, &unread)
}

// NewClient returns a client for the kinds of the API. It decodes lists and events even if
// they contain objects that can't be decoded.
func NewClient(config *rest.Config, scheme *runtime.Scheme) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	return restclient.WithSerializer(config, v1alpha1.SchemeGroupVersion, lenient{
		serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}, scheme,
	})
}

// Watch returns a ListWatch that lists and watches a kind with from, and records errors.
// See [Kinds.Listed] for when all objects are known.
func (k *Kinds) Watch(gvk schema.GroupVersionKind, from toolscache.ListerWatcherWithContext) *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, o)
			if err == nil {
				err = k.checkScope(list)
			}
			if err != nil {
				k.note(gvk, err)
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := from.WatchWithContext(ctx, o)
			// An API server without WatchList refuses the option, and client-go lists instead.
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
				k.note(gvk, err)
			}
			if err == nil && scoped(gvk) {
				events = watch.Filter(events, func(e watch.Event) (watch.Event, bool) { return e, k.checkScope(e.Object) == nil })
			}
			return events, err
		},
	}
}

// scoped reports whether the objects of a kind can have two scopes, each with a type.
func scoped(gvk schema.GroupVersionKind) bool { return gvk.Kind == "BpfApplication" }

// checkScope returns definitions.ErrOtherScope if an object, or one of a list, hasn't the scope of its type. Its fields are those of
// another type, so nothing may use it.
func (k *Kinds) checkScope(object runtime.Object) error {
	isNamespaced := false
	switch o := object.(type) {
	case *v1alpha1.BpfApplicationList:
		return meta.EachListItem(o, k.checkScope)
	case *namespaced.BpfApplicationList:
		return meta.EachListItem(o, k.checkScope)
	case *v1alpha1.BpfApplication:
	case *namespaced.BpfApplication:
		isNamespaced = true
	default:
		return nil
	}
	if o, ok := object.(metav1.Object); !ok || (o.GetNamespace() != "") == isNamespaced || isBookmark(o) {
		return nil
	}
	select {
	case k.Rescoped <- definitions.ErrOtherScope:
	default:
	}
	return definitions.ErrOtherScope
}

// isBookmark reports whether an object is only the resource version of a bookmark.
func isBookmark(o metav1.Object) bool { return o.GetUID() == "" }

// change calls a function that changes the state of a kind, with the lock held.
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

// note records whether the API server can list or watch a kind. It ignores temporary
// errors, such as a failed connection or an expired watch, because they aren't about the
// kind. Nor is Unauthorized: the API server needs etcd to check a token.
func (k *Kinds) note(gvk schema.GroupVersionKind, err error) {
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil:
	case !errors.As(err, &status), apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsServiceUnavailable(err), apierrors.IsUnauthorized(err):
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

// CheckReadable returns an UnreadError if the objects of a kind haven't been listed yet.
func (k *Kinds) CheckReadable(gvk schema.GroupVersionKind) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.kinds[gvk]; s != nil && !s.read() {
		return s.unread(gvk)
	}
	return nil
}

// read reports whether all objects have been listed.
func (s *kind) read() bool { return s.synced != nil && s.synced() }

func (s *kind) unread(gvk schema.GroupVersionKind) error {
	return &UnreadError{Kind: gvk.Kind, Err: s.err, Unused: s.unused()}
}

// unused reports whether a kind isn't watched because it had no objects.
func (s *kind) unused() bool { return s.open != nil && s.empty }
