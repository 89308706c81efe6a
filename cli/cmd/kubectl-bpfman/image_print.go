// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

func printImage(w io.Writer, flags *output.Flags, image *BytecodeImage) error {
	if !flags.Human() {
		return flags.Print(w, image)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "Image:      %s\n", terminal.Line(image.Image))
	if image.Digest != "" {
		fmt.Fprintf(&out, "Digest:     %s\n", image.Digest)
	}
	for _, o := range image.Objects {
		if len(image.Objects) > 1 {
			fmt.Fprintln(&out)
		}
		if len(o.Platforms) > 0 {
			fmt.Fprintf(&out, "Platforms:  %s\n", terminal.Line(strings.Join(o.Platforms, ", ")))
		}
		fmt.Fprintf(&out, "Object:     %s, %s-endian\n", terminal.Line(o.File), o.ByteOrder)
		if o.License != "" {
			fmt.Fprintf(&out, "License:    %s\n", terminal.Line(o.License))
		}
		for _, need := range o.Needs {
			fmt.Fprintf(&out, "Needs:      %s\n", terminal.Line(need))
		}
		for _, problem := range o.Problems {
			fmt.Fprintf(&out, "Problem:    %s\n", terminal.Line(problem))
		}
		for _, remark := range o.Remarks {
			fmt.Fprintf(&out, "Note:       %s\n", terminal.Line(remark))
		}
		err := errors.Join(
			section(&out, "Programs", programColumns, o.Programs),
			section(&out, "Maps", mapColumns, o.Maps),
			section(&out, "Global variables", variableColumns(o.ByteOrder), o.Globals),
		)
		if err != nil {
			return err
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

func section[T any](w io.Writer, title string, columns []output.Column[T], items []T) error {
	if len(items) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\n%s:\n", title); err != nil {
		return err
	}
	return output.Table[T]{Columns: columns}.Print(w, output.NewFlags(), slices.Clone(items))
}

var programColumns = []output.Column[object.Program]{
	{Name: "NAME", Cell: func(p object.Program) any { return p.Name }},
	{Name: "TYPE", Cell: func(p object.Program) any { return p.Type }},
	{Name: "SECTION", Cell: func(p object.Program) any { return p.Section }},
	{Name: "NEEDS", Cell: func(p object.Program) any { return strings.Join(p.Needs, ", ") }},
	{Name: "LOADABLE", Cell: func(p object.Program) any {
		switch {
		case p.Since != "":
			return "by " + p.Since
		case p.Unsupported != "":
			return "no: " + p.Unsupported
		}
		return "yes"
	}},
}

var mapColumns = []output.Column[object.Map]{
	{Name: "NAME", Cell: func(m object.Map) any { return m.Name }},
	{Name: "TYPE", Cell: func(m object.Map) any { return m.Type }},
	{Name: "KEY", Cell: func(m object.Map) any { return int64(m.KeySize) }},
	{Name: "VALUE", Cell: func(m object.Map) any { return int64(m.ValueSize) }},
	{Name: "ENTRIES", Cell: func(m object.Map) any { return int64(m.MaxEntries) }},
	{Name: "PINNED", Cell: func(m object.Map) any {
		if m.PinnedByName {
			return "by name"
		}
		return ""
	}},
}

func variableColumns(byteOrder string) []output.Column[object.Variable] {
	const shown = 48 // in characters of a value
	return []output.Column[object.Variable]{
		{Name: "NAME", Cell: func(v object.Variable) any { return v.Name }},
		{Name: "TYPE", Cell: func(v object.Variable) any { return v.Type }},
		{Name: "SIZE", Cell: func(v object.Variable) any { return int64(v.Size) }},
		{Name: "DEFAULT", Cell: func(v object.Variable) any {
			value := v.Value(byteOrder)
			if len(value) > shown {
				value = value[:shown] + "…"
			}
			return value
		}},
		{Name: "CONSTANT", Cell: func(v object.Variable) any { return strconv.FormatBool(v.Constant()) }},
	}
}
