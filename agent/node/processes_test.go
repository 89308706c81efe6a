// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/agent/program"
)

func TestCheckProcesses(t *testing.T) {
	proc := newHostProc(t)
	proc.process(10, "/kubepods/podu1/sandbox1", "eth0")
	proc.process(21, "/kubepods.slice/crio-c2.scope", "eth0")
	check := CheckProcesses(proc.dir)
	for _, c := range []struct {
		process program.Process
		failure string
	}{
		{program.Process{PID: 10, Of: "sandbox1"}, ""},
		{program.Process{PID: 21, Of: "c2"}, ""},
		{program.Process{PID: 10, Of: "c2"}, "process 10 of the container or sandbox c2 has ended"},
		{program.Process{PID: 1, Of: "sandbox1"}, "has ended"},
		{program.Process{PID: 11, Of: "sandbox1"}, "has ended"},
		{program.Process{PID: 1}, "has ended"},
	} {
		err := check(c.process)
		if (err != nil) != (c.failure != "") || err != nil && !strings.Contains(err.Error(), c.failure) {
			t.Errorf("%v: %v, want %q", c.process, err, c.failure)
		}
	}
	if err := CheckProcesses(t.TempDir())(program.Process{PID: 10, Of: "sandbox1"}); err != nil {
		t.Errorf("hidepid: %v", err)
	}
}
