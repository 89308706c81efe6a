// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"slices"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// announced are containers and sandboxes that the container runtime has announced before their start. They complete its lists,
// until it lists them for a pod that the API server has, or reports their end, or has neither listed them for abandonedAfter.
// The zero value is ready to use.
type announced struct {
	mu sync.Mutex
	of map[containerKey]announcement
}

// announcement is a container, and the time at which it was announced.
type announcement struct {
	program.Container

	at time.Time
}

// abandonedAfter is the time after which an announced container that isn't in a list was abandoned: a runtime that doesn't
// finish a start needn't report an end. It is longer than the rest of a start with a list that began before that, and than the
// API server usually takes to send a new pod: without it, a sandbox isn't in a list before it has a container.
const abandonedAfter = 2 * time.Minute

// containerKey identifies a container by the IDs of its sandbox and its own, which is "" for the entry of the sandbox.
type containerKey struct{ sandbox, id string }

func keyOf(c program.Container) containerKey { return containerKey{c.Sandbox, c.ID} }

// add announces a container.
func (a *announced) add(c program.Container) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[containerKey]announcement{}
	}
	a.of[keyOf(c)] = announcement{c, time.Now()}
}

// remove forgets the announced containers for which gone is true, and returns them.
func (a *announced) remove(gone func(program.Container) bool) []program.Container {
	a.mu.Lock()
	defer a.mu.Unlock()
	var removed []program.Container
	for key, c := range a.of {
		if gone(c.Container) {
			removed = append(removed, c.Container)
			delete(a.of, key)
		}
	}
	return removed
}

// listed forgets what the container runtime lists. If the API server doesn't have the pod yet, the list says that it was
// deleted, so that what was announced stays. It also forgets what was abandoned, and returns it.
func (a *announced) listed(now []program.Container) (abandoned []program.Container) {
	a.mu.Lock()
	defer a.mu.Unlock()
	there := map[containerKey]bool{}
	for _, c := range now {
		there[keyOf(c)] = true
		if !c.Deleted && c.Err == nil {
			delete(a.of, keyOf(c))
		}
	}
	for key, c := range a.of {
		if !there[key] && time.Since(c.at) > abandonedAfter {
			abandoned = append(abandoned, c.Container)
			delete(a.of, key)
		}
	}
	return abandoned
}

// overdue reports whether something was announced so long ago that the next list shows whether it was abandoned.
func (a *announced) overdue() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.of {
		if time.Since(c.at) > abandonedAfter {
			return true
		}
	}
	return false
}

// all returns what is announced.
func (a *announced) all() []program.Container {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]program.Container, 0, len(a.of))
	for _, c := range a.of {
		all = append(all, c.Container)
	}
	return all
}

// merge returns a list of containers with those that are announced, in their place if they are listed. What an old list has of
// an earlier sandbox of their pods has ended: a pod has one sandbox at a time.
func merge(now, announced []program.Container) []program.Container {
	if len(announced) == 0 {
		return now
	}
	kept := slices.DeleteFunc(slices.Clone(now), func(c program.Container) bool {
		return slices.ContainsFunc(announced, func(a program.Container) bool { return keyOf(a) == keyOf(c) || replaces(a, c) })
	})
	return append(kept, announced...)
}

// replaces reports whether an announced container is in another sandbox of an earlier one's pod.
func replaces(announced, earlier program.Container) bool {
	return announced.Sandbox != earlier.Sandbox && podOf(announced) == podOf(earlier)
}

// podOf identifies a container's pod. The UID isn't enough: users can create a pod with that of another namespace's pod.
func podOf(c program.Container) [3]string { return [3]string{c.Namespace, c.Pod, c.PodUID} }
