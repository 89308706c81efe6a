// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem_test

import (
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Each problem has a name of its own, messages, and something to do, and its links are in what to do.
func TestRows(t *testing.T) {
	named := map[problem.Reason]bool{}
	for _, section := range problem.Table() {
		for _, row := range section.Rows {
			if named[row.Reason] || len(row.Messages)+len(row.Daemon) == 0 || row.ToDo == "" {
				t.Errorf("%+v", row)
			}
			named[row.Reason] = true
			for _, link := range row.Links {
				if !strings.Contains(row.ToDo, link.Text) || link.Page == "" {
					t.Errorf("%s: %+v", row.Reason, link)
				}
			}
		}
	}
}
