// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"cmp"
	"errors"
	"time"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/recent"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// The first and the longest time after which a Load is tried again that can't succeed
	// unless something changes. Each one costs space in the node's /run, because the daemon
	// of v0.6.0 stores the object before it loads it.
	firstReload = time.Second
	lastReload  = time.Hour
	// maxRefusals is the maximum number of refused Loads that are known of each namespace, and forgetAfter the time after
	// which those of a namespace without new ones are forgotten.
	maxRefusals, forgetAfter = 1024, 2 * lastReload
)

// refusals delays Loads that the daemon or the kernel has refused for good, or after which
// programs don't share maps as they should, more after each one.
type refusals struct {
	kept *recent.Values[attempt, refusedLoad]
	slow *slowLoads
}

func newRefusals() refusals {
	return refusals{recent.New[attempt, refusedLoad](maxRefusals, forgetAfter), newSlowLoads()}
}

// attempt identifies a Load. When one of these changes, the Load is tried immediately.
type attempt struct {
	owner      program.Key
	uid        string
	generation int64
	replaces   bool // the annotations, which don't change the generation
	restarted  string
	load       string // metadata bpfman.io/load
	manifest   string
	mapOwner   uint32
}

type refusedLoad struct {
	err   error
	delay time.Duration
	until time.Time
}

// try calls load, unless it was refused recently. In that case, it returns the same
// error.
func (r *refusals) try(owner program.Owner, request *gobpfman.LoadRequest, load func() error) error {
	id := attempt{
		owner: owner.Key, uid: request.GetUuid(), generation: owner.Generation, replaces: owner.ReplacePinnedMaps, restarted: owner.RestartedAt,
		load:     request.GetMetadata()[v1alpha1.MetadataLoad],
		manifest: request.GetMetadata()[v1alpha1.MetadataManifest], mapOwner: request.GetMapOwnerId(),
	}
	last := r.kept.Get(id.owner.Namespace, id)
	if time.Now().Before(last.until) {
		return last.err
	}
	err := r.slow.try(id, load)
	failed, unshared := (*daemon.Error)(nil), (*unsharedError)(nil)
	if !errors.As(err, &unshared) && (!errors.As(err, &failed) || !failed.Permanent()) {
		r.kept.Remove(id.owner.Namespace, id)
		return err
	}
	delay := min(cmp.Or(2*last.delay, firstReload), lastReload)
	r.kept.Put(id.owner.Namespace, id, refusedLoad{err: err, delay: delay, until: time.Now().Add(delay)})
	return err
}

// Retry has refused Loads tried again immediately, for example because the daemon has been replaced. It doesn't apply to slow
// ones, after which the daemon is restarted each time.
func (l *Loader) Retry() { l.refusals.kept.Clear() }
