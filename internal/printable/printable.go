// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package printable makes texts that others choose safe to store and print.
package printable

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxText is the maximum length of a text, in bytes. It is the same as that of a path in
// the kernel. Most texts are much shorter.
const maxText = 4096

// Text makes bytes from the kernel or a process safe to store and print. It escapes
// characters that aren't printable as in a Go string. It also escapes backslashes, so
// that different texts stay different. Characters that change the direction of text
// aren't printable.
func Text(raw string) string {
	if len(raw) <= maxText && !strings.ContainsFunc(raw, special) {
		return raw
	}
	var out strings.Builder
	for len(raw) > 0 {
		r, size := utf8.DecodeRuneInString(raw)
		escaped := raw[:size]
		if special(r) {
			escaped = strconv.Quote(escaped)
			escaped = escaped[1 : len(escaped)-1]
		}
		if out.Len()+len(escaped) > maxText-len(cut) {
			out.WriteString(cut)
			break
		}
		out.WriteString(escaped)
		raw = raw[size:]
	}
	return out.String()
}

// special reports whether a character can need an escape. RuneError can be an invalid byte.
func special(r rune) bool { return r == '\\' || r == utf8.RuneError || !strconv.IsPrint(r) }

// cut marks the end of a truncated text.
const cut = "…"
