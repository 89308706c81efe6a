// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Until has a fault end after its time, or at the next rest if that is earlier.
func (c *Cluster) Until(f Fault, end func()) {
	target := f.of()
	c.mu.Lock()
	c.lasting++
	id := c.lasting
	c.faults[target]++
	c.mu.Unlock()
	ended := sync.OnceFunc(func() {
		end()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ends, id)
		c.faults[target]--
		c.disturbed[target] = time.Now()
	})
	c.mu.Lock()
	c.ends[id] = ended
	c.mu.Unlock()
	time.AfterFunc(f.For.Duration, ended)
}

// disturb says that there was a fault of a target just now.
func (c *Cluster) disturb(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbed[target] = time.Now()
}

// endFaults ends the faults that last.
func (c *Cluster) endFaults() {
	c.mu.Lock()
	var ends []func()
	for _, id := range slices.Sorted(maps.Keys(c.ends)) {
		ends = append(ends, c.ends[id])
	}
	c.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// later has something done by who plays the plan, within a second. It can send requests.
func (c *Cluster) later(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = append(c.due, do)
}

func (c *Cluster) doDue() {
	c.mu.Lock()
	due := c.due
	c.due = nil
	c.mu.Unlock()
	for _, do := range due {
		do()
	}
}

// Calm reports whether there was no fault of these targets in a time until now. A target is a node with its agent, an operator, or
// the API server, which is "".
func (c *Cluster) Calm(since time.Duration, targets ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, target := range targets {
		if at, there := c.disturbed[target]; c.faults[target] > 0 || there && time.Since(at) < since {
			return false
		}
	}
	return true
}
