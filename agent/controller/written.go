// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// lastWritten holds what was written and the cache doesn't show yet, so that a
// pass never acts on older state than it made itself.
type lastWritten struct {
	mu      sync.Mutex
	objects map[program.Key]map[string]v1alpha1.ProgramObject
}

func (l *lastWritten) put(key program.Key, o v1alpha1.ProgramObject) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects == nil {
		l.objects = map[program.Key]map[string]v1alpha1.ProgramObject{}
	}
	if l.objects[key] == nil {
		l.objects[key] = map[string]v1alpha1.ProgramObject{}
	}
	l.objects[key][o.GetName()] = copyOf(o)
}

func (l *lastWritten) of(key program.Key) map[string]v1alpha1.ProgramObject {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]v1alpha1.ProgramObject{}
	maps.Copy(out, l.objects[key])
	return out
}

// seen tells whether the cache's object is no news: one that was written here.
// The newest needn't be held any longer.
func (l *lastWritten) seen(key program.Key, o v1alpha1.ProgramObject) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.objects[key][o.GetName()]
	if !ok {
		return false
	}
	if older(o, w) {
		return true
	}
	l.forget(key, o.GetName())
	return o.GetResourceVersion() == w.GetResourceVersion()
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
