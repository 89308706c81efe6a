// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/internal/live"
)

func TestTracePrints(t *testing.T) {
	p := printed{Node: "worker-1", Print: live.Print{PID: 7, Process: "evil\x1b[2J", Text: "a: \x9bb\u202e"}}
	for format, want := range map[string]string{
		"":     "worker-1 unknown program evil\\x1b[2J[7]: a: \\x9bb\\u202e\n",
		"json": `{"node":"worker-1","cpu":0,"process":"evil\u001b[2J","pid":7,"text":"a: \ufffdb\u202e"}` + "\n",
		"yaml": "---\ncpu: 0\nnode: worker-1\npid: 7\nprocess: \"evil\\u001b[2J\"\ntext: \"a: �b\\u202e\"\n",
	} {
		var out bytes.Buffer
		if err := (traceOptions{format: format}).show(genericiooptions.IOStreams{Out: &out}, p); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("-o %q: printed %q, want %q", format, out.String(), want)
		}
	}
}
