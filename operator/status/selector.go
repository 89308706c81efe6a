// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selector selects nodes by their labels, as a labels.Selector. A node costs time for each of its labels, and not for each
// value in the object, of which a user can write hundreds of thousands: all objects wait while one is compared with all nodes.
type selector struct {
	byKey map[string]*requirement
	// needed is the number of keys that a node must have.
	needed int
}

// requirement is what an object requires of one label.
type requirement struct {
	required, forbidden bool
	// in is nil if all values are allowed.
	in, notIn map[string]struct{}
}

func (r *requirement) allows(value string) bool {
	_, denied := r.notIn[value]
	_, allowed := r.in[value]
	return !r.forbidden && !denied && (allowed || r.in == nil)
}

// newSelector returns the selector with the requirements of an object. The error is that of the API server's own selectors.
func newSelector(of *metav1.LabelSelector) (*selector, error) {
	if _, err := metav1.LabelSelectorAsSelector(of); err != nil {
		return nil, err
	}
	s := &selector{byKey: map[string]*requirement{}}
	at := func(key string) *requirement {
		if s.byKey[key] == nil {
			s.byKey[key] = &requirement{}
		}
		return s.byKey[key]
	}
	for key, value := range of.MatchLabels {
		at(key).only([]string{value})
	}
	for _, e := range of.MatchExpressions {
		switch r := at(e.Key); e.Operator {
		case metav1.LabelSelectorOpIn:
			r.only(e.Values)
		case metav1.LabelSelectorOpNotIn:
			if r.notIn == nil {
				r.notIn = make(map[string]struct{}, len(e.Values))
			}
			for _, value := range e.Values {
				r.notIn[value] = struct{}{}
			}
		case metav1.LabelSelectorOpExists:
			r.required = true
		case metav1.LabelSelectorOpDoesNotExist:
			r.forbidden = true
		}
	}
	for _, r := range s.byKey {
		if r.required {
			s.needed++
		}
	}
	return s, nil
}

// only allows no values but the given ones among those that are allowed already.
func (r *requirement) only(values []string) {
	among := make(map[string]struct{}, len(values))
	for _, value := range values {
		if _, allowed := r.in[value]; allowed || r.in == nil {
			among[value] = struct{}{}
		}
	}
	r.in, r.required = among, true
}

// matches reports whether a node with the labels is selected.
func (s *selector) matches(node labels.Set) bool {
	found := 0
	for key, value := range node {
		r := s.byKey[key]
		if r == nil {
			continue
		}
		if !r.allows(value) {
			return false
		}
		if r.required {
			found++
		}
	}
	return found == s.needed
}
