// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package verifierlog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func (s Store) must(t *testing.T, owner Owner) []string {
	t.Helper()
	texts, err := s.Read(owner)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(texts)
	return texts
}

// An owner has one log for each of its Loads, and none of others.
func TestStore(t *testing.T) {
	t.Parallel()
	s := Store{filepath.Join(t.TempDir(), Dir)}
	shop, other := Owner{"BpfNsApplication", "team", "shop"}, Owner{"BpfNsApplication", "team-shop", ""}
	if texts := s.must(t, shop); len(texts) > 0 {
		t.Errorf("before any: %q", texts)
	}
	for _, put := range []struct {
		owner      Owner
		load, text string
	}{{shop, "a", "former"}, {shop, "a", "one"}, {shop, "../../b", "two"}, {other, "a", "other"}} {
		if err := s.Put(put.owner, put.load, put.text); err != nil {
			t.Fatal(err)
		}
	}
	if texts := s.must(t, shop); !slices.Equal(texts, []string{"one", "two"}) {
		t.Errorf("%q", texts)
	}
	for range 2 {
		if err := s.Remove(shop, "a"); err != nil {
			t.Error(err)
		}
	}
	if texts := s.must(t, shop); !slices.Equal(texts, []string{"two"}) {
		t.Errorf("after one was removed: %q", texts)
	}
	if texts := s.must(t, other); !slices.Equal(texts, []string{"other"}) {
		t.Errorf("of another owner: %q", texts)
	}
}

// All logs together have a limit. The oldest ones go, and a longer log of the same Load needs only its difference.
func TestStoreIsBounded(t *testing.T) {
	t.Parallel()
	s := Store{t.TempDir()}
	const quarter = maxSize / 4
	text := strings.Repeat("x", quarter)
	owners := []Owner{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	for n, owner := range owners {
		if err := s.Put(owner, "", text); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(n), 0)
		if err := os.Chtimes(filepath.Join(s.Dir, owner.file("")), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(owners[0], "", text); err != nil { // the oldest one is written again
		t.Fatal(err)
	}
	if err := s.Put(Owner{Name: "e"}, "", text[:quarter/2]); err != nil {
		t.Fatal(err)
	}
	for _, owner := range owners {
		if kept := len(s.must(t, owner)) == 1; kept != (owner.Name != "b") {
			t.Errorf("%s: kept is %t", owner.Name, kept)
		}
	}
	if err := s.Put(owners[0], "", text+text+text+text+"x"); err == nil {
		t.Error("a log above the limit was stored")
	}
	if texts := s.must(t, owners[0]); len(texts) != 1 || texts[0] != text {
		t.Error("the log before one above the limit is gone")
	}
}

// A namespace doesn't displace the logs of others, however many and long its own are.
func TestNamespacesKeepTheirLogs(t *testing.T) {
	t.Parallel()
	s := Store{t.TempDir()}
	small, victim := strings.Repeat("x", maxSize/8), Owner{Namespace: "victim"}
	if err := s.Put(victim, "", small); err != nil {
		t.Fatal(err)
	}
	long := time.Unix(0, 0)
	if err := os.Chtimes(filepath.Join(s.Dir, victim.file("")), long, long); err != nil {
		t.Fatal(err)
	}
	tenant := Owner{Namespace: "tenant", Name: "a"}
	for n := range 10 {
		if err := s.Put(tenant, strings.Repeat("a", n), small); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(Owner{Namespace: "tenant", Name: "long"}, "", strings.Repeat("x", maxSize)); err == nil {
		t.Error("a log is stored that leaves no room for those of others")
	}
	if len(s.must(t, victim)) != 1 {
		t.Error("the log of another namespace is gone")
	}
	if err := s.Put(Owner{Namespace: "new"}, "", small+small); err != nil || len(s.must(t, victim)) != 1 {
		t.Errorf("a namespace without logs stores one: %v", err)
	}
}
