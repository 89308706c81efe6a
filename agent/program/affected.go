// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Change is what differs between two states of this node.
type Change struct {
	// Interfaces contains the names of interfaces of the host that appeared, disappeared, or have another index or address.
	Interfaces []string
	// Primary means that one of them has, or had, an address of the Node object.
	Primary bool
	// Containers contains the containers that differ, as they were and as they are.
	Containers []Container
}

// Empty reports whether nothing differs.
func (c Change) Empty() bool { return len(c.Interfaces) == 0 && len(c.Containers) == 0 }

// InterfaceChange compares the host's interfaces. Addresses are those of the Node object.
func InterfaceChange(before, now map[string]Interface, addresses []netip.Addr) Change {
	var change Change
	for name := range both(before, now) {
		was, is := before[name], now[name]
		if was.Index == is.Index && slices.Equal(was.Addresses, is.Addresses) {
			continue
		}
		change.Interfaces = append(change.Interfaces, name)
		for _, a := range addresses {
			change.Primary = change.Primary || slices.Contains(was.Addresses, a) || slices.Contains(is.Addresses, a)
		}
	}
	return change
}

// ContainerChange compares containers.
func ContainerChange(before, now []Container) Change {
	were, are := byID(before), byID(now)
	var change Change
	for id := range both(were, are) {
		was, is := were[id], are[id]
		if was != nil && is != nil && was.equal(*is) {
			continue
		}
		for _, differs := range []*Container{was, is} {
			if differs != nil {
				change.Containers = append(change.Containers, *differs)
			}
		}
	}
	return change
}

// both returns the keys of two maps.
func both[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return all
}

func byID(containers []Container) map[string]*Container {
	found := make(map[string]*Container, len(containers))
	for i := range containers {
		found[containers[i].Sandbox+"/"+containers[i].ID] = &containers[i]
	}
	return found
}

// equal reports whether containers have the same state. Errors are the same if their texts are.
func (c Container) equal(other Container) bool {
	if textOf(c.Err) != textOf(other.Err) || textOf(c.InterfacesErr) != textOf(other.InterfacesErr) {
		return false
	}
	c.Err, c.InterfacesErr, other.Err, other.InterfacesErr = nil, nil, nil, nil
	return reflect.DeepEqual(c, other) //nolint:govet // without the errors
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Affected reports whether a change can concern the attach points of one of the owner's programs. If it returns false, the
// owner's plan is the same before and after the change.
func (o Owner) Affected(change Change) bool {
	if o.Namespace != "" { // a plan doesn't see other namespaces
		change.Containers = slices.DeleteFunc(slices.Clone(change.Containers), func(c Container) bool { return c.Namespace != o.Namespace })
	}
	return slices.ContainsFunc(o.Members, func(m Member) bool { return m.Affected(change) })
}

// SelectsPod reports whether one of the owner's programs selects containers of a pod with these labels.
func (o Owner) SelectsPod(namespace string, of labels.Set) bool {
	return (o.Namespace == "" || o.Namespace == namespace) && slices.ContainsFunc(o.Members, func(m Member) bool {
		in, can := m.Spec.(interface{ selector() *containerSelector })
		return can && in.selector() != nil && in.selector().selectsPod(namespace, of)
	})
}

func (o onNetwork) selector() *containerSelector { return o.containers }
func (u uprobe) selector() *containerSelector    { return u.containers }

// selectsPod reports whether containers of a pod can be selected. A selector that isn't valid can't tell.
func (s *containerSelector) selectsPod(namespace string, of labels.Set) bool {
	if s.Namespace != "" && s.Namespace != namespace {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(&s.Pods)
	return err != nil || selector.Matches(of)
}

// affected reports whether one of the containers is, or was, selected.
func (s *containerSelector) affected(change Change) bool {
	return s != nil && slices.ContainsFunc(change.Containers, func(c Container) bool {
		return s.named(c) && s.selectsPod(c.Namespace, c.PodLabels)
	})
}

// Affected implements [Spec].
func (function) Affected(Change) bool { return false }

// Affected implements [Spec].
func (unattached) Affected(Change) bool { return false }

// Affected implements [Spec].
func (u uprobe) Affected(change Change) bool { return u.containers.affected(change) }

// Affected implements [Spec]. What is said about a missing interface names the primary one.
func (o onNetwork) Affected(change Change) bool {
	if o.containers.affected(change) {
		return true
	}
	if !o.Needs().Interfaces || len(change.Interfaces) == 0 {
		return false
	}
	if change.Primary {
		return true
	}
	selected, err := discoveryOf(o.interfaces.InterfacesDiscoveryConfig)
	switch {
	case o.interfaces.PrimaryNodeInterface != nil:
		return false
	case o.interfaces.Interfaces != nil:
		return slices.ContainsFunc(*o.interfaces.Interfaces, func(name string) bool { return slices.Contains(change.Interfaces, name) })
	}
	return err != nil || selected != nil && len(selected.of(change.Interfaces)) > 0
}
