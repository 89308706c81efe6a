// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package plain converts text from a registry or an image to text that is safe in a
// terminal, a log, or the status of an object.
package plain

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Max is the maximum length of a text from a registry in a message, in bytes.
const Max = 200

// Text escapes what isn't printable, such as control characters, and those that change
// the direction of text. It cuts the text to Max bytes.
func Text(text string) string { return Truncate(text, Max) }

// Quote is like Text, with quotation marks.
func Quote(text string) string { return `"` + strings.ReplaceAll(Text(text), `"`, `\"`) + `"` }

// Truncate is like Text, with another maximum length.
func Truncate(text string, limit int) string {
	var b strings.Builder
	for i, r := range text {
		part := string(r)
		switch _, size := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1:
			part = `\x` + strconv.FormatUint(uint64(text[i]), 16)
		case !unicode.IsPrint(r):
			part = strings.Trim(strconv.QuoteRune(r), "'")
		}
		if b.Len()+len(part) > limit {
			return b.String() + "…"
		}
		b.WriteString(part)
	}
	return b.String()
}
