// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bytecodeimage builds the OCI images in which the bpfman daemon takes eBPF
// objects: a single gzipped layer whose first entry is the object, and two labels that
// say which programs and maps it holds.
package bytecodeimage

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Labels by which the daemon recognises a bytecode image. Each holds a JSON object from
// names to types.
const (
	ProgramsLabel = "io.ebpf.programs"
	MapsLabel     = "io.ebpf.maps"
)

// Build returns the image of an object file's content, labelled with what is in it. The
// same content gives the same digest.
func Build(fileName string, object []byte) (v1.Image, error) {
	labels, err := Labels(object)
	if err != nil {
		return nil, fmt.Errorf("labels of %s: %w", fileName, err)
	}
	return Image(fileName, object, labels)
}

// Image returns an image of one file with the given labels, whether or not they and the
// content are what the daemon expects.
func Image(fileName string, content []byte, labels map[string]string) (v1.Image, error) {
	archive, err := tarOf(fileName, content)
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", fileName, err)
	}
	img, err := imageOf(archive, labels)
	if err != nil {
		return nil, fmt.Errorf("image of %s: %w", fileName, err)
	}
	return img, nil
}

// imageOf makes an image of a single layer.
func imageOf(archive []byte, labels map[string]string) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Labels = labels
	return mutate.ConfigFile(img, config)
}

// Labels describes an object: its programs by function name, its maps without the
// compiler's data sections.
func Labels(object []byte) (map[string]string, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("read eBPF object: %w", err)
	}
	if len(spec.Programs) == 0 {
		return nil, errors.New("no program in eBPF object")
	}
	programs := make(map[string]string, len(spec.Programs))
	for name, program := range spec.Programs {
		programs[name] = programType(program.SectionName)
	}
	maps := make(map[string]string, len(spec.Maps))
	for name, m := range spec.Maps {
		if !strings.HasPrefix(name, ".") {
			maps[name] = snakeCase(m.Type.String())
		}
	}
	labels := map[string]string{}
	for label, types := range map[string]map[string]string{ProgramsLabel: programs, MapsLabel: maps} {
		text, err := json.Marshal(types)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", label, err)
		}
		labels[label] = string(text)
	}
	return labels, nil
}

// programType is the section's kind as bpfman spells it. A classifier serves TC and TCX.
func programType(section string) string {
	kind, _, _ := strings.Cut(section, "/")
	if kind == "classifier" {
		return "tc"
	}
	return kind
}

var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

func snakeCase(name string) string {
	return strings.ToLower(wordStart.ReplaceAllString(name, "${1}${3}_${2}${4}"))
}

// tarOf archives the file alone: the daemon takes the first entry for the object, even
// if it is a directory.
func tarOf(fileName string, content []byte) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Name: fileName, Mode: 0o644, Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}
