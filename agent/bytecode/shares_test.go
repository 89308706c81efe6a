// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"strings"
	"testing"
	"time"
)

// A namespace can have half of the store for itself: in use, or stored by its objects.
func TestSharesOfNamespaces(t *testing.T) {
	use := func(namespace string, names ...string) (uses []Use) {
		for _, name := range names {
			uses = append(uses, Use{named("quay.io/" + name), namespace})
		}
		return uses
	}
	const full = "the objects of the namespace use 0 MiB in the node's store of bytecode that no others use, and may use 0: use fewer or smaller images, " +
		"or increase bpfman.bytecode.store.size in the ConfigMap bpfman-config"
	for name, c := range map[string]struct {
		limit     int64
		uses      []Use
		namespace string
		want      string
		err       string
	}{
		"of nobody":                    {60, nil, "tenant", "a b c d new", ""},
		"a share is in use":            {60, use("tenant", "a", "b", "c"), "tenant", "a b c d", full},
		"a single large one":           {18, nil, "tenant", "new", ""},
		"for another namespace":        {60, use("tenant", "a", "b", "c"), "other", "a b c d new", ""},
		"for a cluster-scoped object":  {60, use("tenant", "a", "b", "c"), "", "a b c d new", ""},
		"others use them too":          {60, append(use("tenant", "a", "b", "c"), use("other", "c")...), "tenant", "a b c d new", ""},
		"others use the new one":       {60, append(use("tenant", "a", "b", "c"), Use{Image{Reference: "quay.io/new"}, "other"}), "tenant", "a b c d new", ""},
		"in use by a cluster's object": {60, append(use("tenant", "a", "b"), use("", "c")...), "tenant", "a b c d new", ""},
		"others' are removed":          {60, use("tenant", "c", "d"), "tenant", "a b c d new", ""},
		"others' are removed, if full": {40, use("tenant", "d"), "tenant", "b c d new", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := stocked(t, 1000, "a", "b", "c", "d")
			s.Limit = c.limit
			s.Uses = func() []Use { return c.uses }
			s.Used = func() (images []Image) {
				for _, use := range c.uses {
					images = append(images, use.Image)
				}
				return images
			}
			err := putFor(t, s, c.namespace, "new")
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasSuffix(err.Error(), c.err)) {
				t.Errorf("%v, want %s", err, c.err)
			}
			if got := has(s, "a", "b", "c", "d", "new"); got != c.want {
				t.Errorf("it has %s, want %s", got, c.want)
			}
		})
	}
}

// A tenant whose objects use one image after the other removes its own, and not all that others have used.
func TestATenantGoesThroughImages(t *testing.T) {
	s := stocked(t, 60, "a", "b", "c")
	var uses []Use
	s.Uses = func() []Use { return uses }
	s.Used = func() (images []Image) {
		for _, use := range uses {
			images = append(images, use.Image)
		}
		return images
	}
	for n := range 10 {
		name := "t" + strings.Repeat("x", n)
		uses = []Use{{named("quay.io/" + name), "tenant"}}
		if err := putFor(t, s, "tenant", name); err != nil {
			t.Fatal(err)
		}
	}
	if got := has(s, "a", "b", "c", "txxxxxxxx", "txxxxxxxxx"); got != "a b c txxxxxxxx txxxxxxxxx" || s.Size() > 60 {
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
