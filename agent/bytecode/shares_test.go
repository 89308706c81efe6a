// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Namespaces have shares of the store: of what is in use, or stored by their objects.
func TestSharesOfNamespaces(t *testing.T) {
	use := func(namespace string, names ...string) (uses []Use) {
		for _, name := range names {
			uses = append(uses, Use{named("quay.io/" + name), namespace})
		}
		return uses
	}
	const full = "the objects of the namespace use 0 MiB in the node's store of bytecode, and would use 0 with this image, of at most 0: " +
		"use fewer or smaller images, or increase bpfman.bytecode.store.size in the ConfigMap bpfman-config"
	// The objects have 10 bytes each.
	for name, c := range map[string]struct {
		limit           int64
		uses            []Use
		namespace, asks string
		want            string
		err             string
	}{
		"of nobody":                       {80, nil, "tenant", "new", "a b c d new", ""},
		"a share is in use":               {80, use("tenant", "a", "b"), "tenant", "new", "a b c d", full},
		"a single large one":              {30, nil, "tenant", "new", "a b c d", full},
		"for another namespace":           {80, use("tenant", "a", "b"), "other", "new", "a b c d new", ""},
		"for a third namespace":           {80, append(use("tenant", "a", "b"), use("other", "c")...), "third", "new", "a b c d new", ""},
		"for a cluster-scoped object":     {50, use("tenant", "a", "b", "c", "d"), "", "new", "a b c d new", ""},
		"a partner uses them too":         {80, append(use("tenant", "a", "b"), use("partner", "a", "b")...), "tenant", "new", "a b c d", full},
		"a partner uses the new one":      {80, append(use("tenant", "a", "b"), Use{Image{Reference: "quay.io/new"}, "partner"}), "tenant", "new", "a b c d", full},
		"a cluster's object uses the new": {80, append(use("tenant", "a", "b"), Use{Image{Reference: "quay.io/new"}, ""}), "tenant", "new", "a b c d new", ""},
		"a cluster's object uses them":    {80, append(use("tenant", "a", "b"), use("", "a", "b")...), "tenant", "new", "a b c d new", ""},
		"cluster's objects use most":      {80, use("", "a", "b", "c", "d"), "tenant", "new", "a b c d new", ""},
		"one that it has":                 {80, use("tenant", "a", "b", "c", "d"), "tenant", "a", "a b c d", ""},
		"others' are removed":             {48, nil, "tenant", "new", "b c d new", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := stocked(t, 1000, "a", "b", "c", "d")
			s.Limit = c.limit
			s.usedBy(&c.uses)
			err := putFor(t, s, c.namespace, c.asks)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasSuffix(err.Error(), c.err)) {
				t.Errorf("%v, want %s", err, c.err)
			}
			if got := has(s, "a", "b", "c", "d", "new"); got != c.want {
				t.Errorf("it has %s, want %s", got, c.want)
			}
		})
	}
}

// In a store that is nearly empty, who uses what doesn't matter, so it isn't asked for. Otherwise, looking who uses an image isn't
// a use of it.
func TestRoomInANearlyEmptyStore(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Limit: 200}
	var uses []Use
	s.usedBy(&uses)
	asked, ask := 0, s.Uses
	s.Uses = func() []Use { asked++; return ask() }
	image, long := named("quay.io/a"), time.Now().Add(-time.Hour)
	reference := s.reference(image.Reference)
	if err := errors.Join(s.Keep(image), os.Chtimes(reference, long, long)); err != nil {
		t.Fatal(err)
	}
	uses = []Use{{Image{Reference: image.Reference}, "tenant"}}
	for n, name := range []string{"a", "b", "c", "d"} {
		if err := putFor(t, s, "tenant", name); err != nil {
			t.Fatal(err)
		}
		if want := max(0, n-2); asked != want { // 40 bytes are 200 less a quarter less 40, in three parts
			t.Errorf("for object %d, it was asked %d times for the uses, want %d", n+1, asked, want)
		}
	}
	if info, err := os.Stat(reference); err != nil || time.Since(info.ModTime()) < time.Minute {
		t.Errorf("it was marked as used: %v", err)
	}
}

// Where who uses what doesn't matter, the limits of namespaces have no effect.
func TestAmpleRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ample := 0
	for range 20_000 {
		s := &Store{Dir: "dir", Limit: 1 + random.Int64N(1000), storedFor: map[string]string{}}
		namespaces := []string{"", "tenant", "other"}
		var all []stored
		var list []Use
		for n := range random.IntN(5) {
			image := named(fmt.Sprint("quay.io/", n))
			base, _ := s.base(image)
			all = append(all, stored{path: base, size: random.Int64N(100)})
			s.storedFor[base] = namespaces[random.IntN(3)]
			for range random.IntN(3) {
				list = append(list, Use{image, namespaces[random.IntN(3)]})
			}
		}
		s.usedBy(&list)
		c := claim{namespace: "tenant", base: "new", size: random.Int64N(100)}
		if !s.hasAmpleRoom(c, all) {
			continue
		}
		ample++
		uses := s.uses()
		kept := s.kept(all, uses)
		own := s.tenancy(c, all, kept, uses)
		if own.refuse() != nil || slices.ContainsFunc(all, own.crowds) {
			t.Fatalf("of %d bytes, %+v has %+v: %+v", s.Limit, c, all, own)
		}
	}
	if ample < 1000 {
		t.Errorf("only %d cases", ample)
	}
}

// usedBy has the store ask for its uses there.
func (s *Store) usedBy(uses *[]Use) {
	s.Uses = func() []Use { return *uses }
	s.Used = func() (images []Image) {
		for _, use := range *uses {
			images = append(images, use.Image)
		}
		return images
	}
}

// However many namespaces store as much as they can, the next one can store something, and cluster-scoped objects have their part.
func TestGreedyNamespacesLeaveRoom(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Limit: 800}
	var uses []Use
	s.usedBy(&uses)
	greedy := func(namespace string) (n int) {
		for ; ; n++ {
			name := fmt.Sprintf("%s/%d", cmp.Or(namespace, "cluster"), n)
			uses = append(uses, Use{named("quay.io/" + name), namespace})
			if putFor(t, s, namespace, name) != nil {
				return n
			}
		}
	}
	var got []int
	for n := range 6 {
		got = append(got, greedy(fmt.Sprint("n", n)))
	}
	if want := []int{20, 13, 9, 6, 4, 2}; !slices.Equal(got, want) {
		t.Errorf("the namespaces stored %d, want %d", got, want)
	}
	if n := greedy(""); n < 20 {
		t.Errorf("cluster-scoped objects stored %d images, instead of a quarter of the store", n)
	}
}

// A tenant whose objects name what a cluster-scoped object has used keeps no more of it than a share, however long that goes on.
func TestNamesOfOthersImagesKeepAShare(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Limit: 80}
	var uses []Use
	s.usedBy(&uses)
	var names []string
	for n := range 20 {
		name := fmt.Sprintf("v%02d", n)
		names = append(names, name)
		uses = slices.DeleteFunc(uses, func(u Use) bool { return u.Namespace == "" })
		uses = append(uses, Use{named("quay.io/" + name), ""}, Use{named("quay.io/" + name), "tenant"})
		if err := putFor(t, s, "", name); err != nil {
			t.Fatalf("an object of the cluster can't use %s: %v", name, err)
		}
	}
	if err := putFor(t, s, "other", "new"); err != nil || s.Size() > 80 {
		t.Errorf("another tenant has no share: %v, with %d bytes", err, s.Size())
	}
	if got := has(s, append(names, "new")...); !strings.HasSuffix(got, "v17 v18 v19 new") {
		t.Errorf("it has %s", got)
	}
}

// Namespaces that name more than what is for all of them keep it evenly.
func TestNamesOfManyNamespaces(t *testing.T) {
	s := stocked(t, 80, "a", "b", "c", "d", "e", "f", "g", "h")
	var uses []Use
	s.usedBy(&uses)
	for n, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		uses = append(uses, Use{named("quay.io/" + name), fmt.Sprint("tenant-", n/2)})
	}
	if err := putFor(t, s, "", "new"); err != nil {
		t.Fatal(err)
	}
	if err := putFor(t, s, "", "newer"); err != nil {
		t.Fatal(err)
	}
	if got := has(s, "a", "b", "c", "d", "e", "f", "g", "h"); got != "b d e f g h" {
		t.Errorf("it has %s", got)
	}
}

// A tenant whose objects use one image after the other removes its own, and not all that others have used.
func TestATenantGoesThroughImages(t *testing.T) {
	s := stocked(t, 80, "a", "b", "c")
	var uses []Use
	s.usedBy(&uses)
	for n := range 10 {
		name := "t" + strings.Repeat("x", n)
		uses = []Use{{named("quay.io/" + name), "tenant"}}
		if err := putFor(t, s, "tenant", name); err != nil {
			t.Fatal(err)
		}
	}
	if got := has(s, "a", "b", "c", "txxxxxxxx", "txxxxxxxxx"); got != "a b c txxxxxxxx txxxxxxxxx" || s.Size() > 80 {
		t.Errorf("it has %s, and %d bytes", got, s.Size())
	}
	// Whose an image was isn't known after a restart of the agent, so it counts as everybody's.
	s.storedFor = nil
	s.Unknown = nil
	<-time.After(time.Millisecond) // another time than the last file's
	if err := putFor(t, s, "tenant", "again"); err != nil {
		t.Fatal(err)
	}
}

// putFor stores an object of 10 bytes.
func putFor(t *testing.T, s *Store, namespace, name string) error {
	t.Helper()
	files, err := s.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Discard()
	content := ("0123456789" + name)[len(name):]
	if len(name) > 9 {
		content = name[:10]
	}
	if _, err := files.Object.WriteString(content); err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(namespace, named("quay.io/"+name), files, described(content))
	return err
}
