// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plain

import (
	"strings"
	"testing"
	"unicode"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"a näme":                      "a näme",
		"\x1b[31mred\x00\u202e\xff\n": `\x1b[31mred\x00\u202e\xff\n`,
		strings.Repeat("x", Max+1):    strings.Repeat("x", Max) + "…",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Quote(`a"b`); got != `"a\"b"` {
		t.Error(got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("\u202e\x00")
	f.Fuzz(func(t *testing.T, text string) {
		got := Text(text)
		if len(got) > Max+len("…") || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", got)
		}
	})
}
