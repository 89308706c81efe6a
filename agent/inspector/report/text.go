// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package report

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
	plain := true
	for _, r := range raw {
		if r == '\\' || r == utf8.RuneError || !strconv.IsPrint(r) {
			plain = false
			break
		}
	}
	if plain && len(raw) <= maxText {
		return raw
	}
	var out strings.Builder
	for len(raw) > 0 {
		r, size := utf8.DecodeRuneInString(raw)
		escaped := raw[:size]
		switch {
		case r == utf8.RuneError && size == 1:
			escaped = `\x` + hex(raw[0])
		case r == '\\':
			escaped = `\\`
		case !strconv.IsPrint(r):
			escaped = strings.Trim(strconv.QuoteRune(r), "'")
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

// cut marks the end of a truncated text.
const cut = "…"

func hex(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&0xf]})
}
