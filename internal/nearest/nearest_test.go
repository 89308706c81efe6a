// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package nearest

import (
	"slices"
	"testing"
)

func TestName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		misspelled string
		names      []string
		want       string
	}{
		{"tcx_statz", []string{"xdp_stats", "tcx_stats"}, "tcx_stats"},
		{"TcxProgramm", []string{"TcProgram", "TcxProgram", "TcxNsProgram"}, "TcxProgram"},
		{"tcxprogram", []string{"TcxProgram"}, "TcxProgram"},
		{"eth0", []string{"ens5", "lo"}, ""},
		{"syscalls/sys_enter_opnat", []string{"syscalls/sys_enter_open", "syscalls/sys_enter_openat", "sched/sched_switch"}, "syscalls/sys_enter_openat"},
		{"", []string{"a"}, ""},
		{"a", nil, ""},
	} {
		if got := Name(test.misspelled, slices.Values(test.names)); got != test.want {
			t.Errorf("%q of %q: %q, want %q", test.misspelled, test.names, got, test.want)
		}
	}
	if got := Question("lo0", slices.Values([]string{"lo"})); got != "; did you mean lo?" {
		t.Errorf("%q", got)
	}
}
