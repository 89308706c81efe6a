// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policies

import (
	"sync"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

// counts are the numbers of programs that a policy allows, denies, and would deny.
type counts struct{ allowed, denied, warned int32 }

func (c *counts) add(verdict v1alpha1.PolicyVerdict, n int32) {
	switch verdict {
	case v1alpha1.VerdictAllowed:
		c.allowed += n
	case v1alpha1.VerdictDenied:
		c.denied += n
	case v1alpha1.VerdictWarned:
		c.warned += n
	case v1alpha1.VerdictUnknown: // not counted
	}
}

// tally counts the verdicts in reports, by the names of the policies. The cost of an
// update depends only on the changed report.
type tally struct {
	mu      sync.Mutex
	byName  map[string]*counts
	reports map[string]int // by node
}

func newTally() *tally {
	return &tally{byName: map[string]*counts{}, reports: map[string]int{}}
}

// change updates the counts after a change of a report. It returns the names of the
// policies whose counts changed.
func (t *tally) change(c reports.Change) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	touched := map[string]counts{}
	t.count(c.Before, -1, touched)
	t.count(c.After, 1, touched)
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

// count adds n times the verdicts of a report. touched gets the previous counts.
func (t *tally) count(report *reports.Report, n int32, touched map[string]counts) {
	if report == nil {
		return
	}
	for name, verdict := range report.State.Value().Policies() {
		c := t.byName[name]
		if c == nil {
			c = &counts{}
			t.byName[name] = c
		}
		if _, is := touched[name]; !is {
			touched[name] = *c
		}
		c.add(verdict, n)
	}
	node := report.Node.Value().Label
	if t.reports[node] += int(n); t.reports[node] == 0 {
		delete(t.reports, node)
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

// nodes returns the number of nodes with reports.
func (t *tally) nodes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.reports)
}
