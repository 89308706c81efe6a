// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/ui/view"
)

// facts are what the watches have read. What it contains never changes, but is replaced.
type facts struct {
	mu          sync.Mutex
	machines    map[string]*view.Machine
	inventories map[string]*view.Inventory
	objects     map[v1alpha1.BpfNodeOwner]*view.Declared
	events      map[types.UID]*view.Event
	failing     map[v1alpha1.BpfNodeOwner][]string
	components  []string
	// sources are the states of the watches, by what they read.
	sources map[string]*source
	// changed is closed at the next change.
	changed chan struct{}
}

func newFacts() *facts {
	return &facts{
		machines: map[string]*view.Machine{}, inventories: map[string]*view.Inventory{}, objects: map[v1alpha1.BpfNodeOwner]*view.Declared{},
		events: map[types.UID]*view.Event{}, failing: map[v1alpha1.BpfNodeOwner][]string{}, sources: map[string]*source{}, changed: make(chan struct{}),
	}
}

// change calls a function that changes the facts, and wakes those who wait for changes.
func (f *facts) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// next returns a channel that is closed at the next change.
func (f *facts) next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// now returns the facts at this moment.
func (f *facts) now() *view.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := &view.Facts{
		Machines: maps.Clone(f.machines), Inventories: maps.Clone(f.inventories), Objects: maps.Clone(f.objects),
		Events: slices.Collect(maps.Values(f.events)), Failing: map[string][]v1alpha1.BpfNodeOwner{}, Components: f.components,
	}
	for owner, nodes := range f.failing {
		for _, node := range nodes {
			all.Failing[node] = append(all.Failing[node], owner)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(f.sources)) {
		switch s := f.sources[what]; {
		case s.problem != "":
			all.Unseen = append(all.Unseen, what+": "+s.problem)
		case !s.listed:
			all.Reading = append(all.Reading, what)
		}
	}
	return all
}

// object returns an object and a node's inventory, or nil.
func (f *facts) object(owner v1alpha1.BpfNodeOwner) *view.Declared {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[owner]
}

func (f *facts) inventory(node string) *view.Inventory {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inventories[node]
}
