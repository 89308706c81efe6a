// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bytecodeimage builds and reads OCI images of eBPF objects. An image has a single gzipped layer with a single
// file, which is the object. Two labels with its programs and maps are for bpfman without this operator. An index
// contains such an image for each platform.
package bytecodeimage

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bpfman/bpfman-operator/bytecode/object"
)

// The labels of a bytecode image. Each contains a JSON object that maps names to types.
const (
	ProgramsLabel = "io.ebpf.programs"
	MapsLabel     = "io.ebpf.maps"
)

// operatingSystem is the operating system of all platforms.
const operatingSystem = "linux"

// byteOrders maps architectures to their byte orders. An object works on all architectures with the same byte
// order, unless its source distinguishes them.
var byteOrders = map[string]string{"amd64": "little", "arm64": "little", "ppc64le": "little", "riscv64": "little", "s390x": "big"}

// generic maps the names that bpf2go uses in file names to byte orders.
var generic = map[string]string{"bpfel": "little", "bpfeb": "big"}

// File is an object file with its platform.
type File struct {
	// Name is the name of the file in the image.
	Name    string
	Content []byte
	// Platform is an architecture with Go's name, such as arm64 or linux/arm64. With bpfel or bpfeb, as in the
	// file names of bpf2go, it is all architectures with that byte order. If it is empty, the object's byte order
	// decides.
	Platform string
}

// Build returns the image for files of different platforms, without their debug sections: an index, or a single image
// if there is only one platform. The digest depends only on the files and on created, which can be zero.
func Build(files []File, created time.Time) (partial.WithRawManifest, error) {
	chosen := map[string]File{}
	for _, file := range files {
		content, err := described(file.Content)
		if err == nil {
			file.Content, err = object.Strip(file.Content)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		on, err := file.architectures(content.ByteOrder)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		for _, architecture := range on {
			other, taken := chosen[architecture]
			switch {
			case taken && other.specific() == file.specific():
				return nil, fmt.Errorf("%s and %s are both for %s/%s", other.Name, file.Name, operatingSystem, architecture)
			case !taken || file.specific():
				chosen[architecture] = file
			}
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no file is specified")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range slices.Sorted(maps.Keys(chosen)) {
		image, err := ForArchitecture(chosen[architecture].Name, chosen[architecture].Content, architecture, created)
		if err != nil || len(chosen) == 1 {
			return image, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: operatingSystem, Architecture: architecture}},
		})
	}
	return index, nil
}

// specific reports whether the file is for one architecture. Such a file takes precedence over a file for a byte
// order.
func (f File) specific() bool {
	return byteOrders[strings.TrimPrefix(f.Platform, operatingSystem+"/")] != ""
}

// architectures returns the architectures of the file's platform. The object must have their byte order.
func (f File) architectures(byteOrder string) ([]string, error) {
	name := strings.TrimPrefix(f.Platform, operatingSystem+"/")
	all := slices.Sorted(maps.Keys(byteOrders))
	switch order := cmp.Or(byteOrders[name], generic[f.Platform]); {
	case f.Platform != "" && order == "":
		return nil, fmt.Errorf("%q is not a platform: specify one of bpfel, bpfeb, %s", f.Platform, strings.Join(all, ", "))
	case f.Platform != "" && order != byteOrder:
		return nil, fmt.Errorf("it is %s-endian, but %s isn't", byteOrder, f.Platform)
	case f.specific():
		return []string{name}, nil
	}
	return slices.DeleteFunc(all, func(architecture string) bool { return byteOrders[architecture] != byteOrder }), nil
}

// ForArchitecture returns the image of one object, with labels for its content.
func ForArchitecture(fileName string, file []byte, architecture string, created time.Time) (v1.Image, error) {
	labels, err := Labels(file)
	if err != nil {
		return nil, fmt.Errorf("labels of %s: %w", fileName, err)
	}
	return Image(fileName, file, labels, architecture, created)
}

// Image returns an image of one file with the given labels. It doesn't validate the labels or the content.
func Image(fileName string, content []byte, labels map[string]string, architecture string, created time.Time) (v1.Image, error) {
	archive, err := tarOf(fileName, content, created)
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", fileName, err)
	}
	img, err := FromArchive(archive, labels, architecture, created)
	if err != nil {
		return nil, fmt.Errorf("image of %s: %w", fileName, err)
	}
	return img, nil
}

// FromArchive returns an image with a single layer from archive, which it doesn't validate.
func FromArchive(archive []byte, labels map[string]string, architecture string, created time.Time) (v1.Image, error) {
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = operatingSystem, architecture
	config.Created = v1.Time{Time: created}
	config.Config.Labels = labels
	return mutate.ConfigFile(img, config)
}

// Labels returns the labels for an object: its programs by function, and its maps without the compiler's data
// sections.
func Labels(file []byte) (map[string]string, error) {
	content, err := described(file)
	if err != nil {
		return nil, err
	}
	programs, declared := map[string]string{}, map[string]string{}
	for _, p := range content.Programs {
		programs[p.Name] = p.Type
	}
	for _, m := range content.Maps {
		declared[m.Name] = labelType(m)
	}
	labels := map[string]string{}
	for label, types := range map[string]map[string]string{ProgramsLabel: programs, MapsLabel: declared} {
		text, err := json.Marshal(types)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", label, err)
		}
		labels[label] = string(text)
	}
	return labels, nil
}

// labelType returns the type of a map with bpfman's name, such as per_cpu_array for the kernel's percpu_array.
func labelType(m object.Map) string { return strings.Replace(m.Type, "percpu", "per_cpu", 1) }

// described reads an object, including its maps.
func described(file []byte) (*object.Object, error) {
	content, err := object.Read(file)
	if err == nil && content.Unknown != "" {
		err = errors.New(content.Unknown)
	}
	if err != nil {
		return nil, fmt.Errorf("read eBPF object: %w", err)
	}
	return content, nil
}

// tarOf returns an archive that contains only the file.
func tarOf(fileName string, content []byte, modified time.Time) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := errors.Join(add(w, fileName, content, modified), w.Close())
	return archive.Bytes(), err
}
