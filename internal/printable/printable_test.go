// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package printable

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for raw, want := range map[string]string{
		"plain":                  "plain",
		"":                       "",
		"größer 漢字":              "größer 漢字",
		"\x1b[31mred":            `\x1b[31mred`,
		"a\nb\tc\x00d\x7f":       `a\nb\tc\x00d\x7f`,
		"\xff\xfe":               `\xff\xfe`,
		"\u202eright to left":    `\u202eright to left`,
		"\u2066isolate\ufeff":    `\u2066isolate\ufeff`,
		`back\slash`:             `back\\slash`,
		"'quoted' \"too\"":       "'quoted' \"too\"",
		"\ufffd is itself":       "\ufffd is itself",
		"\U000e0041 isn't shown": `\U000e0041 isn't shown`,
	} {
		if got := Text(raw); got != want {
			t.Errorf("%q is %s, want %s", raw, got, want)
		}
	}
	if long := Text(strings.Repeat("ä\x00", maxText)); len(long) > maxText || !strings.HasSuffix(long, cut) || !utf8.ValidString(long) {
		t.Errorf("%d bytes", len(long))
	}
}

func FuzzText(f *testing.F) {
	f.Add("plain", "plain\x00")
	f.Add("\x1b[31m\xff", `\x1b[31m\xff`)
	f.Add("\u202e\\", "\\u202e\\\\")
	f.Fuzz(func(t *testing.T, a, b string) {
		text := Text(a)
		if !utf8.ValidString(text) || len(text) > maxText {
			t.Errorf("%q became %q", a, text)
		}
		for _, r := range text {
			if !strconv.IsPrint(r) {
				t.Errorf("%q has %q, which can't be printed", text, r)
			}
		}
		// Encoding an API object doesn't change the text.
		encoded, err := json.Marshal(text)
		var decoded string
		if err != nil || json.Unmarshal(encoded, &decoded) != nil || decoded != text {
			t.Errorf("%q became %q as JSON, %v", text, decoded, err)
		}
		if a != b && text == Text(b) && !strings.HasSuffix(text, cut) {
			t.Errorf("%q and %q are both %q", a, b, text)
		}
	})
}
