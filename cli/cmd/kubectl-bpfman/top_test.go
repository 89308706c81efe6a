// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

func TestSparkline(t *testing.T) {
	t.Parallel()
	for want, values := range map[string][]float64{"": nil, "▁▁": {0, 0}, "█": {0.01}, "▁▄█▁": {0, 50, 100, 1}} {
		if got := sparkline(values); got != want {
			t.Errorf("%v: %q, want %q", values, got, want)
		}
	}
}

// On a terminal, each program has a history, which ends with it, and a key sorts what is shown.
func TestTopInteractive(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	ended := false
	shown := &top{
		options: topOptions{sortBy: "cpu", format: output.NewFlags()}, out: &out, screen: newScreen(&out), interactive: true,
		owners: func() map[program]string { return nil }, end: func() { ended = true }, read: time.Now(),
	}
	lines := func() []string {
		text := strings.TrimSpace(out.String())
		out.Reset()
		return strings.Split(text, "\n")
	}
	round := func(all ...usage) []string {
		t.Helper()
		if err := shown.show(map[string][]usage{"a": all}, nil); err != nil {
			t.Fatal(err)
		}
		return lines()
	}
	shown.press('r') // nothing is shown yet
	round(usage{Node: "a", ID: 1, CPU: 10, Runs: 5}, usage{Node: "a", ID: 2, CPU: 1, Runs: 50})
	got := round(usage{Node: "a", ID: 1, CPU: 5, Runs: 5}, usage{Node: "a", ID: 2, CPU: 2, Runs: 50})
	if len(got) != 4 || !strings.HasPrefix(got[0], "Sorted by cpu.") || !strings.HasSuffix(got[1], "HISTORY") || !strings.HasSuffix(got[2], "█▄") || !strings.HasSuffix(got[3], "▄█") {
		t.Errorf("%q", got)
	}
	shown.press('r')
	if got := lines(); !strings.HasPrefix(got[0], "Sorted by runs.") || !strings.HasSuffix(got[2], "▄█") {
		t.Errorf("after a key: %q", got)
	}
	round(usage{Node: "a", ID: 2, CPU: 2})
	if got := round(usage{Node: "a", ID: 1, CPU: 5}); !strings.HasSuffix(got[2], " █") {
		t.Errorf("a program that runs again: %q", got)
	}
	for range 2 * maxHistory {
		round(usage{Node: "a", ID: 1, CPU: 5})
	}
	if n := len(shown.history[program{"a", 1}]); n != maxHistory {
		t.Errorf("the history has %d rounds", n)
	}
	shown.press('x')
	if ended || out.Len() > 0 {
		t.Error("a key without a meaning did something")
	}
	for _, key := range []byte{'q', terminal.Interrupt} {
		ended = false
		if shown.press(key); !ended {
			t.Errorf("%q doesn't end it", key)
		}
	}
}
