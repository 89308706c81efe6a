// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package confirm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const (
	// again is the interval of requests while versions aren't confirmed, and later the interval after undoing them didn't
	// restore the connection.
	again, later = time.Second, 5 * time.Second
	// patience is the timeout of a request.
	patience = 3 * time.Second
	// prepareAgain is the interval of preparations, and prepareSoon the one after a preparation that found nothing out.
	prepareAgain, prepareSoon = time.Hour, time.Minute
	// spread is the part of the time limit over which the nodes spread their first requests.
	spread = 0.6
)

// Changes confirms the versions of objects whose network programs the agent attaches, or undoes them. Its methods can
// be called concurrently. The zero value confirms nothing, and has no records.
type Changes struct {
	// Limit is the time limit for a response of the API server. Without one, each version counts as confirmed.
	Limit time.Duration
	// Ask sends a request to the API server over a new connection.
	Ask func(ctx context.Context) Response
	// Prepare, if not nil, finds out what a later Ask needs to know, and returns false if it has to be repeated soon. It is called
	// from time to time while no version waits. unchanged reports whether that is still so.
	Prepare func(ctx context.Context, unchanged func() bool) bool
	// Undo unloads the programs of objects, and runs their previous versions instead if these aren't nil. It returns the
	// errors of those for which that failed.
	Undo func(ctx context.Context, previous map[program.Key]*Version) map[program.Key]error
	// Changed is called when another version of an object is to run, or the reason for that has changed.
	Changed func(program.Key)
	// Uptime returns the time since the node's boot. It continues while the agent doesn't run, unlike its monotonic clock, and
	// can't be set, unlike the wall clock. Nil means the kernel's.
	Uptime func() time.Duration

	journal *journal
	boot    string
	wake    chan struct{}
	// resumed means that an earlier process left versions that wait for a response of the API server.
	resumed bool

	mu      sync.Mutex
	records map[program.Key]record
	// unwritten are the keys whose records on the disk differ, because writing failed, for example on a full disk.
	unwritten map[program.Key]bool
	next      time.Time // of the next request
	prepare   time.Time // when Prepare is due
}

// Open reads the records in a directory. The boot ID comes from proc.
func (c *Changes) Open(dir, proc string) error {
	boot, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return fmt.Errorf("read the boot ID: %w", err)
	}
	c.boot, c.journal, c.wake = strings.TrimSpace(string(boot)), &journal{dir}, make(chan struct{}, 1)
	c.unwritten = map[program.Key]bool{}
	if c.Uptime == nil {
		c.Uptime = sinceBoot
	}
	c.records, err = c.journal.read()
	for key, r := range c.records {
		switch {
		case r.Tried == nil:
		case c.Enabled():
			c.records[key] = record{r.Confirmed, r.Tried.resumed(time.Now(), c.Uptime(), c.boot, c.Limit)}
			c.resumed = c.resumed || r.open()
		default:
			err = errors.Join(err, c.put(key, record{Confirmed: r.known()}))
		}
	}
	return err
}

// sinceBoot returns the node's uptime.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // Linux has this clock
	return time.Duration(t.Nano())
}

// Enabled reports whether changes are confirmed at all.
func (c *Changes) Enabled() bool { return c.Limit > 0 }

// Begin records a version, before its network programs are attached at places. It does nothing for a version that is confirmed
// there. It returns an error for a version that is being rolled back.
func (c *Changes) Begin(key program.Key, v Version, at ...program.Place) error {
	if !c.Enabled() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, recorded := c.records[key]
	r, id := before, v.id()
	if r.permits(id, at) {
		return nil
	}
	if t := r.Tried; t != nil && t.Version.id() == id {
		next, err := t.begun(time.Now(), c.boot, c.Limit)
		if err != nil {
			return err
		}
		if t.State == trying { // it is recorded already
			c.records[key] = record{r.Confirmed, next}
			return nil
		}
		r.Tried = next
	} else {
		next := &trial{Version: v, State: trying, Boot: c.boot, deadline: time.Now().Add(c.Limit)}
		if known := before.Confirmed; known != nil && known.id() == id { // it runs again
			next.Version, next.Part = *known, true
			next.Version.Object = v.Object
		}
		r = record{r.known(), next}
	}
	if r.Confirmed != nil && r.Confirmed.Object.Metadata.UID != v.Object.Metadata.UID {
		r.Confirmed = nil // another object of this name, which had nothing to do with the programs of this one
	}
	if err := c.put(key, r); err != nil {
		// Nothing is attached. The next attach point of the version must not find it recorded.
		if c.records[key] = before; !recorded {
			delete(c.records, key)
		}
		return err
	}
	c.schedule()
	return nil
}

// schedule sets the time of the next request after a change, unless there is one. The caller holds mu.
func (c *Changes) schedule() {
	if c.next.IsZero() {
		c.next = time.Now().Add(Delay(c.Limit))
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Delay returns the random delay of a node's first request after a change.
func Delay(limit time.Duration) time.Duration { return wait.Jitter(limit, spread) - limit }

// Pass is the result of a pass over an object.
type Pass struct {
	// Attached means that programs of the version are attached where they can cut off the node.
	Attached bool
	// Added means that the pass may have attached some of them.
	Added bool
	// Complete means that nothing failed.
	Complete bool
	// Record means that a version without network programs is recorded too.
	Record bool
	// Replaced means that nothing of another version is attached.
	Replaced bool
	// Places are where these programs are attached. They aren't set while programs of another version run beside them: what is
	// confirmed is both then.
	Places []program.Place
}

// End records that a pass over an object has ended. A complete version that isn't being tried is confirmed where it is attached: it
// attached nothing new.
func (c *Changes) End(key program.Key, v Version, pass Pass) error {
	if c.journal == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[key]
	t := r.Tried
	tried := t != nil && t.Version.id() == v.id()
	settled := pass.Complete || pass.Attached && !c.Enabled()
	if t != nil && !tried {
		if next, decided := r.replaced(time.Now(), v, pass, c.Limit); decided {
			return c.set(key, next)
		}
	}
	switch {
	case tried && t.State == trying && !t.since.IsZero() && t.attached == pass.Attached && t.complete == pass.Complete && slices.Equal(t.places, pass.Places):
		return nil
	case tried && t.State == trying:
		err := c.put(key, record{r.Confirmed, t.ended(time.Now(), v, pass, c.Limit)})
		c.schedule()
		return err
	case tried && t.State == partial && !settled && !r.rest() && len(pass.Places) > 0: // what is attached was confirmed
		next := *t
		next.Version.Places = t.Version.confirmedAt(pass.Places)
		return c.put(key, record{r.Confirmed, &next})
	case tried && t.State != partial || !settled:
		return nil
	case !pass.Attached && !pass.Record && r.Confirmed == nil && (!tried || !r.rest()):
		return c.forget(key) // the trial of another version ends
	}
	if !pass.Attached || c.Enabled() {
		v = r.ran(v, pass)
	}
	if t == nil && r.Confirmed != nil && reflect.DeepEqual(*r.Confirmed, v) {
		return nil
	}
	return c.put(key, record{Confirmed: &v})
}

// set writes a record that changed, or removes an empty one. The caller holds mu.
func (c *Changes) set(key program.Key, r record) error {
	switch r {
	case c.records[key]:
		return nil
	case record{}:
		return c.forget(key)
	}
	err := c.put(key, r)
	c.schedule()
	return err
}

// Interrupted records that a pass over an object ended without a result, and whether it may have attached network programs.
func (c *Changes) Interrupted(key program.Key, v Version, added bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.records[key]; added && r.Tried != nil && r.Tried.State == trying && r.Tried.Version.id() == v.id() {
		next := *r.Tried
		next.added = true
		c.records[key] = record{r.Confirmed, &next}
	}
}

// Forget removes the record of an object whose programs are unloaded.
func (c *Changes) Forget(key program.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forget(key)
}

// forget removes a record. The caller holds mu.
func (c *Changes) forget(key program.Key) error {
	if _, ok := c.records[key]; !ok {
		return nil
	}
	delete(c.records, key)
	return c.write(key)
}

// write writes or removes the file of a record. If that fails, it is tried again later: an old file would roll back a version
// that was confirmed. The caller holds mu.
func (c *Changes) write(key program.Key) error {
	var err error
	if r, ok := c.records[key]; ok {
		err = c.journal.write(key, r)
	} else {
		err = c.journal.remove(key)
	}
	if c.unwritten[key] = true; err == nil {
		delete(c.unwritten, key)
	}
	return err
}

// rewrite writes what couldn't be written before.
func (c *Changes) rewrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.unwritten {
		if c.write(key) != nil {
			return // it was logged
		}
	}
}

// Rollback says what runs instead of a version that was undone.
type Rollback struct {
	// Previous is nil if nothing runs.
	Previous *Version
	// Rest means that Previous is the version itself, where it was confirmed.
	Rest bool
	// Message explains it to the user.
	Message string
}

// Rollback returns what runs instead of a version, or nil if nothing does.
func (c *Changes) Rollback(key program.Key, v Version) *Rollback {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[key]
	if t := r.Tried; t == nil || t.State == trying || t.State == partial || t.Version.id() != v.id() {
		return nil
	}
	return &Rollback{r.before(), r.rest(), r.message()}
}

// message explains why a version doesn't run, what runs instead, and what happens next.
func (r record) message() string {
	t := r.Tried
	tried := fmt.Sprintf("generation %d", t.Version.Generation())
	if r.rest() {
		tried = "the rest of " + tried
	}
	cause := problem.Notef(problem.RolledBack, "this node got no response from the API server for %s after %s was attached", t.Limit, tried)
	if t.State == refused {
		cause.Text += ", and got one after the rollback"
	}
	if t.Restarted {
		cause = problem.Notef(problem.RolledBack, "this node restarted before the API server had confirmed %s", tried)
	}
	runs := "nothing runs instead"
	switch previous := r.before(); {
	case r.rest():
		runs = "what was confirmed before stays attached"
	case previous != nil && previous.Confined():
		runs = fmt.Sprintf("generation %d runs again where it was confirmed", previous.Generation())
	case previous != nil:
		runs = fmt.Sprintf("generation %d runs again", previous.Generation())
	}
	next := fmt.Sprintf("this node tries %s again when the API server responds", tried)
	if t.State == refused {
		next = fmt.Sprintf("this node doesn't try %s again until the object or its annotation bpfman.io/restartedAt changes", tried)
	}
	return fmt.Sprintf("%s: %s; %s", cause.Text, runs, next)
}

// Trying reports whether a version is attached, and isn't confirmed yet.
func (c *Changes) Trying(key program.Key, v Version) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.records[key].Tried
	return t != nil && t.State == trying && t.Version.id() == v.id()
}

// Confirmed returns the version of an object that runs on this node, or nil if that isn't known, or isn't confirmed yet.
func (c *Changes) Confirmed(key program.Key, uid types.UID) *Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	running := c.records[key].running()
	if running == nil || running.Object.Metadata.UID != uid {
		return nil
	}
	return running
}

// Image returns what the reference of a version was resolved to when it was confirmed. It is empty if that isn't known.
func (c *Changes) Image(key program.Key, v Version) bytecode.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, confirmed := range c.records[key].confirmed() {
		if confirmed.id() == v.id() {
			return confirmed.Image
		}
	}
	return bytecode.Image{}
}

// Keys returns the keys of the objects that have a record.
func (c *Changes) Keys() []program.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.records))
}

// Unconfirmed returns the number of versions that are being tried.
func (c *Changes) Unconfirmed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for _, r := range c.records {
		if r.Tried != nil && r.Tried.State == trying {
			count++
		}
	}
	return count
}

// Images returns the images of confirmed versions, whose objects have to stay on the node.
func (c *Changes) Images() []bytecode.Use {
	c.mu.Lock()
	defer c.mu.Unlock()
	var images []bytecode.Use
	for key, r := range c.records {
		for _, confirmed := range r.confirmed() {
			if confirmed.Image.Digest != "" {
				images = append(images, bytecode.Use{Image: confirmed.Image, Namespace: key.Namespace})
			}
		}
	}
	return images
}

// put stores a record. The caller holds mu.
func (c *Changes) put(key program.Key, r record) error {
	if r == (record{}) {
		return c.forget(key)
	}
	if r.Tried != nil {
		next := *r.Tried
		next.Due = max(1, c.Uptime()+time.Until(next.deadline))
		r.Tried = &next
	}
	c.records[key] = r
	return c.write(key)
}
