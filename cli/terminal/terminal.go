// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package terminal knows the size of terminals, and makes text from untrusted sources safe to print. The names of programs, maps, and processes can
// contain any bytes, including escape sequences that terminals execute.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Size returns the size of the terminal that w writes to. It returns false if w isn't a terminal. A terminal that
// doesn't know its size has 0 columns or lines.
func Size(w io.Writer) (columns, lines int, ok bool) {
	file, isFile := w.(interface{ Fd() uintptr })
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, 0, false
	}
	columns, lines, err := term.GetSize(int(file.Fd()))
	return columns, lines, err == nil
}

// Palette colors text for a terminal, or leaves it as it is.
type Palette bool

// Colors returns the palette for w. Text is only colored on a terminal, and not if the environment variable NO_COLOR is
// set (https://no-color.org) or the terminal is dumb.
func Colors(w io.Writer) Palette {
	_, _, ok := Size(w)
	return Palette(ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// Bad colors what fails.
func (p Palette) Bad(s string) string { return p.color("31", s) }

// Doubtful colors what isn't as specified yet, or could be wrong.
func (p Palette) Doubtful(s string) string { return p.color("33", s) }

// Good colors what is as specified.
func (p Palette) Good(s string) string { return p.color("32", s) }

// Idle colors what is as specified, and does nothing.
func (p Palette) Idle(s string) string { return p.color("36", s) }

func (p Palette) color(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Line returns s on one line. It escapes characters that aren't printable as in Go's string literals, such as \x1b
// for the escape character, \n for a line break, and \xff for a byte that isn't valid UTF-8. These include the C1
// control characters, and characters that change the direction of text, which cli-runtime doesn't escape.
func Line(s string) string { return escape(s, "", quoted) }

// Text is like Line, but keeps line breaks and tabs.
func Text(s string) string { return escape(s, "\n\t", quoted) }

// JSON returns JSON with the same content, in which all characters that aren't printable are escaped.
func JSON(encoded string) string { return escape(encoded, "\n\t", quotedJSON) }

func escape(s, kept string, quote func(r rune, bytes string) string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		bytes := s[i : i+size]
		i += size
		invalid := r == utf8.RuneError && size == 1
		if !invalid && (strconv.IsPrint(r) || strings.ContainsRune(kept, r)) {
			b.WriteString(bytes)
		} else {
			b.WriteString(quote(r, bytes))
		}
	}
	return b.String()
}

func quoted(_ rune, bytes string) string {
	q := strconv.Quote(bytes)
	return q[1 : len(q)-1]
}

// quotedJSON escapes a character as one or two UTF-16 code units.
func quotedJSON(r rune, _ string) string {
	const plane, high, low, bits = 0x10000, 0xd800, 0xdc00, 10
	if r < plane {
		return fmt.Sprintf(`\u%04x`, r)
	}
	r -= plane
	return fmt.Sprintf(`\u%04x\u%04x`, high+r>>bits, low+r&(1<<bits-1))
}
