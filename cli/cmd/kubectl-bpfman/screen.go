// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// screen prints output repeatedly. On a terminal, it overwrites the previous output. Elsewhere, it prints an
// empty line between outputs.
type screen struct {
	out   io.Writer
	begun *bool
}

func newScreen(out io.Writer) screen { return screen{out, new(bool)} }

// onTerminal reports whether the output is a terminal, and its number of lines.
func (s screen) onTerminal() (lines int, ok bool) {
	file, isFile := s.out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	_, lines, err := term.GetSize(int(file.Fd()))
	return lines, err == nil
}

// next starts the next output.
func (s screen) next() error {
	between := "\n"
	if _, ok := s.onTerminal(); ok {
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
