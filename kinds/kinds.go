// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package kinds reads the kinds of the API, each apart from the others: an object
// that can't be decoded stops nothing but itself, and a kind that can't be listed,
// because its definition or a right is missing, nothing but its own objects.
//
// It imports neither controller-runtime nor client-go's clientset, which know the types
// of every API group: the agent has it, on each node.
package kinds

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Kinds knows of each kind that a cache holds whether it can be read. The zero value is
// ready; Log may be set.
type Kinds struct {
	Log logr.Logger
	// API is the client of the API's kinds, by [NewClient], that Find and List use.
	API rest.Interface
	// Held says why nothing works yet, whatever can be read; nil where nothing holds it up.
	Held func() error

	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]*kind
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

// Watch lists and watches a kind by from, and takes note of what the API server answers.
// [Kinds.Listed] tells when all objects are known.
func (k *Kinds) Watch(gvk schema.GroupVersionKind, from toolscache.ListerWatcherWithContext) *toolscache.ListWatch {
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
