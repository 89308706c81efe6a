// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tracefs

import (
	"reflect"
	"testing"
	"time"
)

// A trace of Linux 6.18, partly shortened. The last print is made up.
const traced = `             pwd-3739    [001] ...21 13900.217919: bpf_trace_printk: hello 3739

             pwd-3739    [001] ...21 13900.219438: <stack trace>
 => bpf_trace_printk+0xdd/0x100 <ffffffff814bb93d>
 => bpf_prog_ff458997a0b52653_say+0x41/0x4f <ffffffffc00324d5>
 => bpf_prog_bebf47a9d724328d_hit+0x1d/0x23 [module] <ffffffffc0022129>
 => trace_call_bpf+0x13e/0x320 <ffffffff814bcc4e>
             one-11      [000] ...2.     0.280794: bpf_trace_printk: first
             two-12      [001] ...2.     0.280799: bpf_trace_printk: second
             two-12      [001] ...2.     0.280803: <stack trace>
 => bpf_prog_2_two <ffffffffc0000002>
             one-11      [000] ...2.     0.280829: <stack trace>
 => bpf_prog_1_one <ffffffffc0000001>
CPU:1 [LOST 12 EVENTS]
 a-b 1 [x]-7 (    -1) [000] d..31     1.000002: bpf_trace_printk: two
lines
           other-8       [000] ...21     1.000003: <stack trace>
 => not_of_it <ffffffff814bb93d>
`

func TestParse(t *testing.T) {
	want := []Print{
		{Process: "pwd", PID: 3739, CPU: 1, Elapsed: 13900*time.Second + 217919*time.Microsecond, Text: "hello 3739", Stack: []Frame{
			{"bpf_trace_printk", 0xffffffff814bb93d},
			{"bpf_prog_ff458997a0b52653_say", 0xffffffffc00324d5},
			{"bpf_prog_bebf47a9d724328d_hit", 0xffffffffc0022129},
			{"trace_call_bpf", 0xffffffff814bcc4e},
		}},
		{Process: "two", PID: 12, CPU: 1, Elapsed: 280799 * time.Microsecond, Text: "second", Stack: []Frame{{"bpf_prog_2_two", 0xffffffffc0000002}}},
		{Process: "one", PID: 11, CPU: 0, Elapsed: 280794 * time.Microsecond, Text: "first", Stack: []Frame{{"bpf_prog_1_one", 0xffffffffc0000001}}},
		{Process: "a-b 1 [x]", PID: 7, CPU: 0, Elapsed: time.Second + 2*time.Microsecond, Text: "two\nlines", Lost: 12},
	}
	for _, size := range []int{1, 7, len(traced)} {
		var p Parser
		var got []Print
		for rest := traced; rest != ""; {
			n := min(size, len(rest))
			got = append(got, p.Parse([]byte(rest[:n]))...)
			rest = rest[n:]
		}
		got = append(got, p.Flush()...)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("in pieces of %d:\ngot  %+v\nwant %+v", size, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(traced), 3)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		var whole, pieces Parser
		cut = min(max(cut, 0), len(text))
		got := append(pieces.Parse(text[:cut]), pieces.Parse(text[cut:])...)
		if want := whole.Parse(text); len(text) < maxText && !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}
