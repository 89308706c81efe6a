// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package faultyimages creates images that the daemon refuses.
package faultyimages

import (
	"fmt"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
)

// All returns, by name, an image without labels, one with wrong labels, one whose labels aren't JSON, and one
// without files.
func All() (map[string]v1.Image, error) {
	content := []byte("This is no eBPF object.\n")
	images := map[string]v1.Image{}
	for name, labels := range map[string]map[string]string{
		"fault-no-labels":    nil,
		"fault-not-bytecode": {bytecodeimage.ProgramsLabel: `{"pass":"tc"}`, bytecodeimage.MapsLabel: `{}`},
		"fault-bad-labels":   {bytecodeimage.ProgramsLabel: "pass", bytecodeimage.MapsLabel: ""},
	} {
		image, err := bytecodeimage.Image("readme.o", content, labels, runtime.GOARCH, time.Time{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		images[name] = image
	}
	// The two blocks of zeros at the end of an archive, without anything before them.
	labels := map[string]string{bytecodeimage.ProgramsLabel: `{"pass":"tc"}`, bytecodeimage.MapsLabel: `{}`}
	image, err := bytecodeimage.FromArchive(make([]byte, 1024), labels, runtime.GOARCH, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("image without a file: %w", err)
	}
	images["fault-no-file"] = image
	return images, nil
}
