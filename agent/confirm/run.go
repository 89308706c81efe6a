// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package confirm

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// Run confirms versions, and undoes those that can't be confirmed in time, until ctx ends.
func (c *Changes) Run(ctx context.Context) error {
	if c.resumed {
		c.ask(ctx) // the last response that an earlier process recorded can be old, and so can a deadline
	}
	for {
		c.prepareIfDue(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-time.After(c.wait()):
		}
		c.step(ctx)
	}
}

// prepareIfDue calls Prepare if that is due and no version waits for a response.
func (c *Changes) prepareIfDue(ctx context.Context) {
	if !c.prepares() || time.Now().Before(c.prepare) || !c.settled() {
		return
	}
	short, stop := context.WithTimeout(ctx, patience)
	defer stop()
	next := prepareSoon
	if c.Prepare(short, c.settled) {
		next = prepareAgain
	}
	c.prepare = time.Now().Add(next)
}

func (c *Changes) prepares() bool { return c.Prepare != nil && c.Enabled() }

// settled reports whether no version waits for a response.
func (c *Changes) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if r.open() {
			return false
		}
	}
	return true
}

// wait returns the time until the next step.
func (c *Changes) wait() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	const idle = time.Hour
	until := time.Now().Add(idle)
	if now := time.Now(); c.prepares() && now.Before(c.prepare) { // otherwise, it is due when no version waits
		until = c.prepare
	}
	if len(c.unwritten) > 0 {
		until = earlier(until, time.Now().Add(later))
	}
	for _, r := range c.records {
		switch {
		case r.Tried == nil || r.Tried.State == refused || r.Tried.State == partial:
			continue
		case r.Tried.State == undoing:
			return again // it failed
		case r.Tried.State == trying || r.Tried.State == undone:
			until = earlier(until, r.Tried.deadline.Add(time.Millisecond))
		case r.Tried.State == unproven:
		}
		if r.open() {
			until = earlier(until, c.next)
		}
	}
	return max(0, time.Until(until))
}

// step undoes what is overdue, and asks the API server if that is due.
func (c *Changes) step(ctx context.Context) {
	c.rewrite()
	now := time.Now()
	undo, open := map[program.Key]record{}, false
	c.update(ctx, func(key program.Key, r record) record {
		r = r.passed(now, c.Limit)
		if r.Tried != nil && r.Tried.State == undoing {
			undo[key] = r
		}
		open = open || r.open()
		return r
	})
	if len(undo) > 0 {
		c.undo(ctx, undo)
	}
	c.mu.Lock()
	due := open && !time.Now().Before(c.next)
	c.mu.Unlock()
	if due {
		c.ask(ctx)
	}
}

// undo runs the previous versions of objects.
func (c *Changes) undo(ctx context.Context, records map[program.Key]record) {
	log := logr.FromContextOrDiscard(ctx)
	previous := map[program.Key]*Version{}
	for key, r := range records {
		log.Info("Rolling back", "object", key.String(), "reason", r.message())
		previous[key] = r.before()
	}
	failed := c.Undo(ctx, previous)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range records {
		if failed[key] == nil && !r.Tried.Restarted {
			c.clearUndone(ctx)
			break
		}
	}
	for key := range records {
		log := log.WithValues("owner", key.String())
		if err := failed[key]; err != nil {
			log.Error(err, "Failed to roll back; retrying")
			continue
		}
		// A newer version can have been recorded in the meantime.
		if is := c.records[key]; is.Tried != nil && is.Tried.State == undoing {
			if err := c.put(key, is.restored(now, c.Limit)); err != nil {
				log.Error(err, "Failed to record a rollback")
			}
		}
		c.next = now
		c.Changed(key)
	}
}

// clearUndone records that the versions undone so far weren't the cause: the API server stayed silent until others were undone.
// The caller holds mu.
func (c *Changes) clearUndone(ctx context.Context) {
	for key, r := range c.records {
		if r.Tried == nil || r.Tried.State != undone {
			continue
		}
		if err := c.put(key, r.cleared()); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to record a change", "object", key.String())
		}
		c.Changed(key)
	}
}

// ask sends a request to the API server, and updates all records with the response.
func (c *Changes) ask(ctx context.Context) {
	sent := time.Now()
	short, stop := context.WithTimeout(ctx, patience)
	response := c.Ask(short)
	stop()
	if ctx.Err() != nil {
		return
	}
	waiting := time.Duration(0)
	c.update(ctx, func(_ program.Key, r record) record {
		switch {
		case response == Reached, response == Responded && r.attachedSince(sent):
			r = r.postponed(time.Now(), c.Limit)
		case response == Responded:
			r = r.heard(sent)
		default:
			r = r.unheard(time.Now(), c.Limit)
		}
		if interval := r.interval(response, c.Limit); interval > 0 && (waiting == 0 || interval < waiting) {
			waiting = interval
		}
		return r
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = time.Time{}
	if waiting > 0 {
		c.next = sent.Add(waiting)
	}
}

// update replaces records, and reports those whose state has changed.
func (c *Changes) update(ctx context.Context, next func(program.Key, record) record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, was := range c.records {
		is := next(key, was)
		if is == was {
			continue
		}
		if err := c.put(key, is); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to record a change", "object", key.String())
		}
		if is.Tried == nil || is.Tried.State != trying && is.Tried.State != partial || was.Tried.State == unproven {
			c.Changed(key)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
