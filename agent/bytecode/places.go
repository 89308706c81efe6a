// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"math"
	"slices"
	"sync"
)

// places are a limited number of places for reads. The next one is for a namespace that has the fewest, and of these, they take
// turns. So one with many reads doesn't delay those of others.
type places struct {
	// yield means that a read even gives up its place for another namespace, if its own still has as many as that one then.
	yield bool

	mu      sync.Mutex
	free    int
	taken   []*place // the oldest first, also those that are about to be given, without those that are about to be released
	waiting []*place // in the order of turns
}

// place is the place of a read, or its wait for one.
type place struct {
	// namespaces returns those whose objects wait for the read. It can change.
	namespaces func() []string
	// given is closed when the read has the place, and wanted when it has to give it up.
	given, wanted chan struct{}
	// heir is who gets the place when it is released, and giver whose heir this is.
	heir, giver *place
}

func newPlaces(number int, yield bool) *places { return &places{free: number, yield: yield} }

func newPlace(namespaces func() []string) *place {
	return &place{namespaces: namespaces, given: make(chan struct{}), wanted: make(chan struct{})}
}

// acquire waits for a place. It returns an error if ctx ends first.
func (s *places) acquire(ctx context.Context, namespaces func() []string) (*place, error) {
	p := newPlace(namespaces)
	s.mu.Lock()
	if !s.take(p) {
		s.waiting = append(s.waiting, p)
		s.claim(p)
	}
	s.mu.Unlock()
	select {
	case <-p.given:
		return p, nil
	case <-ctx.Done():
		s.release(p)
		return nil, ctx.Err()
	}
}

// tryAcquire returns a place, or nil if none is free.
func (s *places) tryAcquire(namespaces func() []string) *place {
	p := newPlace(namespaces)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.take(p) {
		return nil
	}
	return p
}

// release ends the use of a place, or the wait for it.
func (s *places) release(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch heir := p.heir; {
	case slices.Contains(s.waiting, p):
		s.waiting = without(s.waiting, p)
	case p.giver != nil:
		p.giver.heir = nil
		s.taken = without(s.taken, p)
	case heir != nil:
		heir.giver = nil
		close(heir.given)
	default:
		s.taken = without(s.taken, p)
		s.free++
		if next := s.next(); next != nil {
			s.takeTurn(next)
			s.take(next)
		}
	}
}

// reconsider takes into account that another namespace waits for a read.
func (s *places) reconsider() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := s.next(); next != nil {
		s.claim(next)
	}
}

// take gives a place to a read if one is free.
func (s *places) take(p *place) bool {
	if s.free == 0 {
		return false
	}
	s.free--
	s.taken = append(s.taken, p)
	close(p.given)
	return true
}

// claim makes a waiting read the heir of one whose namespace has too many places: of the youngest, which loses the least.
func (s *places) claim(p *place) {
	if !s.yield {
		return
	}
	counts := s.counts()
	var giver *place
	most := counts.fewest(p) + 1
	for _, o := range s.taken {
		if n := counts.fewest(o); o.giver == nil && (n > most || giver != nil && n == most) {
			giver, most = o, n
		}
	}
	if giver == nil {
		return
	}
	s.takeTurn(p)
	s.taken = append(without(s.taken, giver), p)
	giver.heir, p.giver = p, giver
	close(giver.wanted)
}

// next returns the waiting read whose turn it is, or nil.
func (s *places) next() *place {
	counts := s.counts()
	var next *place
	fewest := math.MaxInt
	for _, p := range s.waiting {
		if n := counts.fewest(p); n < fewest {
			next, fewest = p, n
		}
	}
	return next
}

// takeTurn ends the wait of a read. The others of its namespaces are behind those of other namespaces then.
func (s *places) takeTurn(p *place) {
	namespaces := p.namespaces()
	var first, last []*place
	for _, o := range without(s.waiting, p) {
		if slices.ContainsFunc(o.namespaces(), func(namespace string) bool { return slices.Contains(namespaces, namespace) }) {
			last = append(last, o)
		} else {
			first = append(first, o)
		}
	}
	s.waiting = append(first, last...)
}

// counts are the numbers of places by namespace.
type counts map[string]int

func (s *places) counts() counts {
	c := counts{}
	for _, p := range s.taken {
		for _, namespace := range p.namespaces() {
			c[namespace]++
		}
	}
	return c
}

// fewest returns the number of places of the namespace of a read that has the fewest.
func (c counts) fewest(p *place) int {
	fewest := math.MaxInt
	for _, namespace := range p.namespaces() {
		fewest = min(fewest, c[namespace])
	}
	return fewest
}

func without(all []*place, p *place) []*place {
	return slices.DeleteFunc(all, func(o *place) bool { return o == p })
}
