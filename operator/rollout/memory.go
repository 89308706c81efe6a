// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import "time"

// Memory is what a process remembers about a rollout between decisions, by its own clock: the times in the status are by the
// clock of the process that wrote them. After a restart it is empty, which only delays the next step, and failures of nodes
// that wait.
type Memory struct {
	// entered is since when the process has known the position of the rollout.
	position string
	entered  time.Time
	// since is since when all nodes of step are healthy. If step is "", nodes have waited since then.
	step  string
	since time.Time
	// settled is the last step of which all nodes were healthy.
	settled string
}

// observe records whether nodes of the current step wait. It returns since when none does, and since when the time limit
// counts for those that do: since the step began, or since nodes wait again after all were healthy, for example because one
// joined.
func (m *Memory) observe(current string, waits bool, now time.Time) (healthy, waiting time.Time) {
	if m.position != current {
		m.position, m.entered = current, now
	}
	step := ""
	if !waits {
		step, m.settled = current, current
	}
	if m.step != step || m.since.IsZero() {
		m.step, m.since = step, now
	}
	if waits && m.settled == current {
		return m.since, m.since
	}
	return m.since, m.entered
}
