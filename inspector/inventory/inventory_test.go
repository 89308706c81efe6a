// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"errors"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/report"
)

// A failure ends when there is nothing left to read.
func TestFailureEnds(t *testing.T) {
	i := &Inventory{
		facts: report.Facts{
			Programs: []kernel.Program{{ID: 1}},
			Links:    []kernel.Link{{Program: 1}},
		},
		unresolved: map[string]error{},
	}
	for what, read := range map[string]func(){
		"maps of programs": i.readContents, "network": i.readNetwork, "cgroups": func() { i.readCgroups(false, false) },
	} {
		i.tried(what, errors.New("permission denied"))
		if read(); len(i.Failures()) != 0 {
			t.Errorf("left: %v", i.Failures())
		}
	}
}

// The clock of a node can be set after the inspector has started. Small adjustments don't change the times of programs.
func TestBootFollowsTheClock(t *testing.T) {
	now, err := bootTime()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		before time.Time
		moves  bool
	}{
		"an hour behind": {now.Add(-time.Hour), true},
		"an hour ahead":  {now.Add(time.Hour), true},
		"adjusted":       {now.Add(2 * time.Second), false},
	} {
		i := &Inventory{facts: report.Facts{Boot: c.before}, unresolved: map[string]error{}}
		i.followClock()
		if moved := !i.facts.Boot.Equal(c.before); moved != c.moves || moved && i.facts.Boot.Sub(now).Abs() >= clockStep {
			t.Errorf("%s: the boot was at %v, then at %v; it was at %v", name, c.before, i.facts.Boot, now)
		}
	}
}
