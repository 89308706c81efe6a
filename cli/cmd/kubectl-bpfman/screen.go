// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// screen is what is printed again and again: in place on a terminal, and anywhere else with an empty line between.
type screen struct {
	out   io.Writer
	begun *bool
}

func newScreen(out io.Writer) screen { return screen{out, new(bool)} }

// onTerminal tells whether a person watches, and how many lines there are.
func (s screen) onTerminal() (lines int, ok bool) {
	file, isFile := s.out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	_, lines, err := term.GetSize(int(file.Fd()))
	return lines, err == nil
}

// next begins again.
func (s screen) next() error {
	between := "\n"
	if _, ok := s.onTerminal(); ok {
		between = "\x1b[H\x1b[J" // to the first column of the first line, and clear
	} else if !*s.begun {
		between = ""
	}
	*s.begun = true
	if _, err := io.WriteString(s.out, between); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
