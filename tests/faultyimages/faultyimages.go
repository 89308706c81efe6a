// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package faultyimages creates images that agents refuse.
package faultyimages

import (
	"fmt"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
)

// All returns, by name, an image whose file isn't bytecode, and one without files.
func All() (map[string]v1.Image, error) {
	content := []byte("This is no eBPF object.\n")
	images := map[string]v1.Image{}
	labels := map[string]string{bytecodeimage.ProgramsLabel: `{"pass":"tc"}`, bytecodeimage.MapsLabel: `{}`}
	image, err := bytecodeimage.Image("readme.o", content, labels, runtime.GOARCH, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("image of a text: %w", err)
	}
	images["fault-not-bytecode"] = image
	// The two blocks of zeros at the end of an archive, without anything before them.
	image, err = bytecodeimage.FromArchive(make([]byte, 1024), labels, runtime.GOARCH, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("image without a file: %w", err)
	}
	images["fault-no-file"] = image
	return images, nil
}
