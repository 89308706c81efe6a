// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package runtimes finds out how long runs of bpfman's programs take, as figures that
// change so rarely that an object can contain them. Rollouts compare those of a revision
// with those of the previous one.
package runtimes

import (
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const (
	// enough is the number of runs after which an average means something.
	enough = 1000
	// coarse is the reciprocal of the change from which on another average is reported. An
	// average of all runs needs more and more runs to change that much.
	coarse = 10
	// remembered is how long after its end a program can still be replaced.
	remembered = time.Hour
)

// Averages contains the average run times of the programs that objects of bpfman own. It
// isn't safe for concurrent use.
type Averages struct {
	// Runs returns how often a program ran while the kernel's statistics were enabled, and
	// the total time. If it is nil, there are no averages.
	Runs func(program uint32) (count uint64, total time.Duration, err error)

	programs map[uint32]*program
}

type program struct {
	v1alpha1.BpfNodeRunTime
	// A program replaces one with the same owner and name.
	owner v1alpha1.BpfNodeOwner
	name  string
	// ended is when the program was found to be unloaded, or zero.
	ended time.Time
}

// Recall restores the averages from a status that was written earlier in the same boot. The
// kernel doesn't have those of programs that were unloaded.
func (a *Averages) Recall(before *v1alpha1.BpfNodeStatus) {
	if a.Runs == nil {
		return
	}
	a.programs = map[uint32]*program{}
	for i := range before.Programs {
		if p := &before.Programs[i]; p.Owner != nil && p.RunTime != nil {
			a.programs[p.ID] = &program{BpfNodeRunTime: *p.RunTime, owner: *p.Owner, name: p.Name}
		}
	}
}

// Measure updates the averages, and reports whether one has changed.
func (a *Averages) Measure() bool {
	changed := false
	for id, p := range a.programs {
		if p.ended.IsZero() {
			changed = a.measure(id, p) || changed
		}
	}
	return changed
}

func (a *Averages) measure(id uint32, p *program) bool {
	count, total, err := a.Runs(id)
	if err != nil || count < enough { // with an error, it was unloaded
		return false
	}
	now, before := max(total.Nanoseconds()/int64(count), 1), p.AverageNanoseconds //nolint:gosec // it doesn't run 2^63 times
	if max(now-before, before-now)*coarse < before {
		return false
	}
	p.AverageNanoseconds = now
	return now != before
}

// Add adds the run times to the programs of a status.
func (a *Averages) Add(status *v1alpha1.BpfNodeStatus, now time.Time) {
	if a.Runs == nil {
		return
	}
	known := a.programs
	a.programs = map[uint32]*program{}
	for i := range status.Programs {
		entry := &status.Programs[i]
		if entry.Owner == nil {
			continue
		}
		p := known[entry.ID]
		if p == nil || p.owner != *entry.Owner || p.name != entry.Name {
			p = &program{owner: *entry.Owner, name: entry.Name}
			p.PreviousNanoseconds = previous(known, entry.ID, p)
			a.measure(entry.ID, p)
		}
		p.ended = time.Time{} // its owner can have been unknown for some time
		a.programs[entry.ID] = p
		entry.RunTime = new(p.BpfNodeRunTime)
	}
	for id, p := range known {
		if a.programs[id] != nil {
			continue
		}
		if p.ended.IsZero() {
			p.ended = now
		}
		if now.Sub(p.ended) < remembered {
			a.programs[id] = p
		}
	}
}

// previous returns the average of the last program that a new one replaces, or 0.
func previous(known map[uint32]*program, id uint32, p *program) int64 {
	average, last := int64(0), uint32(0)
	for other, before := range known {
		if before.owner == p.owner && before.name == p.name && before.AverageNanoseconds != 0 && other != id && other > last {
			average, last = before.AverageNanoseconds, other
		}
	}
	return average
}
