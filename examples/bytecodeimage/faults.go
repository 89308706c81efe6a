// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"fmt"

	"github.com/google/go-containerregistry/pkg/v1"
)

// Faults returns, by name, images that the daemon refuses, for tests: one without its
// labels, one whose labels lie, one whose labels aren't JSON, one without any file.
func Faults() (map[string]v1.Image, error) {
	content := []byte("This is no eBPF object.\n")
	images := map[string]v1.Image{}
	for name, labels := range map[string]map[string]string{
		"fault-no-labels":    nil,
		"fault-not-bytecode": {ProgramsLabel: `{"pass":"tc"}`, MapsLabel: `{}`},
		"fault-bad-labels":   {ProgramsLabel: "pass", MapsLabel: ""},
	} {
		image, err := Image("readme.o", content, labels)
		if err != nil {
			return nil, err
		}
		images[name] = image
	}
	// The two blocks of zeros that end an archive, and nothing before them.
	image, err := imageOf(make([]byte, 1024), map[string]string{ProgramsLabel: `{"pass":"tc"}`, MapsLabel: `{}`})
	if err != nil {
		return nil, fmt.Errorf("image without a file: %w", err)
	}
	images["fault-no-file"] = image
	return images, nil
}
