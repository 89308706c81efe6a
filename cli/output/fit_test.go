// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package output

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The longest cells of a table are shortened until its lines fit, but not to less than the headers.
func TestFit(t *testing.T) {
	for name, c := range map[string]struct {
		width int
		want  []string
	}{
		"it fits":            {65, []string{"worker-1", "1", "a_long_name_of_a_program", "héllo, wörld and more"}},
		"the longest":        {64, []string{"worker-1", "1", "a_long_name_of_a_progr…", "héllo, wörld and more"}},
		"both":               {55, []string{"worker-1", "1", "a_long_name_of_a…", "héllo, wörld and …"}},
		"not below a header": {10, []string{"wor…", "1", "a_l…", "héll…"}},
	} {
		t.Run(name, func(t *testing.T) {
			rows := [][]string{{"NODE", "ID", "NAME", "OWNER"}, {"worker-1", "1", "a_long_name_of_a_program", "héllo, wörld and more"}, {"w", "1", "a", "b"}}
			fit(rows, c.width)
			if diff := cmp.Diff([][]string{{"NODE", "ID", "NAME", "OWNER"}, c.want, {"w", "1", "a", "b"}}, rows); diff != "" {
				t.Error(diff)
			}
		})
	}
}
