// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package terminal

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLineAndText(t *testing.T) {
	for s, want := range map[string]struct{ line, text string }{
		"":                         {"", ""},
		"xdp_pass":                 {"xdp_pass", "xdp_pass"},
		"größer 程序 é":              {"größer 程序 é", "größer 程序 é"},
		`C:\bpf "quoted"`:          {`C:\bpf "quoted"`, `C:\bpf "quoted"`},
		"\x1b[2J\x1b]0;title\a":    {`\x1b[2J\x1b]0;title\a`, `\x1b[2J\x1b]0;title\a`},
		"C1: \u009b31m":            {`C1: \u009b31m`, `C1: \u009b31m`},
		"no UTF-8: \x9b31m\xff":    {`no UTF-8: \x9b31m\xff`, `no UTF-8: \x9b31m\xff`},
		"a\u202egnp.exe":           {`a\u202egnp.exe`, `a\u202egnp.exe`},
		"two\nlines\tand\rback":    {`two\nlines\tand\rback`, "two\nlines\tand\\rback"},
		"NUL \x00 and DEL \x7f":    {`NUL \x00 and DEL \x7f`, `NUL \x00 and DEL \x7f`},
		"replacement \ufffd":       {"replacement \ufffd", "replacement \ufffd"},
		"tag \U000e0041 is hidden": {`tag \U000e0041 is hidden`, `tag \U000e0041 is hidden`},
	} {
		if got := Line(s); got != want.line {
			t.Errorf("Line(%q) = %q, want %q", s, got, want.line)
		}
		if got := Text(s); got != want.text {
			t.Errorf("Text(%q) = %q, want %q", s, got, want.text)
		}
	}
}

// FuzzSafe checks that the output contains only printable characters and the characters to keep, that printable
// text doesn't change, and that JSON keeps its meaning.
func FuzzSafe(f *testing.F) {
	for _, s := range []string{"xdp_pass", "\x1b[2J", "\u009b31m", "\xff", "a\u202eb", "\n\t\r", "\U000e0041", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, c := range map[string]struct{ got, kept string }{"Line": {Line(s), ""}, "Text": {Text(s), "\n\t"}} {
			if at := strings.IndexFunc(c.got, func(r rune) bool { return !strconv.IsPrint(r) && !strings.ContainsRune(c.kept, r) }); at >= 0 || !utf8.ValidString(c.got) {
				t.Errorf("%s(%q) = %q has what isn't printable", name, s, c.got)
			}
			if again := map[string]func(string) string{"Line": Line, "Text": Text}[name](c.got); again != c.got {
				t.Errorf("%s(%q) = %q changes again", name, s, c.got)
			}
		}
		encoded, err := json.MarshalIndent(map[string]string{s: s}, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		safe := JSON(string(encoded))
		if Text(safe) != safe {
			t.Errorf("JSON of %q has what isn't printable: %q", s, safe)
		}
		var before, after any
		if json.Unmarshal(encoded, &before) != nil || json.Unmarshal([]byte(safe), &after) != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("JSON of %q means something else: %s", s, safe)
		}
	})
}
