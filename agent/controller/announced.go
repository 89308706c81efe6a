// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"maps"
	"slices"
	"sync"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// announced are containers and sandboxes that the container runtime has announced before their start. They complete its lists,
// until it lists them for a pod that the API server has, or reports their end. The zero value is ready to use.
type announced struct {
	mu sync.Mutex
	of map[containerKey]program.Container
}

// containerKey identifies a container by the IDs of its sandbox and its own, which is "" for the entry of the sandbox.
type containerKey struct{ sandbox, id string }

func keyOf(c program.Container) containerKey { return containerKey{c.Sandbox, c.ID} }

// add announces a container.
func (a *announced) add(c program.Container) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[containerKey]program.Container{}
	}
	a.of[keyOf(c)] = c
}

// remove forgets the announced containers for which gone is true, and returns them.
func (a *announced) remove(gone func(program.Container) bool) []program.Container {
	a.mu.Lock()
	defer a.mu.Unlock()
	var removed []program.Container
	for key, c := range a.of {
		if gone(c) {
			removed = append(removed, c)
			delete(a.of, key)
		}
	}
	return removed
}

// listed forgets what the container runtime lists. If the API server doesn't have the pod yet, the list says that it was
// deleted, so that what was announced stays.
func (a *announced) listed(now []program.Container) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range now {
		if !c.Deleted && c.Err == nil {
			delete(a.of, keyOf(c))
		}
	}
}

// with returns a list of containers with those that are announced, in their place if they are listed.
func (a *announced) with(now []program.Container) []program.Container {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.of) == 0 {
		return now
	}
	kept := slices.DeleteFunc(slices.Clone(now), func(c program.Container) bool {
		_, there := a.of[keyOf(c)]
		return there
	})
	return slices.AppendSeq(kept, maps.Values(a.of))
}
