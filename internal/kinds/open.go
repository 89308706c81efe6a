// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// If a check for objects of a kind fails, it is retried with a backoff between these times.
const (
	firstLook = time.Second
	lastLook  = 30 * time.Second
)

// lookTimeout is the timeout of one check for objects of a kind, and quickLook that of one that others wait for.
const (
	lookTimeout = 10 * time.Second
	quickLook   = 2 * time.Second
)

// OnDemand makes a kind one that is only watched after it is opened, by calling open. Until
// then, reading it returns an UnreadError.
func (k *Kinds) OnDemand(gvk schema.GroupVersionKind, open func()) {
	k.change(gvk, func(s *kind) { s.open = open })
}

// Optional excludes a kind from readiness, because everything works without it.
func (k *Kinds) Optional(gvk schema.GroupVersionKind) {
	k.change(gvk, func(s *kind) { s.optional = true })
}

// Forget removes a kind, because nothing reads it anymore.
func (k *Kinds) Forget(gvk schema.GroupVersionKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kinds, gvk)
}

// SetListed sets the function that reports whether the caller has listed all objects of a kind,
// with [Kinds.List] or a cache that watches them.
func (k *Kinds) SetListed(gvk schema.GroupVersionKind, listed func() bool) {
	k.change(gvk, func(s *kind) { s.synced = listed })
}

// Open starts to watch a kind that is watched on demand, if it isn't watched yet.
func (k *Kinds) Open(gvk schema.GroupVersionKind) {
	k.mu.Lock()
	s, open := k.kinds[gvk], func() {}
	if s != nil && s.open != nil {
		open, s.open = s.open, nil
	}
	k.mu.Unlock()
	open()
}

func (k *Kinds) isOpen(gvk schema.GroupVersionKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kinds[gvk] == nil || k.kinds[gvk].open == nil
}

// Find opens a kind that is watched on demand when there is an object of it. It checks
// immediately, and then at random intervals between half and one and a half times every, to
// spread the requests of a cluster's agents. It returns when the kind is open or ctx ends.
func (k *Kinds) Find(ctx context.Context, gvk schema.GroupVersionKind, resource string, every time.Duration) {
	retry := wait.Backoff{Duration: firstLook, Factor: 2, Jitter: 1, Steps: 6, Cap: lastLook}
	backoff := retry
	// The first check must find all objects that existed when the agent started. Version "0"
	// allows the API server to respond from its cache.
	version := ""
	for !k.isOpen(gvk) {
		found, err := k.exists(ctx, resource, version)
		k.note(gvk, err)
		if found {
			k.Open(gvk)
			return
		}
		next := every/2 + rand.N(every+1) //nolint:gosec // only spreads requests
		if err != nil {
			next = backoff.Step()
		} else {
			k.change(gvk, func(s *kind) { s.empty = true })
			backoff, version = retry, "0"
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
	}
}

// Look opens a kind that is watched on demand if it has an object now. Callers share a check that began after since, and
// takes at most two seconds. After any error but NotFound, it isn't known whether there are objects: callers share it for
// another two seconds, and then the next one checks again.
func (k *Kinds) Look(ctx context.Context, gvk schema.GroupVersionKind, resource string, since time.Time) error {
	lane := k.looking()
	select {
	case lane <- struct{}{}:
		defer func() { <-lane }()
	case <-ctx.Done():
		return fmt.Errorf("wait for another check for %s: %w", resource, context.Cause(ctx))
	}
	if k.isOpen(gvk) {
		return nil
	}
	var looked time.Time
	var failed error
	k.change(gvk, func(s *kind) { looked, failed = s.looked, s.failed })
	answered := failed == nil || apierrors.IsNotFound(failed)
	if looked.After(since) && (answered || time.Since(looked) < 2*quickLook) {
		return failed
	}
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, quickLook)
	defer cancel()
	found, err := k.exists(ctx, resource, "")
	k.change(gvk, func(s *kind) { s.looked, s.failed = now, err })
	if found {
		k.Open(gvk)
	}
	return err
}

// looking returns the lane of checks.
func (k *Kinds) looking() chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lane == nil {
		k.lane = make(chan struct{}, 1)
	}
	return k.lane
}

// exists reports whether there is an object of a kind, without decoding it.
func (k *Kinds) exists(ctx context.Context, resource, version string) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	body, err := k.API.Get().Resource(resource).
		VersionedParams(&metav1.ListOptions{Limit: 1, ResourceVersion: version}, metav1.ParameterCodec).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		Do(ctx).Raw()
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", resource, err)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(body, &list); err != nil {
		return false, fmt.Errorf("look for %s: %w", resource, err)
	}
	return len(list.Items) > 0, nil
}

// List lists objects of a kind in a namespace, or in all namespaces if it is "". For objects
// that can't be decoded, see [Undecodable].
func (k *Kinds) List(ctx context.Context, of v1alpha1.Kind[v1alpha1.ProgramObject], namespace string, options metav1.ListOptions) (runtime.Object, error) {
	list := of.NewList()
	request := k.API.Get().Resource(of.Resource()).VersionedParams(&options, metav1.ParameterCodec)
	if namespace != "" {
		request = request.Namespace(namespace)
	}
	err := request.Do(ctx).Into(list)
	k.note(of.GroupVersionKind(), err)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", of.Resource(), err)
	}
	return list, nil
}
