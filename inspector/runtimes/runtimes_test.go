// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package runtimes

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// counter is a kernel with the runs of some programs.
type counter map[uint32]struct {
	count   uint64
	average time.Duration
}

func (c counter) runs(id uint32) (uint64, time.Duration, error) {
	p, ok := c[id]
	if !ok {
		return 0, 0, os.ErrNotExist
	}
	return p.count, time.Duration(p.count) * p.average, nil
}

func (c counter) set(id uint32, count uint64, average time.Duration) {
	one := c[id]
	one.count, one.average = count, average
	c[id] = one
}

var firewall = v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "firewall"}

// status returns a status with some programs of an object, and one of other software.
func status(ids ...uint32) *v1alpha1.BpfNodeStatus {
	s := &v1alpha1.BpfNodeStatus{Programs: []v1alpha1.BpfNodeProgram{{ID: 1, Name: "other"}}}
	for _, id := range ids {
		s.Programs = append(s.Programs, v1alpha1.BpfNodeProgram{ID: id, Name: "filter", Owner: &firewall})
	}
	return s
}

// add returns the run times of the object's programs: average and previous of each.
func add(a *Averages, now time.Time, ids ...uint32) []int64 {
	s := status(ids...)
	a.Add(s, now)
	var all []int64
	for _, p := range s.Programs {
		if p.RunTime != nil {
			all = append(all, p.RunTime.AverageNanoseconds, p.RunTime.PreviousNanoseconds)
		}
	}
	return all
}

func TestAverages(t *testing.T) {
	kernel, now := counter{}, time.Unix(1_800_000_000, 0)
	a := &Averages{Runs: kernel.runs}
	is := func(what string, got []int64, want ...int64) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	measured := func(want bool) {
		t.Helper()
		if got := a.Measure(); got != want {
			t.Errorf("an average changed: %v, want %v", got, want)
		}
	}
	kernel.set(7, 10, 100)
	kernel.set(1, 5000, 100)
	is("too few runs", add(a, now, 7), 0, 0)
	measured(false)
	kernel.set(7, 1000, 100)
	measured(true)
	is("enough runs", add(a, now, 7), 100, 0)
	kernel.set(7, 2000, 109)
	measured(false)
	is("a change of less than a tenth", add(a, now, 7), 100, 0)
	kernel.set(7, 3000, 110)
	measured(true)
	is("a tenth", add(a, now, 7), 110, 0)

	kernel.set(8, 1, 900)
	is("both are loaded", add(a, now, 7, 8), 110, 0, 0, 110)
	delete(kernel, 7)
	is("the first is unloaded", add(a, now, 8), 0, 110)
	kernel.set(8, 1000, 300)
	measured(true)
	is("the second ran", add(a, now, 8), 300, 110)
	delete(kernel, 8)
	is("it is unloaded before the next is loaded", add(a, now))
	kernel.set(9, 1, 1)
	is("the next", add(a, now.Add(remembered/2), 9), 0, 300)

	// The inspector restarts.
	written := status(9)
	a.Add(written, now)
	a = &Averages{Runs: kernel.runs}
	a.Recall(written)
	is("before the daemon says whose programs there are", add(a, now))
	is("after a restart", add(a, now, 9), 0, 300)
	kernel.set(9, 1000, 200)
	measured(true)
	is("it ran after a restart", add(a, now, 9), 200, 300)

	if got := add(a, now); len(got) != 0 || len(a.programs) != 1 {
		t.Errorf("%v, and %d programs are known", got, len(a.programs))
	}
	if add(a, now.Add(remembered)); len(a.programs) != 0 {
		t.Errorf("%d programs are known after an hour", len(a.programs))
	}
}

func TestWithoutStatistics(t *testing.T) {
	a, before := &Averages{}, status(7)
	before.Programs[1].RunTime = &v1alpha1.BpfNodeRunTime{AverageNanoseconds: 100}
	a.Recall(before)
	if got := add(a, time.Now(), 7); len(got) != 0 || a.Measure() {
		t.Errorf("%v", got)
	}
}
