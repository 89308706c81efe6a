// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// memory contains the reports as they were last written or read.
type memory struct {
	mu     sync.Mutex
	owners map[program.Key]map[string]entry
	// taken contains the names of owners' reports that other reports have: of other owners, or of other nodes.
	taken map[program.Key]map[string]bool
	// changes is how often entries have changed.
	changes moment
	// listed contains whether all reports have been listed, by whether they are
	// namespaced.
	listed map[bool]bool
}

// A moment orders changes of the record and reads of the API server. A read is newer than everything that was recorded
// before it began, no matter what the resource versions say: after etcd was restored from a backup, they are lower. 0 means that a
// read is of unknown age, as those from the API server's memory are.
type moment int

// entry is the known state of one report.
type entry struct {
	// recorded is when the entry changed.
	recorded moment
	// object is the report as it was last written or read, or nil.
	object v1alpha1.ProgramObject
	// doubtful means that the report could differ, because a write failed with an unknown
	// outcome.
	doubtful bool
}

// begin returns the moment of a read that begins now.
func (m *memory) begin() moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	return m.changes
}

// put records a report that was written, or whose read began at a moment, unless what is recorded is newer. It reports
// whether the record has changed.
func (m *memory) put(key program.Key, o v1alpha1.ProgramObject, began moment) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.owners[key][o.GetName()]
	if old.object != nil && old.recorded >= began && older(o, old.object) {
		return false
	}
	o.SetManagedFields(nil)
	m.set(key, o.GetName(), entry{object: o})
	return old.object == nil || old.object.GetUID() != o.GetUID() || old.object.GetResourceVersion() != o.GetResourceVersion()
}

func (m *memory) set(key program.Key, name string, to entry) {
	m.changes++
	to.recorded = m.changes
	if m.owners == nil {
		m.owners = map[program.Key]map[string]entry{}
	}
	if m.owners[key] == nil {
		m.owners[key] = map[string]entry{}
	}
	m.owners[key][name] = to
}

// drop removes the record of a report that was deleted, or that a read that began at a moment didn't find, unless it was
// written since. It reports whether the report was recorded.
func (m *memory) drop(key program.Key, name string, began moment) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.owners[key][name]
	if old.recorded >= began {
		return false
	}
	m.forget(key, name)
	return old.object != nil
}

func (m *memory) forget(key program.Key, name string) {
	delete(m.owners[key], name)
	if len(m.owners[key]) == 0 {
		delete(m.owners, key)
	}
}

// take records that another report has the name of an owner's report.
func (m *memory) take(key program.Key, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken == nil {
		m.taken = map[program.Key]map[string]bool{}
	}
	if m.taken[key] == nil {
		m.taken[key] = map[string]bool{}
	}
	m.taken[key][name] = true
}

func (m *memory) isTaken(key program.Key, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken[key][name]
}

// giveBack forgets which names of an owner's reports others have.
func (m *memory) giveBack(key program.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.taken, key)
}

// has reports whether an owner's report is recorded.
func (m *memory) has(key program.Key, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners[key][name].object != nil
}

// doubt marks a report as one that must be read before it is used.
func (m *memory) doubt(key program.Key, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(key, name, entry{object: m.owners[key][name].object, doubtful: true})
}

// A doubt is the reason why a report must be read.
type doubt int

const (
	// uncertain means that the report could differ from its record.
	uncertain doubt = iota
	// deleting means that a finalizer delays the report's deletion. The agent doesn't watch it.
	deleting
)

// doubted returns an owner's reports that must be read, by name.
func (m *memory) doubted(key program.Key) map[string]doubt {
	m.mu.Lock()
	defer m.mu.Unlock()
	doubted := map[string]doubt{}
	for name, known := range m.owners[key] {
		switch {
		case known.doubtful:
			doubted[name] = uncertain
		case known.object != nil && known.object.GetDeletionTimestamp() != nil:
			doubted[name] = deleting
		}
	}
	return doubted
}

// of returns an owner's recorded reports by name.
func (m *memory) of(key program.Key) map[string]v1alpha1.ProgramObject {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]v1alpha1.ProgramObject{}
	for name, known := range m.owners[key] {
		if known.object != nil {
			out[name] = known.object
		}
	}
	return out
}

// all returns the recorded reports of the wanted owners.
func (m *memory) all(wanted func(program.Key) bool) []v1alpha1.ProgramObject {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []v1alpha1.ProgramObject
	for key, byName := range m.owners {
		for _, known := range byName {
			if known.object != nil && wanted(key) {
				out = append(out, known.object)
			}
		}
	}
	return out
}

func (m *memory) isListed(namespaced bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed[namespaced]
}

// replace records a list of all reports of a scope at a resource version, which began at a moment. It returns the owners of
// reports that differ from the record. Reports that were written after that keep their records.
func (m *memory) replace(namespaced bool, list []v1alpha1.ProgramObject, version string, began moment) []program.Key {
	changed := map[program.Key]bool{}
	there := map[program.Key]map[string]bool{}
	for _, o := range list {
		key, ok := ownerKey(o)
		if !ok {
			continue
		}
		if there[key] == nil {
			there[key] = map[string]bool{}
		}
		there[key][o.GetName()] = true
		if m.put(key, o, began) {
			changed[key] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, byName := range m.owners {
		if (key.Namespace != "") != namespaced {
			continue
		}
		for name, known := range byName {
			if !there[key][name] && known.object != nil && (known.recorded < began || !newer(known.object, version)) {
				changed[key] = true
				m.forget(key, name)
			}
		}
	}
	if m.listed == nil {
		m.listed = map[bool]bool{}
	}
	m.listed[namespaced] = true
	return slices.Collect(maps.Keys(changed))
}

// older reports whether a is an older version of an object than b. Since Kubernetes 1.35,
// resource versions of an object are guaranteed to be comparable as numbers. Before, they
// are with etcd.
func older(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

func newer(o metav1.Object, version string) bool {
	order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), version)
	return err == nil && order > 0
}

// ownerKey returns the key of the owner of a report, and false if it has none.
func ownerKey(o metav1.Object) (program.Key, bool) {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return program.Key{}, false
	}
	return program.Key{Kind: ref.Kind, Namespace: o.GetNamespace(), Name: ref.Name}, true
}
