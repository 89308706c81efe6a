// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspect

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
)

// ownersDeadline is how long the daemon, which serves one call at a time, may take:
// loading may take minutes.
const ownersDeadline = 3 * time.Minute

// patience is how long a look waits for the daemon's answer. A later look has it.
const patience = time.Second

// errNoAnswer is why owners aren't known at the start.
var errNoAnswer = errors.New("it hasn't answered yet")

// owners are the objects that bpfman's programs were loaded for, as the daemon last
// said.
type owners struct {
	ask func(context.Context) (map[uint32]*v1alpha1.BpfNodeOwner, error)

	mu       sync.Mutex
	answer   map[uint32]*v1alpha1.BpfNodeOwner
	err      error
	answered bool // at least once
	news     bool
	asked    map[uint32]bool // the programs that there were
	outdated bool
	asking   chan struct{} // closed when the daemon has answered; nil if it isn't asked
}

// want has the daemon asked if there are other programs than there were, or it
// hasn't answered then.
func (o *owners) want(ctx context.Context, programs []kernel.Program) {
	there := make(map[uint32]bool, len(programs))
	for _, program := range programs {
		there[program.ID] = true
	}
	o.mu.Lock()
	switch {
	case o.asking != nil:
		o.outdated = o.outdated || !maps.Equal(there, o.asked)
	case o.err != nil || o.outdated || !maps.Equal(there, o.asked):
		o.asked, o.outdated, o.asking = there, false, make(chan struct{})
		go o.run(ctx, o.asking)
	}
	asking := o.asking
	o.mu.Unlock()
	if asking == nil {
		return
	}
	select {
	case <-asking:
	case <-ctx.Done():
	case <-time.After(patience):
	}
}

func (o *owners) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(ctx, ownersDeadline)
	defer cancel()
	answer, err := o.ask(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asking = nil
	if !o.answered || (err == nil) != (o.err == nil) || err == nil && !reflect.DeepEqual(answer, o.answer) {
		o.news = true
	}
	if o.err = err; err == nil {
		o.answer, o.answered = answer, true
	}
}

// changed tells once that there is another answer.
func (o *owners) changed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	news := o.news
	o.news = false
	return news
}

// known returns the last answer, and why there is no later one.
func (o *owners) known() (map[uint32]*v1alpha1.BpfNodeOwner, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && !o.answered {
		return nil, errNoAnswer
	}
	return o.answer, o.err
}
