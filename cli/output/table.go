// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package output

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// Column is a column of a table.
type Column[T any] struct {
	// Name is the header, in capitals.
	Name string
	// Wide means that only -o wide shows the column.
	Wide bool
	// Cell returns the value for an item: a string, an int64, or a metav1.Time, which is printed as an age.
	Cell func(T) any
}

// Table prints items of one type.
type Table[T any] struct {
	// Kind is the kind of the items in JSON and YAML, such as Map. The kind of the list is then MapList.
	Kind string
	// Columns are the columns of the table.
	Columns []Column[T]
	// Name returns what -o name prints for an item, such as tcxprogram.bpfman.io/counter. If it is nil, -o name
	// isn't supported.
	Name func(T) string
}

// Print prints the items in the format of the flags. With a column to sort by, it reorders items.
func (t Table[T]) Print(w io.Writer, f *Flags, items []T) error {
	if err := t.sort(items, f.sortBy); err != nil {
		return err
	}
	switch {
	case f.Human():
		return t.table(w, f, items)
	case f.Format() == name && t.Name != nil:
		for _, item := range items {
			if _, err := fmt.Fprintln(w, terminal.Line(t.Name(item))); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
		return nil
	case f.Format() == name:
		return fmt.Errorf("a %s has no name that -o name could print", t.Kind)
	}
	list := List[T]{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: t.Kind + "List"}, Items: items}
	if items == nil {
		list.Items = []T{}
	}
	return f.Print(w, &list)
}

func (t Table[T]) sort(items []T, by string) error {
	if by == "" {
		return nil
	}
	i := slices.IndexFunc(t.Columns, func(c Column[T]) bool { return strings.EqualFold(c.Name, by) })
	if i < 0 {
		names := make([]string, len(t.Columns))
		for i, c := range t.Columns {
			names[i] = c.Name
		}
		return fmt.Errorf("--sort-by: there is no column %q: specify one of %s", by, strings.Join(names, ", "))
	}
	slices.SortStableFunc(items, func(a, b T) int { return compare(t.Columns[i].Cell(a), t.Columns[i].Cell(b)) })
	return nil
}

// compare compares cells, which have the same type in a column. It compares numbers by value.
func compare(a, b any) int {
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
	case metav1.Time:
		if b, ok := b.(metav1.Time); ok {
			return a.Compare(b.Time)
		}
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

// none is what kubectl prints for an empty value.
const none = "<none>"

func (t Table[T]) table(w io.Writer, f *Flags, items []T) error {
	columns := slices.DeleteFunc(slices.Clone(t.Columns), func(c Column[T]) bool { return c.Wide && !f.Wide() })
	table := metav1.Table{Rows: make([]metav1.TableRow, len(items))}
	for _, c := range columns {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: c.Name, Type: "string"})
	}
	for i, item := range items {
		cells := make([]any, len(columns))
		for j, c := range columns {
			cells[j] = shown(c.Cell(item))
		}
		table.Rows[i].Cells = cells
	}
	if width, _, ok := terminal.Size(w); ok && width > 0 && !f.Wide() {
		fit(&table, width)
	}
	// The printer writes each cell and each separator in a separate call.
	lines := bufio.NewWriter(w)
	if err := printers.NewTablePrinter(printers.PrintOptions{NoHeaders: f.noHeaders}).PrintObj(&table, lines); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if err := lines.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// shown returns a cell's text.
func shown(cell any) string {
	switch cell := cell.(type) {
	case metav1.Time:
		if cell.IsZero() {
			return none
		}
		return duration.HumanDuration(time.Since(cell.Time))
	case string:
		return cmp.Or(terminal.Line(cell), none)
	default:
		return fmt.Sprint(cell)
	}
}

// fit shortens the longest texts of a table until its lines fit in the width of a terminal, but not below the width of
// their column's header.
func fit(table *metav1.Table, width int) {
	const between = 3 // spaces, which the printer puts after each column
	widths := make([]int, len(table.ColumnDefinitions))
	total := between * (len(widths) - 1)
	for j, c := range table.ColumnDefinitions {
		widths[j] = len(c.Name)
		for _, row := range table.Rows {
			widths[j] = max(widths[j], utf8.RuneCountInString(fmt.Sprint(row.Cells[j])))
		}
		total += widths[j]
	}
	for total > width {
		longest := -1
		for j, c := range table.ColumnDefinitions {
			if widths[j] > len(c.Name) && (longest < 0 || widths[j] > widths[longest]) {
				longest = j
			}
		}
		if longest < 0 {
			break
		}
		widths[longest]--
		total--
	}
	for _, row := range table.Rows {
		for j, cell := range row.Cells {
			if runes := []rune(fmt.Sprint(cell)); len(runes) > widths[j] {
				row.Cells[j] = string(runes[:widths[j]-1]) + "…"
			}
		}
	}
}
