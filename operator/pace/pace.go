// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package pace limits how often the operator writes to objects that every agent watches.
package pace

import "time"

// perAgent limits what the API server sends because of one object to 50 copies per second.
const perAgent = 20 * time.Millisecond

// Between returns the minimum interval between writes to an object that the given number of agents watch. It is
// base, or 20 ms for each agent if that is longer. With this limit, the cost of a rollout for the API server
// doesn't grow with the square of the number of agents.
func Between(base time.Duration, agents int) time.Duration {
	return max(base, time.Duration(agents)*perAgent)
}
