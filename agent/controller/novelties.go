// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"fmt"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// together is how long an agent waits before it runs a new revision for the first time. Tools write the objects of a file one
// after the other, and a RolloutPolicy that comes right after the object applies to it too.
const together = 100 * time.Millisecond

// novelties are the revisions of user objects that this agent has seen for the first time.
type novelties struct {
	mu   sync.Mutex
	seen map[program.Key]novelty
}

type novelty struct {
	revision string
	since    time.Time
	settled  bool
}

// since returns when the revision of an object was first seen, and whether settle has been called since then.
func (n *novelties) since(key program.Key, o v1alpha1.UserObject) (since time.Time, settled bool) {
	revision := fmt.Sprintf("%s/%d/%s/%s", o.GetUID(), o.GetGeneration(),
		o.GetAnnotations()[v1alpha1.AnnotationRestartedAt], o.GetAnnotations()[v1alpha1.AnnotationReplacePinnedMaps])
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = map[program.Key]novelty{}
	}
	known := n.seen[key]
	if known.revision != revision {
		known = novelty{revision: revision, since: time.Now()}
		n.seen[key] = known
	}
	return known.since, known.settled
}

// settle records that the policies for the revision of an object are known.
func (n *novelties) settle(key program.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.seen[key]
	known.settled = true
	n.seen[key] = known
}

func (n *novelties) forget(key program.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.seen, key)
}
