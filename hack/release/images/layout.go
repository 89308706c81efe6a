// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package images

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/bpfman/bpfman-operator/hack/cluster/image"
)

// nameAnnotation contains the name of an image in a layout.
const nameAnnotation = "org.opencontainers.image.ref.name"

// Layout is a directory with the OCI layout, which contains images by name.
type Layout struct{ path layout.Path }

// Open opens a layout. If the directory doesn't exist, it creates an empty one.
func Open(dir string) (Layout, error) {
	opened, err := layout.FromPath(dir)
	if os.IsNotExist(err) {
		opened, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return Layout{}, fmt.Errorf("open the images in %s: %w", dir, err)
	}
	return Layout{opened}, nil
}

// Put adds an image, or replaces the one with the same name.
func (l Layout) Put(name string, content mutate.Appendable) error {
	named := layout.WithAnnotations(map[string]string{nameAnnotation: name})
	var err error
	switch content := content.(type) {
	case v1.ImageIndex:
		err = l.path.ReplaceIndex(content, match.Name(name), named)
	case v1.Image:
		err = l.path.ReplaceImage(content, match.Name(name), named)
	default:
		err = fmt.Errorf("%T is neither an image nor an index", content)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Named is an image of a layout.
type Named struct {
	Name string
	v1.Descriptor
}

// All returns the images in the order in which they were added.
func (l Layout) All() ([]Named, error) {
	index, err := l.path.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var all []Named
	for _, each := range manifest.Manifests {
		all = append(all, Named{each.Annotations[nameAnnotation], each})
	}
	return all, nil
}

// index returns the index, or an error if the name is that of a single image.
func (l Layout) index(n Named) (v1.ImageIndex, error) {
	all, err := l.path.ImageIndex()
	if err != nil {
		return nil, err
	}
	return all.ImageIndex(n.Digest)
}

func (l Layout) image(n Named) (v1.Image, error) { return l.path.Image(n.Digest) }

// BytecodeRegistry is where the tree's manifests expect the bytecode images of the examples, with the tag latest.
const BytecodeRegistry = "quay.io/bpfman-bytecode"

// bytecodePath is the part of a bytecode image's name after the registry of a release.
const bytecodePath = "bpfman-bytecode"

// BytecodeName returns the name of an example's bytecode image.
func (r Release) BytecodeName(example string) string { return r.Name(bytecodePath + "/" + example) }

// Names returns a sed script that replaces the names in the tree with those of the release, and other names as others
// says. Images that are in all are referenced by digest too, except for bytecode, whose names users read and type.
func (r Release) Names(all []Named, others map[string]string) string {
	digests := map[string]string{}
	for _, each := range all {
		digests[each.Name] = "@" + each.Digest.String()
	}
	var script strings.Builder
	replace := func(pattern, replacement string) { fmt.Fprintf(&script, "s|%s|%s|g\n", pattern, replacement) }
	quote := func(text string) string { return strings.ReplaceAll(text, ".", `\.`) }
	repositories := []string{"bpfman-operator-bundle", "bpfman-operator-catalog"}
	for _, command := range image.Published {
		repositories = append(repositories, command.Repository)
	}
	for _, repository := range repositories {
		name := r.Name(repository)
		replace(quote(image.Registry+"/"+repository)+`:[a-z0-9.-]*`, name+digests[name])
	}
	replace(quote(image.Registry+"/charts"), r.Registry+"/charts")
	replace(quote(BytecodeRegistry)+`/\([A-Za-z0-9_-]*\):latest`, r.BytecodeName(`\1`))
	for _, name := range slices.Sorted(maps.Keys(others)) {
		replace(quote(name), others[name])
	}
	return script.String()
}
