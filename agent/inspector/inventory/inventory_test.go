// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"errors"
	"testing"

	"github.com/bpfman/bpfman-operator/agent/inspector/kernel"
	"github.com/bpfman/bpfman-operator/agent/inspector/report"
)

// A failure ends when there is nothing left to read.
func TestFailureEnds(t *testing.T) {
	i := &Inventory{
		facts: report.Facts{
			Programs: []kernel.Program{{ID: 1}},
			Links:    []kernel.Link{{Program: 1}},
		},
		unresolved: map[string]error{},
	}
	for what, read := range map[string]func(){
		"maps of programs": i.readContents, "network": i.readNetwork, "cgroups": func() { i.readCgroups(false, false) },
	} {
		i.tried(what, errors.New("permission denied"))
		if read(); len(i.Failures()) != 0 {
			t.Errorf("left: %v", i.Failures())
		}
	}
}
