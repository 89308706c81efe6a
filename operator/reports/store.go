// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/liststream"
)

// Store contains the reports of the cluster, and passes each change to its subscribers. It takes about 190 bytes
// for each report, which BenchmarkBytesPerReport measures.
type Store struct {
	known *kinds.Kinds
	parts []*part // one for each kind
	// details is the wish to keep the details of reports.
	details wish
	// states are the kinds whose applications have details.
	states []v1alpha1.StateKind

	// changing is held while the store changes and notifies subscribers, so that all subscribers get the changes
	// in the same order.
	changing    sync.Mutex
	subscribers []func(Change)
}

// Change is a change of one report. If a report was deleted and created again, there are two changes, in this
// order.
type Change struct {
	// Before is nil for a new report. After is nil for a deleted report.
	Before, After *Report
}

// part contains the reports of one kind. It implements [toolscache.ReflectorStore].
type part struct {
	store *Store
	kind  v1alpha1.Kind[v1alpha1.ProgramObject]

	mu     sync.RWMutex
	byUID  map[types.UID]*Report
	byNode map[string][]*Report // by the nodes' label, with as many reports as a node has programs
	listed bool
}

// NewStore returns an empty store. It records in known which of its kinds can't be read.
func NewStore(known *kinds.Kinds, states []v1alpha1.StateKind) *Store {
	s := &Store{known: known, states: states, details: wish{made: make(chan struct{})}}
	for _, kind := range v1alpha1.ProgramKinds {
		s.parts = append(s.parts, &part{store: s, kind: kind, byUID: map[types.UID]*Report{}, byNode: map[string][]*Report{}})
	}
	return s
}

// SetupWithManager makes the manager fill the store while it is the leader.
func (s *Store) SetupWithManager(mgr ctrl.Manager) error {
	api, err := kinds.NewClient(mgr.GetConfig(), mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("read reports: %w", err)
	}
	codec := runtime.NewParameterCodec(mgr.GetScheme())
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		var running sync.WaitGroup
		for _, p := range s.parts {
			running.Go(func() { p.reflect(ctx, liststream.New(api, p.kind.Resource(), codec, s.decode)) })
		}
		running.Wait()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("read reports: %w", err)
	}
	return nil
}

// reflect keeps the part in sync with the API server.
func (p *part) reflect(ctx context.Context, from *toolscache.ListWatch) {
	gvk := p.kind.GroupVersionKind()
	p.store.known.SetListed(gvk, p.hasListed)
	from = p.store.known.Watch(gvk, from)
	reflect := func(ctx context.Context) {
		toolscache.NewReflectorWithOptions(from, nil, p, toolscache.ReflectorOptions{
			Name: p.kind.Resource(), TypeDescription: p.kind.Name,
		}).RunWithContext(ctx)
	}
	undetailed, cancel := p.untilDetails(ctx)
	defer cancel()
	reflect(undetailed)
	if ctx.Err() == nil {
		reflect(ctx)
	}
}

// Source makes the store an event source of a controller.
func Source[request comparable](s *Store, changed func(Change, workqueue.TypedRateLimitingInterface[request])) source.TypedSource[request] {
	return source.TypedFunc[request](func(_ context.Context, q workqueue.TypedRateLimitingInterface[request]) error {
		s.Subscribe(func(c Change) { changed(c, q) })
		return nil
	})
}

// Subscribe calls changed with all existing reports, and then with every change, one at a time. It must not block.
func (s *Store) Subscribe(changed func(Change)) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.subscribers = append(s.subscribers, changed)
	for _, p := range s.parts {
		for _, r := range p.byUID { // nothing changes while changing is held
			changed(Change{After: r})
		}
	}
}

// Each calls visit with each report of a scope, while none changes. It must not block.
func (s *Store) Each(namespaced bool, visit func(*Report)) {
	for _, p := range s.parts {
		if p.kind.Namespaced != namespaced {
			continue
		}
		p.mu.RLock()
		for _, r := range p.byUID {
			visit(r)
		}
		p.mu.RUnlock()
	}
}

// Listed reports whether subscribers have got all existing reports of a scope.
func (s *Store) Listed(namespaced bool) bool {
	return !slices.ContainsFunc(s.parts, func(p *part) bool { return p.kind.Namespaced == namespaced && !p.hasListed() })
}

// Of returns the reports of a node, by the value of its label. The error contains a [kinds.UnreadError] for each
// kind that hasn't been listed yet.
func (s *Store) Of(nodeLabel string) ([]*Report, error) {
	var of []*Report
	var unread []error
	for _, p := range s.parts {
		p.mu.RLock()
		of = append(of, p.byNode[nodeLabel]...)
		p.mu.RUnlock()
		if !p.hasListed() {
			unread = append(unread, cmp.Or(s.known.CheckReadable(p.kind.GroupVersionKind()), error(&kinds.UnreadError{Kind: p.kind.Name})))
		}
	}
	return of, errors.Join(unread...)
}

func (p *part) hasListed() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.listed
}

// Add implements [toolscache.ReflectorStore].
func (p *part) Add(of any) error { return p.Update(of) }

// Update implements [toolscache.ReflectorStore].
func (p *part) Update(of any) error {
	r, err := liststream.Record[*Report](of)
	if err != nil {
		return err
	}
	p.store.changing.Lock()
	defer p.store.changing.Unlock()
	p.put(r)
	return nil
}

// Delete implements [toolscache.ReflectorStore].
func (p *part) Delete(of any) error {
	r, err := liststream.Record[*Report](of)
	if err != nil {
		return err
	}
	p.store.changing.Lock()
	defer p.store.changing.Unlock()
	p.drop(r.UID)
	return nil
}

// Replace implements [toolscache.ReflectorStore]. Reports that aren't in the list were deleted during an
// interruption of the watch.
func (p *part) Replace(items []any, _ string) error {
	p.store.changing.Lock()
	defer p.store.changing.Unlock()
	reports := make([]*Report, 0, len(items))
	stay := make(map[types.UID]struct{}, len(items))
	for _, item := range items {
		r, err := liststream.Record[*Report](item)
		if err != nil {
			return err
		}
		reports = append(reports, r)
		stay[r.UID] = struct{}{}
	}
	for uid := range p.byUID {
		if _, is := stay[uid]; !is {
			p.drop(uid)
		}
	}
	for _, r := range reports {
		p.put(r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed = true
	return nil
}

// Resync implements [toolscache.ReflectorStore]. There is no periodic resync.
func (p *part) Resync() error { return nil }

func (p *part) put(after *Report) {
	p.mu.Lock()
	before := p.byUID[after.UID]
	p.byUID[after.UID] = after
	label := after.Node.Value().Label
	if before != nil && before.Node.Value().Label != label {
		p.leave(before)
		p.byNode[label] = append(p.byNode[label], after)
	} else if i := slices.Index(p.byNode[label], before); before != nil && i >= 0 {
		p.byNode[label][i] = after
	} else {
		p.byNode[label] = append(p.byNode[label], after)
	}
	p.mu.Unlock()
	p.store.publish(Change{before, after})
}

func (p *part) drop(uid types.UID) {
	p.mu.Lock()
	before := p.byUID[uid]
	if before != nil {
		delete(p.byUID, uid)
		p.leave(before)
	}
	p.mu.Unlock()
	if before != nil {
		p.store.publish(Change{Before: before})
	}
}

// leave removes a report from the reports of its node.
func (p *part) leave(r *Report) {
	label := r.Node.Value().Label
	of := p.byNode[label]
	if i := slices.Index(of, r); i >= 0 {
		of = slices.Delete(of, i, i+1)
	}
	if len(of) == 0 {
		delete(p.byNode, label)
	} else {
		p.byNode[label] = of
	}
}

func (s *Store) publish(c Change) {
	for _, changed := range s.subscribers {
		changed(c)
	}
}
