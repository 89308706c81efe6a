// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package process

import "sync"

// Limits, because a container could otherwise keep the inspector reading forever: a process can have a million file descriptors, in
// eight megabytes of memory. Those of the host's processes have none.
const (
	// always is how many file descriptors of a process are read in any case.
	always = 256
	// maxOfContainer is how many more are read of all processes of a container, and maxOfAll of those of all containers.
	maxOfContainer, maxOfAll = 128 << 10, 512 << 10
)

// allowance is how many file descriptors of containers can still be read in a scan. It can be used concurrently.
type allowance struct {
	mu   sync.Mutex
	left int
	of   map[string]int // what was taken, by container
}

func newAllowance() *allowance { return &allowance{left: maxOfAll, of: map[string]int{}} }

// take reports whether one more can be read of a container, which is empty for the host.
func (a *allowance) take(container string) bool {
	if container == "" {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == 0 || a.of[container] == maxOfContainer {
		return false
	}
	a.left--
	a.of[container]++
	return true
}
