// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/record"
)

// reporter writes reports beside the workers, so that plans don't wait for the API server. It has a queue of the owners whose
// reports aren't written yet.
type reporter struct {
	*queue

	reports *record.Reports
	// settled is called with an owner whose reports turned out to differ from the record, on which plans depend.
	settled func(program.Key)

	mu     sync.Mutex
	wanted map[program.Key]*writing
}

// writing writes the reports of an owner after a pass.
type writing struct {
	write func(context.Context) error
}

// put has the reports of an owner written, in place of what isn't written yet of an earlier pass.
func (r *reporter) put(key program.Key, write func(context.Context) error) {
	r.mu.Lock()
	r.wanted[key] = &writing{write}
	r.mu.Unlock()
	r.Add(key)
}

// of returns what is to be written of an owner, or nil.
func (r *reporter) of(key program.Key) *writing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted[key]
}

// unwritten returns the number of owners whose reports aren't written yet.
func (r *reporter) unwritten() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.wanted)
}

// finishDeadline is the time that an agent which stops takes at most to write its last reports. It is less than the time until
// the kubelet kills it.
const finishDeadline = 10 * time.Second

// finish writes what isn't written yet, after the workers have ended. The next agent attaches links again that no report has:
// nothing would be attached in the meantime.
func (r *reporter) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishDeadline)
	defer cancel()
	r.reports.EndPauses()
	r.mu.Lock()
	keys := slices.Collect(maps.Keys(r.wanted))
	r.mu.Unlock()
	for _, key := range keys {
		if _, err := safely(ctx, key, r.report); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to report before the agent stops", "object", key.String())
		}
	}
}

// report writes the reports of an owner, unless they are in doubt: then it reads them, and the owner's next pass decides what
// they say. It is a reconcileFunc.
func (r *reporter) report(ctx context.Context, key program.Key) (again time.Duration, err error) {
	wanted := r.of(key)
	if wanted == nil {
		return 0, nil
	}
	matters, err := r.reports.Settle(ctx, key)
	if matters {
		r.settled(key)
	}
	if err != nil || matters {
		return later(err)
	}
	err = wanted.write(ctx)
	if paused := (*record.PausedError)(nil); errors.As(err, &paused) {
		return paused.Left, nil
	}
	if err != nil {
		return 0, logged(err)
	}
	if len(r.reports.InDoubt(key)) > 0 {
		return heldUpRetry, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted[key] == wanted {
		delete(r.wanted, key)
	}
	return 0, nil
}
