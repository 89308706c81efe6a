// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// lineFormats are the formats of commands that print until they are ended, instead of a list.
var lineFormats = []string{"json", "yaml"}

// addLineFormat adds the flag for one of these formats. what is what such a command prints.
func addLineFormat(command *cobra.Command, format *string, what string) {
	command.Flags().StringVarP(format, "output", "o", "", "Output format: json, with one object on each line, or yaml, with one document for each "+what+".")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(lineFormats, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

func checkLineFormat(format string) error {
	if format != "" && !slices.Contains(lineFormats, format) {
		return fmt.Errorf("--output: %q is not one of %s", format, strings.Join(lineFormats, ", "))
	}
	return nil
}

// printValue prints a value as a line of JSON, or as a document of YAML.
func printValue(w io.Writer, format string, value any) error {
	var text string
	if format == "yaml" {
		document, err := output.YAML(value)
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		text = "---\n" + string(document)
	} else {
		line, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode %T: %w", value, err)
		}
		text = terminal.JSON(string(line)) + "\n"
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
