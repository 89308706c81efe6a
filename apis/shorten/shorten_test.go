// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package shorten

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// rejection returns an agent's error with a log of the kernel's verifier, in the format of bpfman v0.6.0 on Linux
// 6.18.
func rejection(instructions int) string {
	var log strings.Builder
	for n := range instructions {
		fmt.Fprintf(&log, "%d: (73) *(u8 *)(r0 +27) = r1       ; R0=map_value(map=flows,ks=4,vs=96)\n", n)
	}
	return "load late from image quay.io/example/late:v1: one or more programs failed to load: [BpfProgramError(LoadError " +
		`{ io_error: Os { code: 13, kind: PermissionDenied, message: "Permission denied" }, verifier_log: ` + log.String() +
		"invalid access to map value, value_size=96 off=98 size=1\nR0 min value is outside of the allowed memory range\n" +
		"verification time 35897 usec\nstack depth 8\n" +
		"processed 2106 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n })]" +
		" (the previously loaded program 104 keeps running)"
}

func TestMiddleKeepsAttemptAndVerdict(t *testing.T) {
	text := rejection(5000)
	// The limits of a condition, an Event, and a failure in the status of a user object. Each is made from the
	// previous one.
	for _, limit := range []int{32768, 1024, 600} {
		text = Middle(text, limit)
		if len(text) > limit {
			t.Errorf("%d bytes, want at most %d", len(text), limit)
		}
		for _, kept := range []string{
			"load late from image quay.io/example/late:v1: ", "Permission denied",
			"invalid access to map value, value_size=96 off=98 size=1\n", "(the previously loaded program 104 keeps running)",
		} {
			if !strings.Contains(text, kept) {
				t.Errorf("limit %d: no %q in %q", limit, kept, text)
			}
		}
		left := len(rejection(5000))
		for _, part := range marked.Split(text, -1) {
			left -= len(part)
		}
		if want := fmt.Sprintf("(%d bytes left out)", left); strings.Count(text, "left out") != 1 || !strings.Contains(text, want) {
			t.Errorf("limit %d: want one mark, %q, in %q", limit, want, text)
		}
	}
}

func TestMiddle(t *testing.T) {
	words := strings.Repeat("word ", 100)
	for name, test := range map[string]struct{ text, want string }{
		"short":     {"load f: no", "load f: no"},
		"words":     {words, strings.Repeat("word ", 6) + "word … (411 bytes left out) … " + strings.Repeat("word ", 11)},
		"one word":  {strings.Repeat("x", 200), strings.Repeat("x", 36) + " … (108 bytes left out) … " + strings.Repeat("x", 56)},
		"no letter": {strings.Repeat("é", 100), strings.Repeat("é", 18) + " … (108 bytes left out) … " + strings.Repeat("é", 28)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Middle(test.text, 128); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func FuzzMiddle(f *testing.F) {
	f.Add(rejection(40), 600)
	f.Add(strings.Repeat("é", 400), 128)
	f.Add(strings.Repeat("x … (999999999 bytes left out) … y", 9), 128)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 128 || limit > 1<<20 {
			t.Skip("no limit of ours")
		}
		got := Middle(text, limit)
		if len(got) > limit || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%d bytes for %d: %q", len(got), limit, got)
		}
		if len(text) <= limit && got != text {
			t.Errorf("%q became %q", text, got)
		}
		// A text can contain what looks like a mark.
		parts := marked.Split(got, -1)
		if len(text) > limit && !strings.Contains(text, "left out") &&
			(len(parts) != 2 || !strings.HasPrefix(text, parts[0]) || !strings.HasSuffix(text, parts[1])) {
			t.Errorf("%q isn't of head and tail of %q", got, text)
		}
	})
}
