// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/program"
)

const (
	// followReuse is how old may be what is known of the daemon's programs when
	// the kubelet publishes a live volume again, about once a minute for each.
	followReuse = 10 * time.Second
	// settle is how long after a first change others are waited for.
	settle = 200 * time.Millisecond
)

// Follow has the live volumes show the maps of the programs that are loaded now,
// after each change, until the context ends. The kubelet's own calls do the same,
// later; and they tell a plugin that has just started of its volumes.
func (d *Driver) Follow(ctx context.Context, changes <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		// What comes from now on is for the next round.
		select {
		case <-changes:
		default:
		}
		d.node.followAll(ctx)
	}
}

func (n *node) followAll(ctx context.Context) {
	since := time.Now()
	for _, p := range n.live.all() {
		release, ok := n.busy.acquireFree(p.target)
		if !ok {
			continue // published or unpublished right now
		}
		complete, err := n.Volumes.Complete(p.target, p.maps, p.access)
		if err == nil && complete {
			n.follow(ctx, p, since, n.publicationLog(p))
		}
		release()
	}
}

// follow has a complete volume show the maps of the program that is loaded now.
// Where that can't be, the volume keeps the maps that it has, and its condition
// says why. The caller has acquired the target.
func (n *node) follow(ctx context.Context, p publication, since time.Time, log *slog.Logger) {
	if !p.follow {
		return
	}
	err := n.update(ctx, p, since, log)
	switch {
	case err == nil:
		n.remarks.forget(p.target)
	case errors.Is(err, program.ErrDaemon), ctx.Err() != nil:
		// Nothing is known to be wrong with the volume.
		log.Debug("Failed to compare the volume with its program", "error", err)
	default:
		log.Log(ctx, n.levelOf(p.target, err), "Failed to update the volume; it keeps its maps", "error", err)
	}
}

func (n *node) update(ctx context.Context, p publication, since time.Time, log *slog.Logger) error {
	programs, err := n.Programs.Find(ctx, p.query, since)
	if err != nil {
		return err
	}
	chosen, err := n.Programs.Maps(programs, p.maps)
	if err != nil {
		return err
	}
	if current, err := n.Volumes.Shows(p.target, chosen, p.access); err != nil || current {
		return err
	}
	// Only what is new needs the right: what the pod has can't be taken back. A volume
	// that is read-only isn't while it gets new maps, and root in the pod could open
	// them for writing at that moment: so it takes the right to write.
	if err := n.check(ctx, access.Use{Pod: p.pod, Program: programs[0]}); err != nil {
		return err
	}
	if err := n.Volumes.Publish(p.volume(), chosen, p.access); err != nil {
		return err
	}
	log.Info("Updated the volume with the maps of the reloaded program", "kind", programs[0].Kind, "programID", programs[0].ID, "maps", len(chosen))
	return nil
}

// live are the volumes known to be published, by their targets.
type live struct {
	mu      sync.Mutex
	volumes map[string]publication
}

func (l *live) add(p publication) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.volumes == nil {
		l.volumes = map[string]publication{}
	}
	l.volumes[p.target] = p
}

func (l *live) remove(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.volumes, target)
}

func (l *live) get(target string) (publication, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.volumes[target]
	return p, ok
}

func (l *live) all() []publication {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.volumes))
}

// maxRemarks bounds what is kept about volumes that were never published, which
// nobody unpublishes. To forget it costs a repeated line in the log.
const maxRemarks = 4096

// remarks are the last words about each volume that isn't as asked for, by its
// target.
type remarks struct {
	mu    sync.Mutex
	texts map[string]string
}

// note keeps a remark and reports whether it is new.
func (r *remarks) note(target, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.texts[target] == text {
		return false
	}
	if r.texts == nil || len(r.texts) >= maxRemarks {
		r.texts = map[string]string{}
	}
	r.texts[target] = text
	return true
}

func (r *remarks) forget(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.texts, target)
}

func (r *remarks) about(target string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.texts[target]
}
