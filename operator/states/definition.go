// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package states

import (
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Definitions says which of some kinds of States the API server serves.
type Definitions struct {
	Kinds []v1alpha1.StateKind

	mu     sync.Mutex
	served []string
	// changed is closed when served changes.
	changed chan struct{}
}

// Set sets what the API server serves of this API's group and version. A definition that is being deleted is served without
// the verb create: its kind isn't, so that nothing is written which would delay the deletion.
func (d *Definitions) Set(resources []metav1.APIResource) {
	var served []string
	for _, kind := range d.Kinds {
		if slices.ContainsFunc(resources, func(r metav1.APIResource) bool {
			return r.Kind == kind.Name && r.Namespaced == kind.Namespaced && slices.Contains(r.Verbs, "create")
		}) {
			served = append(served, kind.Name)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Equal(d.served, served) {
		return
	}
	d.served = served
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// has reports whether a kind is served.
func (d *Definitions) has(kind string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.served, kind)
}

// look returns whether a kind is served, and a channel that is closed when that can have changed.
func (d *Definitions) look(kind string) (served bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return slices.Contains(d.served, kind), d.changed
}

// await waits until a kind is served, or isn't. It returns false if ctx ends before that.
func (d *Definitions) await(ctx context.Context, kind string, wanted bool) bool {
	for {
		served, changed := d.look(kind)
		if served == wanted {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}
