// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package output prints the results of commands as a table, as JSON or YAML of a versioned type, or with a
// template. It uses kubectl's printers.
package output

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// APIVersion is the apiVersion of lists and objects in JSON and YAML.
const APIVersion = "cli.bpfman.io/v1alpha1"

const (
	wide = "wide"
	name = "name"
)

// Flags are the output flags of a command.
type Flags struct {
	printing  *genericclioptions.PrintFlags
	noHeaders bool
	sortBy    string
}

// NewFlags returns the default flags: a table with headers, in the command's own order.
func NewFlags() *Flags {
	return &Flags{printing: genericclioptions.NewPrintFlags("")}
}

// AddTo adds the flags of a command that prints tables. keys are the columns to sort by.
func (f *Flags) AddTo(command *cobra.Command, keys ...string) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	f.AddFormatTo(command)
	command.Flags().BoolVar(&f.noHeaders, "no-headers", false, "Print tables without headers.")
	command.Flags().StringVar(&f.sortBy, "sort-by", "", "Column to sort by, the lowest first: "+strings.Join(keys, ", ")+".")
	_ = command.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

// AddFormatTo adds the flags of a command that doesn't print tables.
func (f *Flags) AddFormatTo(command *cobra.Command) {
	f.printing.TemplatePrinterFlags.AddFlags(command)
	formats := append([]string{wide}, f.printing.AllowedFormats()...)
	command.Flags().StringVarP(f.printing.OutputFormat, "output", "o", "", "Output format, one of "+strings.Join(formats, ", ")+".")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{wide, "json", "yaml", name}, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

// Format returns the value of -o.
func (f *Flags) Format() string { return *f.printing.OutputFormat }

// Wide reports whether the user requested more columns than fit on a terminal.
func (f *Flags) Wide() bool { return f.Format() == wide }

// Human reports whether the output is for human readers: in the default format or the wide format.
func (f *Flags) Human() bool {
	return (f.Format() == "" || f.Wide()) && *f.printing.TemplatePrinterFlags.TemplateArgument == ""
}

// Print prints a value in a machine-readable format. The type must have the fields kind and apiVersion. Print sets
// the latter.
func (f *Flags) Print(w io.Writer, value any) error {
	printer, err := f.printing.ToPrinter()
	if err != nil {
		return err
	}
	text, err := encode(printer, f.Format(), value)
	if err != nil {
		return fmt.Errorf("print %T: %w", value, err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func encode(printer printers.ResourcePrinter, format string, value any) (string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return "", err
	}
	if format == "yaml" {
		// The printer doesn't support this: it parses the JSON as YAML, which doesn't allow some unescaped
		// characters.
		text, err := YAML(content)
		return string(text), err
	}
	var text bytes.Buffer
	if err := printer.PrintObj(&unstructured.Unstructured{Object: content}, &text); err != nil {
		return "", err
	}
	if format == "json" {
		return terminal.JSON(text.String()), nil
	}
	return terminal.Text(text.String()), nil
}

// List is how several items are printed in JSON or YAML.
type List[T any] struct {
	metav1.TypeMeta `json:",inline"`
	Items           []T `json:"items"`
}
