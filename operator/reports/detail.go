// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reports

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/liststream"
)

// MaxLinks is the maximum number of links in a [Detail], and MaxLinksOfTenants that of an object in a namespace. Whoever may
// write one decides how many links its reports have, and the operator of the whole cluster must not run out of memory. It is
// more than the pods that a node usually has.
const (
	MaxLinks          = 2048
	MaxLinksOfTenants = 256
)

// Detail is the part of a report that only States need: see [Store.KeepDetails]. Reports don't share it, because each
// link has an id of its own.
type Detail struct {
	Function    string                    `json:"function"`
	ProgramType string                    `json:"programtype"`
	Links       []v1alpha1.BpfProgramLink `json:"links,omitzero"`
	// Left is the number of further links.
	Left int `json:"left,omitzero"`
}

// Detail returns the detail, and false if it isn't kept.
func (s State) Detail() (d Detail, kept bool) {
	err := json.Unmarshal([]byte(s.detail), &d, liststream.Lax)
	return d, err == nil
}

// WithDetail returns the state with a detail. Of more than most links, it keeps those that failed, and the first others.
func (s State) WithDetail(d Detail, most int) State {
	if more := len(d.Links) - most; more > 0 {
		slices.SortStableFunc(d.Links, func(a, b v1alpha1.BpfProgramLink) int { return cmp.Compare(ok(a), ok(b)) })
		d.Links, d.Left = d.Links[:most], d.Left+more
	}
	for i := range d.Links {
		d.Links[i].Digest = ""
	}
	if encoded, err := json.Marshal(d, liststream.Lax); err == nil {
		s.detail = string(encoded)
	}
	return s
}

// ok is 0 for a link that failed, and 1 otherwise.
func ok(l v1alpha1.BpfProgramLink) int {
	if l.Error != "" {
		return 0
	}
	return 1
}

// wish is set once.
type wish struct {
	once sync.Once
	made chan struct{}
}

func (w *wish) make() { w.once.Do(func() { close(w.made) }) }

func (w *wish) isMade() bool {
	select {
	case <-w.made:
		return true
	default:
		return false
	}
}

// KeepDetails makes the store keep the [Detail] of the reports of applications that have States. If there are reports
// without it, the store reads all reports of the scope again, so each of them changes.
func (s *Store) KeepDetails() { s.details.make() }

// detailed reports whether the details of the reports of an owner are wanted.
func (s *Store) detailed(owner Owner) bool {
	return s.details.isMade() && slices.ContainsFunc(s.states, func(k v1alpha1.StateKind) bool {
		return k.Application == owner.Kind && k.Namespaced == (owner.Namespace != "")
	})
}

// untilDetails returns a context for reading reports without details. It ends when details are wanted.
func (p *part) untilDetails(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if slices.ContainsFunc(p.store.states, func(k v1alpha1.StateKind) bool { return k.Namespaced == p.kind.Namespaced }) {
		go func() {
			defer cancel()
			select {
			case <-p.store.details.made:
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}
