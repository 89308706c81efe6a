// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"fmt"
	"maps"
	"slices"
)

// Use is the use of an image by an object, or by its program in the daemon. Namespace is the object's, or empty.
type Use struct {
	Image

	Namespace string
}

// perNamespace is the part of the store, 1/perNamespace of its size and of its number of images, that a namespace can have for
// itself. What other namespaces or cluster-scoped objects use too isn't counted.
const perNamespace = 2

// claim is a request for room.
type claim struct {
	namespace string // of the object that asks, or empty
	image     Image
	base      string // the path of the image without suffixes
	size      int64  // in bytes
}

// tenancy is what a namespace has in the store for itself.
type tenancy struct {
	claim

	of          map[string]bool // the paths of images without suffixes
	limit       int64           // bytes
	inUse, size int64           // bytes
	images      int
}

// tenancy returns what a claim's namespace has for itself, or nil if the claim has no limit: it is for a cluster-scoped object,
// the image is also used by others, or it isn't known what is used. The caller holds mu.
func (s *Store) tenancy(c claim, all []stored) *tenancy {
	if c.namespace == "" || s.Uses == nil || s.unknown() != nil {
		return nil
	}
	maps.DeleteFunc(s.storedFor, func(base, _ string) bool {
		return !slices.ContainsFunc(all, func(o stored) bool { return o.path == base })
	})
	t := &tenancy{claim: c, of: map[string]bool{}, limit: s.Limit / perNamespace}
	used, others := map[string]bool{}, map[string]bool{}
	for _, use := range s.Uses() {
		own := use.Namespace == c.namespace
		if !own && use.Reference == c.image.Reference {
			return nil
		}
		if base, err := s.base(s.resolvedUse(use.Image)); err == nil {
			used[base] = true
			others[base] = others[base] || !own
		}
	}
	if others[c.base] {
		return nil
	}
	for _, o := range all {
		own := used[o.path] && !others[o.path] || !used[o.path] && s.storedFor[o.path] == c.namespace
		if !own || o.path == c.base {
			continue
		}
		t.of[o.path] = true
		t.size += o.size
		t.images++
		if used[o.path] {
			t.inUse += o.size
		}
	}
	return t
}

// remember records for which namespace an image is stored. Those of cluster-scoped objects aren't kept: they would never be
// forgotten on a node without other objects. The caller holds mu.
func (s *Store) remember(c claim) {
	delete(s.storedFor, c.base)
	if c.namespace == "" {
		return
	}
	if s.storedFor == nil {
		s.storedFor = map[string]string{}
	}
	s.storedFor[c.base] = c.namespace
}

// resolvedUse returns the image that an object uses: without a digest, it is what its reference was last resolved to.
func (s *Store) resolvedUse(image Image) Image {
	if resolved, ok := s.Resolved(image.Reference); ok && image.Manifest == "" {
		return resolved
	}
	return image
}

// refuse returns an error if there is no room even without what the namespace has and doesn't use. It can have a single image of
// any size.
func (t *tenancy) refuse() error {
	if t == nil || t.inUse == 0 || t.inUse+t.claim.size <= t.limit {
		return nil
	}
	return fmt.Errorf("the objects of the namespace use %d MiB in the node's store of bytecode that no others use, and may use %d: use fewer or smaller images, "+
		"or increase bpfman.bytecode.store.size in the ConfigMap bpfman-config", t.inUse>>20, t.limit>>20)
}

// crowds reports whether the namespace has to give up an image that it doesn't use.
func (t *tenancy) crowds(o stored) bool {
	return t != nil && t.of[o.path] && (t.size+t.claim.size > t.limit || t.images >= maxRecords/perNamespace)
}

// gaveUp records that an image was removed.
func (t *tenancy) gaveUp(o stored) {
	if t != nil && t.of[o.path] {
		delete(t.of, o.path)
		t.size -= o.size
		t.images--
	}
}
