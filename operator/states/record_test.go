// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package states

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

func encoded(tb testing.TB, o any) []byte {
	tb.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// state returns a State as the operator writes it.
func state(w *wanted, was *record, at time.Time) *v1alpha1.ClusterBpfApplicationState {
	return &v1alpha1.ClusterBpfApplicationState{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.name, UID: "u", ResourceVersion: "7", Labels: w.labels,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ClusterBpfApplication", Name: "app", UID: w.owner, Controller: new(true)}},
		},
		Status: w.after(was, metav1.NewTime(at)),
	}
}

func decoded(tb testing.TB, o any) *record {
	tb.Helper()
	r, _, err := decode(encoded(tb, o))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func wantedOf(of ...*reports.Report) *wanted {
	application := &Application{Name: "app", UID: uid, Programs: []Program{{Name: "pass", Type: v1alpha1.ApplicationXDP}}}
	return &wanted{name: "app-1", owner: uid, labels: labelsOf(application, "n"), status: statusOf(application, "n", of)}
}

// A State that was written is recognized, even after a restart of the operator, and so is each change of it.
func TestRecord(t *testing.T) {
	began := time.Unix(1_790_000_000, 0).UTC()
	eth0 := &v1alpha1.BpfProgramHook{Interface: "eth0", Priority: new(int32(0)), ProceedOn: []string{"pass"}}
	want := wantedOf(reported("a", "pass", "xdp", attached(linked(1, "eth0", eth0))))
	written := state(want, nil, began)
	r := decoded(t, written)
	if r.sum != want.sum() || r.key != (Key{types.NamespacedName{Name: "app"}, "n"}) || r.updateCount != 1 || r.condition != "Success" || !r.since.Time.Equal(began) {
		t.Errorf("%+v", r)
	}
	labelled := written.DeepCopy()
	labelled.Labels["a"] = "b"
	if other := decoded(t, labelled); other.sum != want.sum() || other.metadata != want.metadata().sum() {
		t.Error("a label of another client is taken for a change")
	}
	labelled.OwnerReferences = nil
	if decoded(t, labelled).metadata == want.metadata().sum() {
		t.Error("a lacking owner isn't noticed")
	}
	for name, change := range map[string]func(*v1alpha1.ClusterBpfApplicationState){
		"label": func(s *v1alpha1.ClusterBpfApplicationState) {
			s.Labels = map[string]string{v1alpha1.LabelHostname: "other"}
		},
		"owner":     func(s *v1alpha1.ClusterBpfApplicationState) { s.OwnerReferences[0].UID = "other" },
		"no owner":  func(s *v1alpha1.ClusterBpfApplicationState) { s.OwnerReferences = nil },
		"link":      func(s *v1alpha1.ClusterBpfApplicationState) { s.Status.Programs[0].XDP.Links[0].LinkID = nil },
		"condition": func(s *v1alpha1.ClusterBpfApplicationState) { s.Status.Conditions[0].Message = "" },
		"conditions": func(s *v1alpha1.ClusterBpfApplicationState) {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: "Other"})
		},
	} {
		edited := written.DeepCopy()
		change(edited)
		if decoded(t, edited).sum == want.sum() {
			t.Errorf("a change of %s isn't noticed", name)
		}
	}

	// The time is that of the last transition.
	later := began.Add(time.Hour)
	again := state(want, r, later)
	if again.Status.UpdateCount != 2 || !again.Status.Conditions[0].LastTransitionTime.Time.Equal(began) {
		t.Errorf("%+v", again.Status)
	}
	failed := state(wantedOf(reported("a", "pass", "xdp", fails(v1alpha1.BpfProgCondNotLoaded, 0, "no"))), r, later)
	if failed.Status.UpdateCount != 2 || !failed.Status.Conditions[0].LastTransitionTime.Time.Equal(later) {
		t.Errorf("%+v", failed.Status)
	}
}

// A State of upstream's agent belongs to its application too, even without an owner, or with a status that can't be
// decoded.
func TestRecordOfUpstreams(t *testing.T) {
	for _, text := range []string{
		`{"metadata":{"name":"app-0a1b2c3d","uid":"u","labels":{"bpfman.io/ownedByProgram":"app","kubernetes.io/hostname":"n"},"finalizers":["bpfman.io.clbpfapplicationcontroller/finalizer"]}}`,
		`{"metadata":{"name":"app-0a1b2c3d","uid":"u","labels":{"bpfman.io/ownedByProgram":"app","kubernetes.io/hostname":"n"},"finalizers":["bpfman.io.clbpfapplicationcontroller/finalizer"]},"status":{"updateCount":"x"}}`,
	} {
		r, m, err := decode([]byte(text))
		if err != nil || r.key != (Key{types.NamespacedName{Name: "app"}, "n"}) || len(r.finalizers) != 1 || r.sum == wantedOf().sum() || m.Name != "app-0a1b2c3d" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if r, _, err := decode([]byte(`{"metadata":{"name":7}}`)); err == nil {
		t.Errorf("decoded as %+v", r)
	}
}

// The records are those of the API server, by key.
func TestRecords(t *testing.T) {
	changed := map[Key]int{}
	s := &records{changed: func(key Key) { changed[key]++ }}
	s.clear()
	key := func(node string) Key { return Key{types.NamespacedName{Name: "app"}, node} }
	of := func(uid types.UID, node string) *record { return &record{uid: uid, name: string(uid), key: key(node)} }
	expect := func(want map[Key]int, there map[Key]int) {
		t.Helper()
		if !maps.Equal(changed, want) {
			t.Errorf("changed: %v, want %v", changed, want)
		}
		clear(changed)
		for _, node := range []string{"m", "n"} {
			if got, _ := s.of(key(node)); len(got) != there[key(node)] {
				t.Errorf("%s has %v", node, got)
			}
		}
	}
	if _, listed := s.of(key("n")); listed || s.hasListed() {
		t.Error("listed before it was")
	}
	if err := s.Replace([]any{of("1", "n"), of("2", "n")}, ""); err != nil || !s.hasListed() {
		t.Error(err)
	}
	expect(map[Key]int{key("n"): 2}, map[Key]int{key("n"): 2})
	s.put("1", of("1", "m")) // somebody has changed the label
	expect(map[Key]int{key("n"): 1, key("m"): 1}, map[Key]int{key("n"): 1, key("m"): 1})
	s.put("2", nil)
	s.put("3", nil)
	expect(map[Key]int{key("n"): 1}, map[Key]int{key("m"): 1})
	if err := s.Replace([]any{of("4", "n")}, ""); err != nil {
		t.Error(err)
	}
	expect(map[Key]int{key("m"): 1, key("n"): 1}, map[Key]int{key("n"): 1})
	if s.Add("text") == nil || s.Delete("text") == nil || s.Replace([]any{"text"}, "") == nil {
		t.Error("a text was taken for a State")
	}
	// What was written is known until the State goes.
	s.written("4", sum{1})
	if !s.wrote("4", sum{1}) || s.wrote("4", sum{2}) || s.wrote("5", sum{1}) {
		t.Error("it doesn't know what it wrote")
	}
	s.put("4", nil)
	if s.wrote("4", sum{1}) {
		t.Error("it remembers a State that is gone")
	}
	expect(map[Key]int{key("n"): 1}, nil)
	s.clear()
	expect(map[Key]int{}, nil)
}
