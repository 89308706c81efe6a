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

// The parts of the store. 1/forCluster of its size is for images that cluster-scoped objects use. Of what these and other
// namespaces don't use of the rest, a namespace can have 1/perNamespace, and the same part of the number of images. So each
// namespace leaves most of it to the next ones, no matter how many come before. Images that cluster-scoped objects use aren't
// counted. Those of several namespaces count for each of them: otherwise, two could agree on what isn't counted.
const (
	forCluster   = 4
	perNamespace = 3
)

// claim is a request for room.
type claim struct {
	namespace string // of the object that asks, or empty
	image     Image
	base      string // the path of the image without suffixes
	size      int64  // in bytes
}

// tenancy is what a namespace has in the store.
type tenancy struct {
	claim

	replaces    bool            // the store has the image
	of          map[string]bool // the paths of images without suffixes
	limit       int64           // bytes
	inUse, size int64           // bytes
	images      int
}

// users are those that use an image.
type users struct{ own, others, cluster bool }

// tenancy returns what a claim's namespace has, or nil if the claim has no limit: the image is for a cluster-scoped object, or one
// uses it too, or it isn't known what is used. The caller holds mu.
func (s *Store) tenancy(c claim, all []stored) *tenancy {
	if c.namespace == "" || s.Uses == nil || s.unknown() != nil {
		return nil
	}
	maps.DeleteFunc(s.storedFor, func(base, _ string) bool {
		return !slices.ContainsFunc(all, func(o stored) bool { return o.path == base })
	})
	by := map[string]users{}
	for _, use := range s.Uses() {
		if use.Namespace == "" && use.Reference == c.image.Reference {
			return nil
		}
		if base, err := s.base(s.resolvedUse(use.Image)); err == nil {
			of := by[base]
			of.cluster = of.cluster || use.Namespace == ""
			of.own = of.own || use.Namespace == c.namespace
			of.others = of.others || use.Namespace != "" && use.Namespace != c.namespace
			by[base] = of
		}
	}
	if by[c.base].cluster {
		return nil
	}
	t := &tenancy{claim: c, of: map[string]bool{}}
	var cluster, others int64
	for _, o := range all {
		switch of := by[o.path]; {
		case o.path == c.base:
			t.replaces = true
		case of.cluster:
			cluster += o.size
		case of.own:
			t.inUse += o.size
			t.has(o)
		case of.others:
			others += o.size
		case s.storedFor[o.path] == c.namespace:
			t.has(o)
		}
	}
	t.limit = max(0, s.Limit-max(s.Limit/forCluster, cluster)-others) / perNamespace
	return t
}

func (t *tenancy) has(o stored) {
	t.of[o.path] = true
	t.size += o.size
	t.images++
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

// refuse returns an error if there is no room even without what the namespace has and doesn't use. An image that the store has
// can be replaced, as after a change of the node's kernel, even if others use more by then.
func (t *tenancy) refuse() error {
	if t == nil || t.replaces || t.inUse+t.claim.size <= t.limit {
		return nil
	}
	return fmt.Errorf("the objects of the namespace use %d MiB in the node's store of bytecode, and would use %d with this image, of at most %d: "+
		"use fewer or smaller images, or increase bpfman.bytecode.store.size in the ConfigMap bpfman-config", t.inUse>>20, (t.inUse+t.claim.size)>>20, t.limit>>20)
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
