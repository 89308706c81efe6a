// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bytecodeimage builds and reads the OCI images in which the bpfman daemon takes eBPF objects: a single gzipped
// layer whose first file is the object, and two labels that say which programs and maps it holds. An index has such an
// image for each platform.
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

	"github.com/bpfman/bpfman-operator/cli/bytecode"
)

// Labels by which the daemon recognises a bytecode image. Each holds a JSON object from names to types.
const (
	ProgramsLabel = "io.ebpf.programs"
	MapsLabel     = "io.ebpf.maps"
)

// operatingSystem is that of all platforms.
const operatingSystem = "linux"

// byteOrders are the architectures and the byte order of each. An object works on all of one order, unless its source
// knows them apart.
var byteOrders = map[string]string{"amd64": "little", "arm64": "little", "ppc64le": "little", "riscv64": "little", "s390x": "big"}

// generic are the names of byte orders, as bpf2go has them in its files' names.
var generic = map[string]string{"bpfel": "little", "bpfeb": "big"}

// File is an object file and what it is for.
type File struct {
	// Name is what the file is called in the image.
	Name    string
	Content []byte
	// Platform is an architecture as Go names it, such as arm64, with linux/ before it or without; or bpfel or bpfeb, as
	// bpf2go names its files, for all architectures of that byte order. Empty means that of the file.
	Platform string
}

// Build returns the image of files for different platforms: an index, or an image alone where there is one platform.
// The same files give the same digest; created is part of it, and may be zero.
func Build(files []File, created time.Time) (partial.WithRawManifest, error) {
	chosen := map[string]File{}
	for _, file := range files {
		object, err := bytecode.Read(file.Content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		on, err := file.architectures(object.ByteOrder)
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

// specific tells whether the file is for one architecture, so that it rules over one for a byte order.
func (f File) specific() bool {
	return byteOrders[strings.TrimPrefix(f.Platform, operatingSystem+"/")] != ""
}

// architectures are those of the file's platform, which must have the object's byte order.
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

// ForArchitecture returns the image of one object, labelled with what is in it.
func ForArchitecture(fileName string, object []byte, architecture string, created time.Time) (v1.Image, error) {
	labels, err := Labels(object)
	if err != nil {
		return nil, fmt.Errorf("labels of %s: %w", fileName, err)
	}
	return Image(fileName, object, labels, architecture, created)
}

// Image returns an image of one file with the given labels, whether or not they and the content are what the daemon
// expects.
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

// FromArchive returns an image of a single layer with the given content, whatever that is.
func FromArchive(archive []byte, labels map[string]string, architecture string, created time.Time) (v1.Image, error) {
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err //nolint:wrapcheck // the callers say of what
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err //nolint:wrapcheck // the callers say of what
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err //nolint:wrapcheck // the callers say of what
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = operatingSystem, architecture
	config.Created = v1.Time{Time: created}
	config.Config.Labels = labels
	return mutate.ConfigFile(img, config) //nolint:wrapcheck // the callers say of what
}

// Labels describes an object: its programs by function name, its maps without the compiler's data sections.
func Labels(object []byte) (map[string]string, error) {
	content, err := bytecode.Read(object)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was read
	}
	programs, declared := map[string]string{}, map[string]string{}
	for _, p := range content.Programs {
		programs[p.Name] = p.Type
	}
	for _, m := range content.Maps {
		declared[m.Name] = m.Type
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

// tarOf archives the file alone: the daemon takes the first entry for the object, even if it is a directory.
func tarOf(fileName string, content []byte, modified time.Time) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: fileName, Mode: 0o644, Size: int64(len(content)), ModTime: modified}
	if err := w.WriteHeader(header); err != nil {
		return nil, err //nolint:wrapcheck // the caller says of what
	}
	if _, err := w.Write(content); err != nil {
		return nil, err //nolint:wrapcheck // the caller says of what
	}
	if err := w.Close(); err != nil {
		return nil, err //nolint:wrapcheck // the caller says of what
	}
	return archive.Bytes(), nil
}
