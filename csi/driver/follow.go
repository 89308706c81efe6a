// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"context"
	"errors"
	"log/slog"
	stdmaps "maps"
	"slices"
	"sync"
	"time"

	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/program"
)

const (
	// followReuse is the maximum age of the daemon's list of programs when the kubelet
	// publishes a live volume again, which it does about once a minute for each volume.
	followReuse = 10 * time.Second
	// settle is how long to wait for more changes after the first one.
	settle = 200 * time.Millisecond
	// followTimeout bounds one update of all volumes, which takes less than a second. If the daemon doesn't answer, the
	// update would wait for it once for each object. The kubelet publishes the remaining volumes again within about a
	// minute.
	followTimeout = 30 * time.Second
)

// Follow updates the live volumes after each change, so that they show the maps of the
// programs that are loaded now. It returns when the context ends. The kubelet's calls
// have the same effect, but later. They also inform a plugin that has just started of
// its volumes.
func (d *Driver) Follow(ctx context.Context, changes <-chan struct{}) {
	// missed are the volumes that requests worked on. Such a request can have looked up the
	// program before the change.
	var missed []publication
	for {
		var again <-chan time.Time
		if len(missed) > 0 {
			again = time.After(settle)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
			missed = d.node.followEach(ctx, missed)
			continue
		case <-changes:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		// Later changes are for the next round.
		select {
		case <-changes:
		default:
		}
		missed = d.node.followEach(ctx, d.node.live.all())
	}
}

// followEach updates volumes, and returns those that a request works on.
func (n *node) followEach(ctx context.Context, volumes []publication) (busy []publication) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	since := time.Now()
	for _, p := range volumes {
		if ctx.Err() != nil {
			return nil // see followTimeout
		}
		release, ok := n.busy.acquireFree(p.target)
		if !ok {
			busy = append(busy, p)
			continue
		}
		state, err := n.Volumes.Read(p.target)
		if err == nil && state.Complete(p.maps, p.access) {
			n.follow(ctx, p, state, since, n.publicationLog(p))
		}
		release()
	}
	return busy
}

// follow updates a complete volume with this state, so that it shows the maps of the program that is
// loaded now. If this fails, the volume keeps its maps, and its condition contains the
// reason. The caller has acquired the target.
func (n *node) follow(ctx context.Context, p publication, state maps.State, since time.Time, log *slog.Logger) {
	if p.access.ReadOnly && !state.ReadOnly {
		// A plugin that was killed while it updated the volume left it writable. The next update can lack the program, or the
		// permission.
		if err := n.Volumes.Protect(p.target); err != nil {
			log.Warn("Failed to make the volume read-only again; retrying", "error", err)
		} else {
			state.ReadOnly = true
		}
	}
	if !p.follow {
		n.remarks.forget(p.target) // the volume is complete
		return
	}
	err := n.update(ctx, p, state, since, log)
	switch {
	case err == nil:
		n.remarks.forget(p.target)
	case errors.Is(err, program.ErrDaemon), ctx.Err() != nil:
		// The volume isn't known to have a problem.
		log.Debug("Failed to compare the volume with its program", "error", err)
	default:
		log.Log(ctx, n.levelOf(p.target, err), "Failed to update the volume; it keeps its maps", "error", err)
	}
}

func (n *node) update(ctx context.Context, p publication, state maps.State, since time.Time, log *slog.Logger) error {
	programs, err := n.Programs.Find(ctx, p.query, since)
	if err != nil {
		return err
	}
	chosen, err := n.Programs.Maps(programs, p.maps)
	if err != nil {
		return err
	}
	if state.Shows(chosen, p.access) {
		return nil
	}
	// Only new maps need the permission, because the existing ones can't be taken back.
	// A read-only volume is writable while it gets new maps, and root in the pod could
	// open them for writing at that moment. The update therefore requires the permission
	// to write.
	if err := n.check(ctx, access.Use{Pod: p.pod, Program: programs[0]}); err != nil {
		return err
	}
	if err := n.Volumes.Publish(p.volume(), chosen, p.access); err != nil {
		return err
	}
	log.Info("Updated the volume with the maps of the reloaded program", "kind", programs[0].Kind, "programID", programs[0].ID, "maps", len(chosen))
	return nil
}

// live contains the volumes that are known to be published, or that a request publishes, by their
// targets.
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
	return slices.Collect(stdmaps.Values(l.volumes))
}

// maxRemarks limits the remarks, because nobody unpublishes a volume that was never
// published. Deleting them only repeats a line in the log.
const maxRemarks = 4096

// remarks contains the last problem of each volume that isn't as requested, by its
// target.
type remarks struct {
	mu    sync.Mutex
	texts map[string]string
}

// note stores a remark, and reports whether it is new.
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
