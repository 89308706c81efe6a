// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package output prints what commands found: as a table, as JSON or YAML of a versioned type, or by a template, with
// the printers that kubectl has.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// APIVersion is that of the lists and objects which commands print as JSON or YAML.
const APIVersion = "cli.bpfman.io/v1alpha1"

const (
	wide = "wide"
	name = "name"
)

// Flags choose the output of a command.
type Flags struct {
	printing  *genericclioptions.PrintFlags
	noHeaders bool
	sortBy    string
}

// NewFlags returns the flags' defaults: a table, with headers, in the command's own order.
func NewFlags() *Flags {
	return &Flags{printing: genericclioptions.NewPrintFlags("")}
}

// AddTo adds to a command the flags for tables.
func (f *Flags) AddTo(command *cobra.Command) {
	f.AddFormatTo(command)
	command.Flags().BoolVar(&f.noHeaders, "no-headers", false, "Print tables without headers.")
	command.Flags().StringVar(&f.sortBy, "sort-by", "", "Column to sort by, such as NODE.")
}

// AddFormatTo adds to a command the flags for what is no table.
func (f *Flags) AddFormatTo(command *cobra.Command) {
	f.printing.TemplatePrinterFlags.AddFlags(command)
	formats := append([]string{wide}, f.printing.AllowedFormats()...)
	command.Flags().StringVarP(f.printing.OutputFormat, "output", "o", "", "Output format, one of "+strings.Join(formats, ", ")+".")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{wide, "json", "yaml", name}, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags alone
}

// Format is the value of -o.
func (f *Flags) Format() string { return *f.printing.OutputFormat }

// Wide tells whether more is wanted than fits a line of a terminal.
func (f *Flags) Wide() bool { return f.Format() == wide }

// Human tells whether people read the output: it has no format, or the wide one.
func (f *Flags) Human() bool {
	return (f.Format() == "" || f.Wide()) && *f.printing.TemplatePrinterFlags.TemplateArgument == ""
}

// Print prints a value that isn't for people to read, by the format. Its type has the field apiVersion, which is
// filled in, and kind.
func (f *Flags) Print(w io.Writer, value any) error {
	printer, err := f.printing.ToPrinter()
	if err != nil {
		return err //nolint:wrapcheck // it says which formats there are
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
		return "", err //nolint:wrapcheck // the caller says of what
	}
	if format == "yaml" {
		// The printer can't: it reads the JSON as YAML, in which some characters mustn't be written as themselves.
		plain, err := json.Marshal(content)
		if err != nil {
			return "", err //nolint:wrapcheck // the caller says of what
		}
		text, err := yaml.JSONToYAML([]byte(terminal.JSON(string(plain))))
		return string(text), err //nolint:wrapcheck // the caller says of what
	}
	var text bytes.Buffer
	if err := printer.PrintObj(&unstructured.Unstructured{Object: content}, &text); err != nil {
		return "", err //nolint:wrapcheck // the caller says of what
	}
	if format == "json" {
		return terminal.JSON(text.String()), nil
	}
	return terminal.Text(text.String()), nil
}

// List is what is printed of several items as JSON or YAML.
type List[T any] struct {
	metav1.TypeMeta `json:",inline"`
	Items           []T `json:"items"`
}
