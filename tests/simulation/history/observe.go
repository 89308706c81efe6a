// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"github.com/bpfman/bpfman-operator/tests/simulation"
	"github.com/bpfman/bpfman-operator/tests/simulation/apiserver"
)

// observe calls f after each write of the API server, in order.
func observe(w *simulation.World, f func(Write)) {
	w.API.Observe(func(e apiserver.Event) {
		f(Write{Actor: e.Actor, Resource: e.Resource.Resource, Before: e.Before, After: e.After})
	})
}
