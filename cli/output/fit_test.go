// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package output

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The longest cells of a table are shortened until its lines fit, but not to less than the headers.
func TestFit(t *testing.T) {
	for name, c := range map[string]struct {
		width int
		want  []any
	}{
		"it fits":            {64, []any{"worker-1", "1", "a_long_name_of_a_program", "héllo, wörld and more"}},
		"the longest":        {63, []any{"worker-1", "1", "a_long_name_of_a_progr…", "héllo, wörld and more"}},
		"both":               {54, []any{"worker-1", "1", "a_long_name_of_a…", "héllo, wörld and …"}},
		"not below a header": {10, []any{"wor…", "1", "a_l…", "héll…"}},
	} {
		t.Run(name, func(t *testing.T) {
			table := metav1.Table{
				ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "NODE"}, {Name: "ID"}, {Name: "NAME"}, {Name: "OWNER"}},
				Rows:              []metav1.TableRow{{Cells: []any{"worker-1", "1", "a_long_name_of_a_program", "héllo, wörld and more"}}, {Cells: []any{"w", "1", "a", "b"}}},
			}
			fit(&table, c.width)
			if diff := cmp.Diff(c.want, table.Rows[0].Cells); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]any{"w", "1", "a", "b"}, table.Rows[1].Cells); diff != "" {
				t.Error(diff)
			}
		})
	}
}
