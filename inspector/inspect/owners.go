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

	"github.com/bpfman/bpfman-operator/inspector/daemon"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
)

// ownersDeadline bounds a call to the daemon, which serves one call at a time. Loading
// can take minutes.
const ownersDeadline = 3 * time.Minute

// patience is how long a round waits for the daemon's response. A later round uses a
// response that takes longer.
const patience = time.Second

// errNoAnswer is the reason why owners aren't known at the start.
var errNoAnswer = errors.New("it hasn't answered yet")

// owners contains the daemon's last response: which one it is, and the objects that its
// programs were loaded for.
type owners struct {
	ask func(context.Context) (daemon.Answer, error)

	mu       sync.Mutex
	answer   daemon.Answer
	err      error
	answered bool // at least once
	news     bool
	asked    map[uint32]bool // the programs at that time
	outdated bool
	asking   chan struct{} // closed when the daemon has responded; nil if there is no call
}

// want calls the daemon if the programs have changed, or if it didn't respond to the
// previous call.
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

// changed reports whether there is a new response since the last call of changed.
func (o *owners) changed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	news := o.news
	o.news = false
	return news
}

// known returns the last response, and the reason if there is no newer one.
func (o *owners) known() (daemon.Answer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && !o.answered {
		return daemon.Answer{}, errNoAnswer
	}
	return o.answer, o.err
}
