// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package output

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// Column is a column of a table.
type Column[T any] struct {
	// Name is the header, in capitals.
	Name string
	// Wide means that only -o wide shows the column.
	Wide bool
	// Heading means that the value is a line above the rows that share it, except with -o wide and without headers.
	Heading bool
	// Cell returns the value for an item: a string, an int64, a metav1.Time, which is printed as an age, or nil if the
	// value isn't known.
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

// Without returns the table without a column.
func (t Table[T]) Without(name string) Table[T] {
	t.Columns = slices.DeleteFunc(slices.Clone(t.Columns), func(c Column[T]) bool { return c.Name == name })
	return t
}

// Keys are the columns that --sort-by takes.
func (t Table[T]) Keys() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = strings.ToLower(c.Name)
	}
	return names
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
		return fmt.Errorf("--sort-by: there is no column %q: specify one of %s", by, strings.Join(t.Keys(), ", "))
	}
	slices.SortStableFunc(items, func(a, b T) int { return compare(t.Columns[i].Cell(a), t.Columns[i].Cell(b)) })
	return nil
}

// compare compares cells, which have the same type in a column, or are nil, which is the lowest. It compares numbers
// by value.
func compare(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
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
	columns, headings := t.columns(f)
	rows := make([][]string, 1, len(items)+1)
	for _, c := range columns {
		rows[0] = append(rows[0], c.Name)
	}
	for _, item := range items {
		rows = append(rows, cells(columns, item))
	}
	widths := fit(rows, width(w, f))
	lines := bufio.NewWriter(w) // keeps its first error for Flush
	if !f.noHeaders && len(items) > 0 {
		writeRow(lines, rows[0], widths)
	}
	above := ""
	for i, item := range items {
		if heading := strings.Join(cells(headings, item), " "); heading != above {
			above = heading
			fmt.Fprintln(lines, heading)
		}
		writeRow(lines, rows[i+1], widths)
	}
	if err := lines.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// columns returns the columns to show, and those whose values are above the rows.
func (t Table[T]) columns(f *Flags) (columns, headings []Column[T]) {
	for _, c := range t.Columns {
		switch {
		case c.Heading && !f.Wide() && !f.noHeaders:
			headings = append(headings, c)
		case !c.Wide || f.Wide():
			columns = append(columns, c)
		}
	}
	return columns, headings
}

func writeRow(w io.Writer, row []string, widths []int) {
	last := len(row) - 1
	for j, cell := range row[:last] {
		fmt.Fprintf(w, "%-*s", widths[j]+between, cell)
	}
	fmt.Fprintln(w, row[last])
}

func cells[T any](columns []Column[T], item T) []string {
	texts := make([]string, len(columns))
	for j, c := range columns {
		texts[j] = shown(c.Cell(item))
	}
	return texts
}

// The least width of a column, and the number of spaces after it, are those of kubectl's tables.
const leastWidth, between = 3, 3

// width returns the width that the table must fit in. What is redirected isn't shortened, because somebody looks for
// something in it.
func width(w io.Writer, f *Flags) int {
	if width, _, ok := terminal.Size(w); ok && width > 0 && !f.Wide() {
		return width
	}
	return math.MaxInt
}

// shown returns a cell's text.
func shown(cell any) string {
	switch cell := cell.(type) {
	case nil:
		return none
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

// fit shortens the longest cells of rows until their lines fit in a width, but not below the width of their column's
// header, which is the first row. It returns the widths of the columns.
func fit(rows [][]string, width int) []int {
	headers := rows[0]
	widths := make([]int, len(headers))
	total := between * (len(widths) - 1)
	for j := range widths {
		widths[j] = leastWidth
		for _, row := range rows {
			widths[j] = max(widths[j], utf8.RuneCountInString(row[j]))
		}
		total += widths[j]
	}
	for total > width {
		longest := -1
		for j, header := range headers {
			if widths[j] > max(len(header), leastWidth) && (longest < 0 || widths[j] > widths[longest]) {
				longest = j
			}
		}
		if longest < 0 {
			break
		}
		widths[longest]--
		total--
	}
	for _, row := range rows {
		for j, cell := range row {
			if runes := []rune(cell); len(runes) > widths[j] {
				row[j] = string(runes[:widths[j]-1]) + "…"
			}
		}
	}
	return widths
}
