// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package pace limits how often the operator writes what every agent receives.
package pace

import "time"

// perAgent bounds what the API server sends because of one object: 50 copies a second.
const perAgent = 20 * time.Millisecond

// Between returns the least time between two writes to an object that so many agents watch: base, or 20 ms for each
// agent if that is longer. So what a rollout costs the API server doesn't grow with the square of the agents.
func Between(base time.Duration, agents int) time.Duration {
	return max(base, time.Duration(agents)*perAgent)
}
