// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapcontent

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/internal/nearest"
)

// The kernel doesn't know the type of a ring buffer's events. But it usually is among the types of the programs that send
// them.

// eventTypes are the types that events can have.
type eventTypes struct {
	// chosen is the type of all events, if the user specified it.
	chosen eventType
	size   int
	// bySize has the structs by their size.
	bySize map[int][]eventType
}

// eventType is a type with the name that it has in the program's source. The zero value is no type.
type eventType struct {
	btf.Type
	name string
}

// The names come from a program, which isn't trusted.
const (
	maxFits     = 16
	maxTypeName = 128
)

// eventTypesOf returns the types of a map's events. name is that of the only type, or empty.
func eventTypesOf(id uint32, name string) (eventTypes, error) {
	var names []string
	for spec, err := range typesOfUsers(id) {
		if err != nil {
			return eventTypes{}, err
		}
		found := eventTypes{bySize: map[int][]eventType{}}
		for t := range namedStructs(spec) {
			size, err := btf.Sizeof(t.Type)
			switch {
			case err != nil || size == 0:
			case name == "":
				found.bySize[size] = append(found.bySize[size], t)
			case t.name == name:
				return eventTypes{chosen: t, size: size}, nil
			default:
				names = append(names, t.name)
			}
		}
		if len(found.bySize) > 0 {
			return found, nil
		}
	}
	switch {
	case name == "":
		return eventTypes{}, nil
	case len(names) == 0:
		return eventTypes{}, fmt.Errorf("find type %q: no program that uses the map has structs in its types (BTF)", name)
	}
	question := nearest.Question(name, slices.Values(names))
	return eventTypes{}, fmt.Errorf("find type %q: no program that uses the map has such a struct in its types (BTF)%s", name, question)
}

// namedStructs yields the structs that have a name, or that have one by a typedef.
func namedStructs(spec *btf.Spec) iter.Seq[eventType] {
	return func(yield func(eventType) bool) {
		for t, err := range spec.All() {
			if err != nil {
				return // the others are enough, or the events are shown as hexadecimal digits
			}
			s, is := btf.UnderlyingType(t).(*btf.Struct)
			_, alias := t.(*btf.Typedef)
			named := is && (alias && s.Name == "" || t == btf.Type(s) && s.Name != "")
			if named && !yield(eventType{t, t.TypeName()}) {
				return
			}
		}
	}
}

// known reports whether there are any types.
func (t eventTypes) known() bool { return t.chosen.Type != nil || len(t.bySize) > 0 }

// of returns the type of an event of some length, or no type and those that it could have.
func (t eventTypes) of(length uint32) (typ eventType, fits []string) {
	if t.chosen.Type != nil {
		if int(length) < t.size {
			return eventType{}, nil
		}
		return t.chosen, nil
	}
	all := t.bySize[int(length)]
	if len(all) == 1 {
		return all[0], nil
	}
	names := map[string]struct{}{}
	for _, one := range all {
		names[one.name[:min(len(one.name), maxTypeName)]] = struct{}{}
	}
	fits = slices.Sorted(maps.Keys(names))
	return eventType{}, fits[:min(len(fits), maxFits)]
}
