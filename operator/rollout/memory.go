// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import "time"

// Memory is what a process remembers about a rollout between decisions. After a restart it is empty, which only delays the
// next step.
type Memory struct {
	// since is since when all nodes of step are healthy. If step is "", nodes have waited since then.
	step  string
	since time.Time
	// settled is the last step of which all nodes were healthy.
	settled string
}

// observe records whether nodes of the current step wait. It returns since when none does, and since when some do that were
// all healthy before, for example because a node joined, or zero.
func (m *Memory) observe(current string, waits bool, now time.Time) (healthy, waiting time.Time) {
	step := ""
	if !waits {
		step, m.settled = current, current
	}
	if m.step != step || m.since.IsZero() {
		m.step, m.since = step, now
	}
	if waits && m.settled == current {
		waiting = m.since
	}
	return m.since, waiting
}
