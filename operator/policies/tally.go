// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policies

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// counts are how many programs a policy allows, denies, and would deny.
type counts struct{ allowed, denied, warned int32 }

func (c *counts) add(verdict v1alpha1.PolicyVerdict, n int32) {
	switch verdict {
	case v1alpha1.VerdictAllowed:
		c.allowed += n
	case v1alpha1.VerdictDenied:
		c.denied += n
	case v1alpha1.VerdictWarned:
		c.warned += n
	case v1alpha1.VerdictUnknown: // neither
	}
}

// tally counts what reports say of policies, by the policies' names. A report costs
// what it says, however many there are.
type tally struct {
	mu      sync.Mutex
	said    map[types.UID][]v1alpha1.BpfProgramPolicy
	byName  map[string]*counts
	reports map[string]int // by node
	nodeOf  map[types.UID]string
}

func newTally() *tally {
	return &tally{
		said: map[types.UID][]v1alpha1.BpfProgramPolicy{}, byName: map[string]*counts{}, reports: map[string]int{}, nodeOf: map[types.UID]string{},
	}
}

// set takes what a report says, nil for one that is gone, and returns the names of
// the policies of which the counts changed.
func (t *tally) set(uid types.UID, node string, said []v1alpha1.BpfProgramPolicy) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	touched := map[string]counts{}
	count := func(said []v1alpha1.BpfProgramPolicy, n int32) {
		for _, s := range said {
			c := t.byName[s.Name]
			if c == nil {
				c = &counts{}
				t.byName[s.Name] = c
			}
			if _, is := touched[s.Name]; !is {
				touched[s.Name] = *c
			}
			c.add(s.Verdict, n)
		}
	}
	count(t.said[uid], -1)
	count(said, 1)
	if len(said) == 0 {
		delete(t.said, uid)
	} else {
		t.said[uid] = said
	}
	t.move(uid, node)
	var changed []string
	for name, before := range touched {
		if *t.byName[name] != before {
			changed = append(changed, name)
		}
		if *t.byName[name] == (counts{}) {
			delete(t.byName, name)
		}
	}
	return changed
}

// move keeps on how many nodes there are reports.
func (t *tally) move(uid types.UID, node string) {
	if old, had := t.nodeOf[uid]; had {
		if t.reports[old]--; t.reports[old] == 0 {
			delete(t.reports, old)
		}
		delete(t.nodeOf, uid)
	}
	if node != "" {
		t.nodeOf[uid] = node
		t.reports[node]++
	}
}

// of returns the counts of a policy.
func (t *tally) of(name string) counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byName[name]; c != nil {
		return *c
	}
	return counts{}
}

// nodes is on how many nodes there are reports.
func (t *tally) nodes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.reports)
}
