// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// collectAfter is the time from a deletion to that of what depends on it.
	collectAfter = 100 * time.Millisecond
	// eventLife is how long Events exist, by kube-apiserver's default.
	eventLife = time.Hour
	// compactEvery is the interval of compactions by kube-apiserver, each to what was the newest version at the one before.
	compactEvery = 5 * time.Minute
)

// RunControllers runs, until ctx ends, what clients expect beside the API server itself: objects are deleted after their
// owners and namespaces, and Events after an hour, and the history is compacted every five minutes.
func (s *Server) RunControllers(ctx context.Context) {
	wake := make(chan struct{}, 1)
	s.Observe(func(e Event) {
		if e.Verb == "delete" || e.After != nil && e.After.GetDeletionTimestamp() != nil || e.After != nil && len(e.After.GetOwnerReferences()) > 0 && e.Verb == "create" {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	})
	select {
	case wake <- struct{}{}: // for what was deleted before
	default:
	}
	ticker := time.NewTicker(compactEvery)
	defer ticker.Stop()
	compactTo := s.Version()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.expireEvents()
			s.compact(compactTo)
			compactTo = s.Version()
		case <-wake:
			select {
			case <-time.After(collectAfter):
			case <-ctx.Done():
				return
			}
			s.Collect(ctx)
		}
	}
}

// dependent is what garbage collection reads of an object.
type dependent struct {
	resource *resource
	metadata metav1.Object
}

// Collect deletes, once, the objects without an owner that exists, and the content of namespaces that are deleted.
func (s *Server) Collect(ctx context.Context) {
	all := s.everything()
	alive, terminating := map[types.UID]dependent{}, map[string]bool{}
	for _, o := range all {
		alive[o.metadata.GetUID()] = o
		if o.resource.group.Resource == "namespaces" && o.metadata.GetDeletionTimestamp() != nil {
			terminating[o.metadata.GetName()] = true
		}
	}
	content := map[string]bool{}
	for _, o := range all {
		m := o.metadata
		if terminating[m.GetNamespace()] {
			content[m.GetNamespace()] = true
		}
		switch {
		case m.GetDeletionTimestamp() != nil:
			s.release(ctx, o, all)
		case terminating[m.GetNamespace()] || isOrphan(o, alive):
			s.request(ctx, http.MethodDelete, o, "", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(m.GetUID())}})
		}
	}
	for name := range terminating {
		if !content[name] {
			s.finalize(name)
		}
	}
}

func (s *Server) everything() []dependent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []dependent
	for group, r := range s.handlers.resources {
		if group.Group == "events.k8s.io" {
			continue // the same as those of the core group
		}
		for _, o := range s.collection(r.prefix).objects {
			m, err := meta.Accessor(o.Object)
			if err != nil {
				panic(err) // it is an object
			}
			all = append(all, dependent{r, m})
		}
	}
	slices.SortFunc(all, func(a, b dependent) int {
		return strings.Compare(a.resource.prefix+a.metadata.GetNamespace()+"/"+a.metadata.GetName(), b.resource.prefix+b.metadata.GetNamespace()+"/"+b.metadata.GetName())
	})
	return all
}

// isOrphan returns whether an object has owners, and none of them exists, or all are being deleted and wait for it.
func isOrphan(o dependent, alive map[types.UID]dependent) bool {
	owners := o.metadata.GetOwnerReferences()
	for _, owner := range owners {
		found, exists := alive[owner.UID]
		sameNamespace := exists && (found.metadata.GetNamespace() == "" || found.metadata.GetNamespace() == o.metadata.GetNamespace())
		if sameNamespace && !slices.Contains(found.metadata.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			return false
		}
	}
	return len(owners) > 0
}

// release removes the finalizers of garbage collection from an object whose dependents are gone, or belong to it no longer.
func (s *Server) release(ctx context.Context, o dependent, all []dependent) {
	foreground := slices.Contains(o.metadata.GetFinalizers(), metav1.FinalizerDeleteDependents)
	orphan := slices.Contains(o.metadata.GetFinalizers(), metav1.FinalizerOrphanDependents)
	if !foreground && !orphan {
		return
	}
	for _, other := range all {
		owners := other.metadata.GetOwnerReferences()
		at := slices.IndexFunc(owners, func(r metav1.OwnerReference) bool { return r.UID == o.metadata.GetUID() })
		switch {
		case at < 0:
		case orphan:
			s.request(ctx, http.MethodPatch, other, string(types.MergePatchType), map[string]any{"metadata": map[string]any{
				"uid": other.metadata.GetUID(), "ownerReferences": slices.Delete(slices.Clone(owners), at, at+1),
			}})
		case owners[at].BlockOwnerDeletion != nil && *owners[at].BlockOwnerDeletion:
			return
		}
	}
	left := slices.DeleteFunc(slices.Clone(o.metadata.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
	s.request(ctx, http.MethodPatch, o, string(types.MergePatchType), map[string]any{"metadata": map[string]any{"uid": o.metadata.GetUID(), "finalizers": left}})
}

// request sends a request about an object. It can fail, for example if somebody else has deleted the object: the next
// collection repeats what is left.
func (s *Server) request(ctx context.Context, method string, o dependent, content string, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err) // it came from objects
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://apiserver"+s.path(o), strings.NewReader(string(encoded)))
	if err != nil {
		panic(err) // the path is valid
	}
	q.Header.Set("Content-Type", "application/json")
	if content != "" {
		q.Header.Set("Content-Type", content)
	}
	if response, err := s.Transport("garbage-collector", ctx, nil).RoundTrip(q); err == nil {
		_ = response.Body.Close()
	}
}

func (s *Server) path(o dependent) string {
	for _, r := range s.handlers.served {
		if r.GroupVersion.Group != o.resource.group.Group || r.Name != o.resource.group.Resource {
			continue
		}
		path := "/apis/" + r.GroupVersion.String()
		if r.GroupVersion.Group == "" {
			path = "/api/v1"
		}
		if r.Namespaced {
			path += "/namespaces/" + o.metadata.GetNamespace()
		}
		return path + "/" + r.Name + "/" + o.metadata.GetName()
	}
	panic("no resource " + o.resource.group.String())
}

// finalize deletes a namespace without content, unless it has other finalizers.
func (s *Server) finalize(name string) {
	r := s.handlers.resources[schema.GroupResource{Resource: "namespaces"}]
	s.remove(r, key(r.prefix, "", name), func(o *stored) bool {
		namespace, ok := o.Object.(*corev1.Namespace)
		return ok && len(namespace.Finalizers) == 0
	})
}

func (s *Server) expireEvents() {
	r := s.handlers.resources[schema.GroupResource{Resource: "events"}]
	s.mu.Lock()
	keys := slices.Clone(s.collection(r.prefix).keys)
	s.mu.Unlock()
	for _, k := range keys {
		s.remove(r, k, func(o *stored) bool { return time.Since(o.written) > eventLife })
	}
}

// remove deletes an object from the store if a condition is true.
func (s *Server) remove(r *resource, key string, condition func(*stored) bool) {
	s.serial.Lock()
	defer s.serial.Unlock()
	o := s.current(r, key)
	if o == nil || !condition(o) {
		return
	}
	if e, done := s.replace("kube-apiserver", r, key, o, nil); done {
		s.publish(e)
	}
}

// compact forgets the history up to a version.
func (s *Server) compact(to uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to <= s.compacted || to > s.version {
		return
	}
	s.compacted = to
	s.log = slices.Clone(slices.DeleteFunc(s.log, func(c change) bool { return c.version <= to }))
}
