// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"io"

	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// screen prints output repeatedly. On a terminal, it overwrites the previous output. Elsewhere, it prints an
// empty line between outputs.
type screen struct {
	out   io.Writer
	begun *bool
}

func newScreen(out io.Writer) screen { return screen{out, new(bool)} }

// next starts the next output.
func (s screen) next() error {
	between := "\n"
	if _, _, ok := terminal.Size(s.out); ok {
		between = "\x1b[H\x1b[J" // move the cursor to the top left, and clear
	} else if !*s.begun {
		between = ""
	}
	*s.begun = true
	if _, err := io.WriteString(s.out, between); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
