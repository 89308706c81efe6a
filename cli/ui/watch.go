// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/ui/view"
	"github.com/bpfman/bpfman-operator/internal/liststream"
	"github.com/bpfman/bpfman-operator/internal/restclient"
)

// source is the state of one watch.
type source struct {
	// listed means that all objects have been read once.
	listed bool
	// problem says why the objects can't be read now.
	problem string
}

// watchAll keeps the facts in sync with the API server until the context ends.
func watchAll(ctx context.Context, c *cluster.Cluster, f *facts) error {
	own, err := clientFor(c.Config, v1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	core, err := clientFor(c.Config, corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	w := &watcher{facts: f, codec: runtime.NewParameterCodec(cluster.Scheme()), namespace: c.Namespace}
	follow(ctx, w, resource{core, "nodes", false, ""}, view.DecodeMachine, f.machines, func(m *view.Machine) string { return m.Name })
	follow(ctx, w, resource{own, v1alpha1.NodeKind.Resource(), false, ""}, view.DecodeInventory, f.inventories, func(r *view.Inventory) string { return r.Name })
	about := fields.OneTermEqualSelector("involvedObject.apiVersion", v1alpha1.SchemeGroupVersion.String()).String()
	follow(ctx, w, resource{core, "events", true, about}, view.DecodeEvent, f.events, func(e *view.Event) types.UID { return e.UID })
	declared := func(d *view.Declared) v1alpha1.BpfNodeOwner { return d.Owner }
	for _, kind := range c.UserKinds() {
		follow(ctx, w, resource{own, kind.Resource(), kind.Namespaced, ""}, view.DecodeUserObject(kind), f.objects, declared)
	}
	follow(ctx, w, resource{own, v1alpha1.PolicyKind.Resource(), false, ""}, view.DecodePolicy(v1alpha1.PolicyKind.Name), f.objects, declared)
	follow(ctx, w, resource{own, v1alpha1.RolloutPolicyKind.Resource(), false, ""}, view.DecodePolicy(v1alpha1.RolloutPolicyKind.Name), f.objects, declared)
	w.running.Wait()
	return nil
}

// clientFor returns a client without a timeout, because watches last.
func clientFor(config *rest.Config, group schema.GroupVersion) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.Timeout, config.QPS = runtime.ContentTypeJSON, 0, -1
	return restclient.ForScheme(config, group, cluster.Scheme())
}

// resource is what a watch reads.
type resource struct {
	api        rest.Interface
	name       string
	namespaced bool
	// selector is a field selector.
	selector string
}

// watcher runs watches.
type watcher struct {
	facts     *facts
	codec     runtime.ParameterCodec
	namespace string
	running   sync.WaitGroup
}

// follow keeps items in sync with a resource until the context ends.
func follow[K comparable, R runtime.Object](ctx context.Context, w *watcher, of resource, decode liststream.Decode[R], items map[K]R, key func(R) K) {
	s := &shelf[K, R]{facts: w.facts, source: &source{}, items: items, key: key, own: map[K]struct{}{}}
	w.facts.change(func() { w.facts.sources[of.name] = s.source })
	cluster := liststream.New(of.api, of.name, w.codec, decode)
	namespaced := liststream.New(inNamespace{of.api, w.namespace}, of.name, w.codec, decode)
	narrow := false // only the namespace of the context can be read
	from := func() *toolscache.ListWatch {
		if narrow {
			return namespaced
		}
		return cluster
	}
	note := func(err error) {
		if apierrors.IsForbidden(err) && of.namespaced && !narrow && w.namespace != "" {
			narrow = true
		}
		w.facts.note(s.source, err, narrow, w.namespace)
	}
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = of.selector
			list, err := from().ListWithContextFunc(ctx, o)
			note(err)
			return list, err //nolint:wrapcheck // the reflector compares it
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = of.selector
			events, err := from().WatchFuncWithContext(ctx, o)
			// An API server without WatchList refuses the option, and client-go lists instead.
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
				note(err)
			}
			return events, err //nolint:wrapcheck // as above
		},
	}
	reflector := toolscache.NewReflectorWithOptions(source, nil, s, toolscache.ReflectorOptions{Name: of.name, TypeDescription: of.name})
	w.running.Go(func() { reflector.RunWithContext(ctx) })
}

// inNamespace is a client for one namespace.
type inNamespace struct {
	rest.Interface

	namespace string
}

// Get implements [rest.Interface].
func (c inNamespace) Get() *rest.Request { return c.Interface.Get().Namespace(c.namespace) }

// note records the result of a request of a watch.
func (f *facts) note(s *source, err error, narrow bool, namespace string) {
	problem := ""
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err): // the reflector lists again
	case err != nil:
		problem = told(err)
	case narrow:
		problem = "only those in namespace " + namespace + " can be read"
	}
	f.mu.Lock()
	same := s.problem == problem
	f.mu.Unlock()
	if !same {
		f.change(func() { s.problem = problem })
	}
}

// shelf stores the objects of a resource in a map of the facts. It implements [toolscache.ReflectorStore].
type shelf[K comparable, R runtime.Object] struct {
	facts  *facts
	source *source
	items  map[K]R
	key    func(R) K
	// own are the keys of this resource. Other resources can share the map.
	own map[K]struct{}
}

// Add implements [toolscache.ReflectorStore].
func (s *shelf[K, R]) Add(item any) error { return s.Update(item) }

// Update implements [toolscache.ReflectorStore].
func (s *shelf[K, R]) Update(item any) error {
	r, err := liststream.Record[R](item)
	if err != nil {
		return err
	}
	s.facts.change(func() { s.put(r) })
	return nil
}

// Delete implements [toolscache.ReflectorStore].
func (s *shelf[K, R]) Delete(item any) error {
	r, err := liststream.Record[R](item)
	if err != nil {
		return err
	}
	s.facts.change(func() { s.drop(s.key(r)) })
	return nil
}

// Replace implements [toolscache.ReflectorStore].
func (s *shelf[K, R]) Replace(items []any, _ string) error {
	records := make([]R, len(items))
	stay := make(map[K]struct{}, len(items))
	for i, item := range items {
		r, err := liststream.Record[R](item)
		if err != nil {
			return err
		}
		records[i] = r
		stay[s.key(r)] = struct{}{}
	}
	s.facts.change(func() {
		for key := range s.own {
			if _, is := stay[key]; !is {
				s.drop(key)
			}
		}
		for _, r := range records {
			s.put(r)
		}
		s.source.listed = true
	})
	return nil
}

// Resync implements [toolscache.ReflectorStore].
func (s *shelf[K, R]) Resync() error { return nil }

func (s *shelf[K, R]) put(r R) { s.items[s.key(r)], s.own[s.key(r)] = r, struct{}{} }

func (s *shelf[K, R]) drop(key K) {
	delete(s.items, key)
	delete(s.own, key)
}
