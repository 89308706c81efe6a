// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// lastWritten holds what was written and the cache doesn't show yet, so that a
// pass never acts on older state than it made itself, and tells its own writes
// from those of others. The watch may show a write before its answer is there.
type lastWritten struct {
	mu      sync.Mutex
	objects map[program.Key]map[string]*written
}

// written is what is known of one object that is written.
type written struct {
	// last is the object as it was last written, nil before that.
	last v1alpha1.ProgramObject
	// writing is true while a write waits for its answer, and shown is then the
	// newest version that the watch showed meanwhile.
	writing bool
	shown   client.Object
}

// write sends an object, which send changes to what the API server answers, and
// keeps it. It tells whether others have changed the object since.
func (l *lastWritten) write(key program.Key, o v1alpha1.ProgramObject, send func() error) (changed bool, err error) {
	l.mu.Lock()
	if l.objects == nil {
		l.objects = map[program.Key]map[string]*written{}
	}
	if l.objects[key] == nil {
		l.objects[key] = map[string]*written{}
	}
	w := l.objects[key][o.GetName()]
	if w == nil {
		w = &written{}
		l.objects[key][o.GetName()] = w
	}
	w.writing = true
	l.mu.Unlock()

	err = send()

	l.mu.Lock()
	defer l.mu.Unlock()
	shown := w.shown
	w.writing, w.shown = false, nil
	switch {
	case l.objects[key][o.GetName()] != w:
		// Deleted meanwhile, which is work of its own.
	case err != nil:
		// Whoever sends it again looks at the object first.
		if w.last == nil || shown != nil && !older(shown, w.last) {
			l.forget(key, o.GetName())
		}
	case shown != nil && !older(shown, o):
		l.forget(key, o.GetName())
		return shown.GetResourceVersion() != o.GetResourceVersion(), nil
	default:
		w.last = copyOf(o)
	}
	return false, err
}

func (l *lastWritten) of(key program.Key) map[string]v1alpha1.ProgramObject {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]v1alpha1.ProgramObject{}
	for name, w := range l.objects[key] {
		if w.last != nil {
			out[name] = w.last
		}
	}
	return out
}

// seen tells whether what the watch shows is no news: an object as it was
// written here, or one that is being written, of which write tells. The newest
// needn't be held any longer.
func (l *lastWritten) seen(key program.Key, o v1alpha1.ProgramObject) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.objects[key][o.GetName()]
	switch {
	case !ok:
		return false
	case w.writing:
		w.shown = o
		return true
	case older(o, w.last):
		return true
	}
	l.forget(key, o.GetName())
	return o.GetResourceVersion() == w.last.GetResourceVersion()
}

func (l *lastWritten) drop(key program.Key, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(key, name)
}

func (l *lastWritten) forget(key program.Key, name string) {
	delete(l.objects[key], name)
	if len(l.objects[key]) == 0 {
		delete(l.objects, key)
	}
}

// older tells whether a is an older state of an object than b. The versions of
// one object compare as numbers since Kubernetes 1.35, and do with etcd before.
func older(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}
