// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Interrupt is what Ctrl-C is as a key.
const Interrupt = '\x03'

// Keys calls pressed with each byte that is typed in a terminal, without waiting for Enter, until restore is called. Ctrl-C is
// [Interrupt] instead of a signal. To the terminal, the command writes through what Keys returns. If in or out isn't a terminal,
// or the command runs in the background of a shell, Keys does nothing, and ok is false.
func Keys(in io.Reader, out io.Writer, pressed func(byte)) (to io.Writer, restore func(), ok bool) {
	keyboard, isFile := in.(*os.File)
	display, isDisplay := out.(*os.File)
	if !isFile || !isDisplay || !term.IsTerminal(int(keyboard.Fd())) || !term.IsTerminal(int(display.Fd())) || !inForeground(keyboard) {
		return out, func() {}, false
	}
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		return out, func() {}, false
	}
	go func() { // until the process ends, because nothing interrupts the read
		key := make([]byte, 1)
		for {
			if _, err := keyboard.Read(key); err != nil {
				return
			}
			pressed(key[0])
		}
	}()
	return lineByLine{display}, func() { _ = term.Restore(int(keyboard.Fd()), before) }, true
}

// lineByLine is a terminal that doesn't return to the first column by itself.
type lineByLine struct{ *os.File }

// Write implements [io.Writer].
func (l lineByLine) Write(text []byte) (int, error) {
	if _, err := l.File.Write(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, fmt.Errorf("write to the terminal: %w", err)
	}
	return len(text), nil
}
