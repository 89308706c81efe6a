// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"cmp"
	"maps"
	"slices"

	"github.com/bpfman/bpfman-operator/internal/problem"
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

// hasAmpleRoom reports whether there is room for a claim no matter who uses what: the store would have less than the share of one
// namespace, if all that it has were of others.
func (s *Store) hasAmpleRoom(c claim, all []stored) bool {
	total := c.size
	for _, o := range all {
		total += o.size
	}
	return total <= (s.Limit-s.Limit/forCluster-total)/perNamespace && len(all) < maxRecords/perNamespace
}

// uses are the uses of images.
type uses struct {
	// by contains the namespaces whose objects use an image, by its path without suffixes. That of cluster-scoped objects is empty.
	by map[string]map[string]bool
	// ofCluster contains the references in cluster-scoped objects.
	ofCluster map[string]bool
}

// uses returns the uses of images. If their namespaces aren't known, they count as those of cluster-scoped objects.
func (s *Store) uses() uses {
	var list []Use
	if s.Uses != nil {
		list = s.Uses()
	} else {
		for _, image := range s.images() {
			list = append(list, Use{Image: image})
		}
	}
	u, bases := uses{by: map[string]map[string]bool{}, ofCluster: map[string]bool{}}, s.bases()
	for _, use := range list {
		base := bases(use.Image)
		if u.by[base] == nil {
			u.by[base] = map[string]bool{}
		}
		u.by[base][use.Namespace] = true
		if use.Namespace == "" {
			u.ofCluster[use.Reference] = true
		}
	}
	delete(u.by, "")
	return u
}

// tenancy returns what a claim's namespace has, or nil if the claim has no limit: the image is for a cluster-scoped object, or one
// uses it too, or it isn't known what is used. kept are the images in use. The caller holds mu.
func (s *Store) tenancy(c claim, all []stored, kept map[string]bool, u uses) *tenancy {
	if c.namespace == "" || s.Uses == nil || s.unknown() != nil {
		return nil
	}
	maps.DeleteFunc(s.storedFor, func(base, _ string) bool {
		return !slices.ContainsFunc(all, func(o stored) bool { return o.path == base })
	})
	if u.by[c.base][""] || u.ofCluster[c.image.Reference] {
		return nil
	}
	t := &tenancy{claim: c, of: map[string]bool{}}
	var cluster, others int64
	for _, o := range all {
		of := u.by[o.path]
		if !kept[o.path] {
			of = nil
		}
		switch {
		case o.path == c.base:
			t.replaces = true
		case of[""]:
			cluster += o.size
		case of[c.namespace]:
			t.inUse += o.size
			t.has(o)
		case len(of) > 0:
			others += o.size
		case s.storedFor[o.path] == c.namespace:
			t.has(o)
		}
	}
	t.limit = max(0, s.Limit-max(s.Limit/forCluster, cluster)-others) / perNamespace
	return t
}

// kept returns which of the images that objects on this node use are kept, by path without suffixes. Objects of a namespace can
// also name what others have stored, which no claim of the namespace limits. Beyond the largest share that a namespace can have,
// and beyond what is for all namespaces, such images aren't in use: those of the namespace with the most, and of these, the ones
// that weren't used for the longest time.
func (s *Store) kept(all []stored, u uses) map[string]bool {
	kept := map[string]bool{}
	h := holdings{size: map[string]int64{}, images: map[string][]stored{}, users: map[string]int{}}
	for _, o := range all { // the one that wasn't used for the longest time first
		if u.by[o.path][""] {
			kept[o.path] = true
			continue
		}
		for namespace := range u.by[o.path] {
			h.add(namespace, o)
		}
	}
	h.limit(s.Limit - s.Limit/forCluster)
	for base, n := range h.users {
		kept[base] = n > 0
	}
	return kept
}

// holdings are the images that only namespaced objects use.
type holdings struct {
	size   map[string]int64    // by namespace, in bytes
	images map[string][]stored // by namespace
	users  map[string]int      // the number of namespaces, by path
	total  int64               // bytes, with each image once
}

func (h *holdings) add(namespace string, o stored) {
	h.images[namespace] = append(h.images[namespace], o)
	h.size[namespace] += o.size
	if h.users[o.path]++; h.users[o.path] == 1 {
		h.total += o.size
	}
}

// limit has namespaces give up images until all have most bytes, and each 1/perNamespace of that.
func (h *holdings) limit(most int64) {
	for len(h.size) > 0 {
		namespace := slices.MaxFunc(slices.Sorted(maps.Keys(h.size)), func(a, b string) int { return cmp.Compare(h.size[a], h.size[b]) })
		if h.size[namespace] <= most/perNamespace && h.total <= most {
			return
		}
		first := h.images[namespace][0]
		h.images[namespace] = h.images[namespace][1:]
		h.size[namespace] -= first.size
		if h.users[first.path]--; h.users[first.path] == 0 {
			h.total -= first.size
		}
	}
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
	if image.Manifest != "" {
		return image
	}
	if resolved, ok := s.resolved(image.Reference); ok {
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
	return problem.Errorf(problem.StoreShareFull, "the objects of the namespace use %d MiB in the node's store of bytecode, and would use %d with this image, of at most %d: "+
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
