// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package states

import (
	"crypto/sha256"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/liststream"
)

// Key identifies an application and a node, of which it has the value of the label.
type Key struct {
	types.NamespacedName

	Node string
}

// record is what is kept of a State, of which a large cluster has tens of thousands. It is immutable.
type record struct {
	name, version string
	uid           types.UID
	key           Key
	deleting      bool
	finalizers    []string
	// sum is a hash of everything that the operator writes, without updateCount and times.
	sum sum
	// metadata is the sum of the labels and the owner only.
	metadata    sum
	updateCount int64
	// condition is the type of the condition, and since its time.
	condition string
	since     metav1.Time
}

type sum [sha256.Size]byte

// content is everything that the operator writes.
type content struct {
	// Labels are those that the operator writes. Others belong to other clients.
	Labels map[string]string
	Owner  types.UID
	Status v1alpha1.ApplicationStateStatus
}

// ownLabels returns those labels of a State that the operator writes.
func ownLabels(all map[string]string) map[string]string {
	own := map[string]string{}
	for _, key := range []string{v1alpha1.LabelOwnedByProgram, v1alpha1.LabelHostname} {
		if value, there := all[key]; there {
			own[key] = value
		}
	}
	return own
}

func (c content) sum() sum {
	c.Status.UpdateCount = 0
	c.Status.Conditions = slices.Clone(c.Status.Conditions)
	for i := range c.Status.Conditions {
		c.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	encoded, _ := stdjson.Marshal(c) //nolint:errchkjson // it has only texts, numbers, and times
	return sha256.Sum256(encoded)
}

// decode returns the record of a State in JSON.
func decode(object jsontext.Value) (*record, liststream.Metadata, error) {
	var read struct {
		Metadata metav1.ObjectMeta               `json:"metadata"`
		Status   v1alpha1.ApplicationStateStatus `json:"status"`
	}
	if err := stdjson.Unmarshal(object, &read); err != nil {
		// Its status was written with another schema, so its sum is that of no status.
		var rest struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		if err := stdjson.Unmarshal(object, &rest); err != nil {
			return nil, liststream.Metadata{}, fmt.Errorf("decode the metadata of a State: %w", err)
		}
		read.Metadata, read.Status = rest.Metadata, v1alpha1.ApplicationStateStatus{}
	}
	m := &read.Metadata
	r := &record{
		name: m.Name, version: m.ResourceVersion, uid: m.UID, deleting: m.DeletionTimestamp != nil, finalizers: m.Finalizers, updateCount: read.Status.UpdateCount,
		key: Key{types.NamespacedName{Namespace: m.Namespace, Name: m.Labels[v1alpha1.LabelOwnedByProgram]}, m.Labels[v1alpha1.LabelHostname]},
	}
	written := content{Labels: ownLabels(m.Labels)}
	if owner := metav1.GetControllerOf(m); owner != nil {
		r.key.Name, written.Owner = owner.Name, owner.UID
	}
	r.metadata = written.sum()
	written.Status = read.Status
	r.sum = written.sum()
	if len(read.Status.Conditions) > 0 {
		r.condition, r.since = read.Status.Conditions[0].Type, read.Status.Conditions[0].LastTransitionTime
	}
	return r, liststream.Metadata{Name: m.Name, Namespace: m.Namespace, ResourceVersion: m.ResourceVersion, Annotations: m.Annotations}, nil
}

// GetObjectKind implements [runtime.Object], so that a reflector accepts records as items of a list.
func (r *record) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (r *record) DeepCopyObject() runtime.Object { return r }

// records contains the records of all States of a kind. It implements toolscache.ReflectorStore.
type records struct {
	// changed is called with the key of each State that changes. It must not block.
	changed func(Key)

	mu     sync.Mutex
	byUID  map[types.UID]*record
	byKey  map[Key][]*record
	listed bool
	// sums are those that this process has written, of States that exist.
	sums map[types.UID]sum
}

// written records what was written.
func (s *records) written(uid types.UID, written sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sums[uid] = written
}

// wrote reports whether a sum is the last one that was written.
func (s *records) wrote(uid types.UID, written sum) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, there := s.sums[uid]
	return there && last == written
}

// clear forgets all records.
func (s *records) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byUID, s.byKey, s.listed, s.sums = map[types.UID]*record{}, map[Key][]*record{}, false, map[types.UID]sum{}
}

// of returns the records with a key, and false if not all States have been listed.
func (s *records) of(key Key) (of []*record, listed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.byKey[key]), s.listed
}

func (s *records) hasListed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}

// put replaces the record with the UID. A nil record removes it.
func (s *records) put(uid types.UID, r *record) {
	s.mu.Lock()
	var keys []Key
	if old := s.byUID[uid]; old != nil {
		delete(s.byUID, uid)
		if s.byKey[old.key] = slices.DeleteFunc(s.byKey[old.key], func(r *record) bool { return r == old }); len(s.byKey[old.key]) == 0 {
			delete(s.byKey, old.key)
		}
		keys = append(keys, old.key)
	}
	if r == nil {
		delete(s.sums, uid)
	} else {
		s.byUID[uid] = r
		s.byKey[r.key] = append(s.byKey[r.key], r)
		keys = append(keys, r.key)
	}
	s.mu.Unlock()
	for _, key := range keys {
		s.changed(key)
	}
}

// Add implements toolscache.ReflectorStore.
func (s *records) Add(of any) error { return s.Update(of) }

// Update implements toolscache.ReflectorStore.
func (s *records) Update(of any) error {
	r, err := liststream.Record[*record](of)
	if err != nil {
		return err
	}
	s.put(r.uid, r)
	return nil
}

// Delete implements toolscache.ReflectorStore.
func (s *records) Delete(of any) error {
	r, err := liststream.Record[*record](of)
	if err != nil {
		return err
	}
	s.put(r.uid, nil)
	return nil
}

// Replace implements toolscache.ReflectorStore.
func (s *records) Replace(items []any, _ string) error {
	there := map[types.UID]*record{}
	for _, item := range items {
		r, err := liststream.Record[*record](item)
		if err != nil {
			return err
		}
		there[r.uid] = r
	}
	s.mu.Lock()
	var gone []types.UID
	for uid := range s.byUID {
		if there[uid] == nil {
			gone = append(gone, uid)
		}
	}
	s.mu.Unlock()
	for _, uid := range gone {
		s.put(uid, nil)
	}
	for uid, r := range there {
		s.put(uid, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = true
	return nil
}

// Resync implements toolscache.ReflectorStore. There is no periodic resync.
func (s *records) Resync() error { return nil }

// wanted is the State that an application is to have on a node.
type wanted struct {
	name   string
	owner  types.UID
	status v1alpha1.ApplicationStateStatus
	labels map[string]string
}

func (w *wanted) sum() sum { return content{w.labels, w.owner, w.status}.sum() }

// metadata returns the content without the status.
func (w *wanted) metadata() content { return content{Labels: w.labels, Owner: w.owner} }

// after returns the status to write over that of a record, which can be nil.
func (w *wanted) after(was *record, now metav1.Time) v1alpha1.ApplicationStateStatus {
	status := *w.status.DeepCopy()
	if was == nil {
		was = &record{}
	}
	status.UpdateCount = was.updateCount + 1
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = now
		if was.condition == status.Conditions[i].Type && !was.since.IsZero() {
			status.Conditions[i].LastTransitionTime = was.since
		}
	}
	return status
}
