// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// linksPause is the minimum time between two writes of an owner's reports if only links have changed. A report has all links of
// its program: with a write for each, the bytes that are written while a node fills would grow with the square of its pods. The
// links that a crash within this time leaves without a record are attached again. An agent that stops reports them: see
// [Reports.EndPauses].
const linksPause = time.Second

// PausedError means that the reports of an owner aren't written yet, because only links have changed since the last write. They
// are to be written after a time.
type PausedError struct{ Left time.Duration }

func (e *PausedError) Error() string { return fmt.Sprintf("links are reported in %s", e.Left) }

// pace contains when the reports of owners were last written. The zero value is ready to use.
type pace struct {
	mu   sync.Mutex
	last map[program.Key]time.Time
	off  bool
}

// EndPauses has reports in which only links have changed written without a pause from now on, because the agent stops.
func (r *Reports) EndPauses() {
	r.pace.mu.Lock()
	defer r.pace.mu.Unlock()
	r.pace.off = true
}

// written records a write of an owner's reports.
func (p *pace) written(key program.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[program.Key]time.Time{}
	}
	p.last[key] = time.Now()
}

func (p *pace) forget(key program.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, key)
}

// left returns how long to wait before the links of an owner are written.
func (p *pace) left(key program.Key) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.last[key]
	if !known || p.off {
		return 0
	}
	return max(0, linksPause-time.Since(last))
}

// onlyLinks reports whether wanted reports differ from the existing ones, by name, in nothing but their links. What users wait
// for, such as a failure or its end, changes the conditions.
func onlyLinks(existing map[string]v1alpha1.ProgramObject, wanted []v1alpha1.ProgramObject) bool {
	if len(existing) != len(wanted) {
		return false
	}
	differ := false
	for _, object := range wanted {
		old := existing[object.GetName()]
		if old == nil || !sameContent(old, object) {
			return false
		}
		status, before := object.GetStatus().DeepCopy(), old.GetStatus().DeepCopy()
		keep(status, before)
		differ = differ || !equality.Semantic.DeepEqual(status.Links, before.Links)
		status.Links, before.Links = nil, nil
		if !equality.Semantic.DeepEqual(status, before) {
			return false
		}
	}
	return differ
}
