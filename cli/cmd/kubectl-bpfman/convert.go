// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bpfman/bpfman-operator/cli/convert"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// errLoss means that --strict prevents a conversion.
var errLoss = errors.New("the conversion would lose something, and --strict is set: nothing is printed")

const convertLong = `Convert objects of upstream's bpfman-operator v0.6 that this project doesn't serve: a BpfApplication, which is namespaced in upstream's API, becomes a BpfNsApplication. Objects of other kinds, such as ClusterBpfApplications, are printed unchanged.

The objects are written to standard output. Differences are written to standard error, with one line for each field: "lost" if the output lacks something that the input has, or "note" if the output expresses it in another way. If an object can't be converted, no object is printed.`

const convertExample = `  # Convert the objects of a cluster
  kubectl get bpfapplications -A -o yaml | kubectl bpfman convert -f - >ours.yaml

  # Convert the manifests in a directory, and fail if anything is lost
  kubectl bpfman convert -f manifests/ --strict`

type convertOptions struct {
	files  []string
	output string
	strict bool
}

func convertCommand() *cobra.Command {
	var o convertOptions
	command := &cobra.Command{
		Use:               "convert -f FILE",
		Short:             "Convert objects of upstream's v0.6 API",
		Long:              convertLong,
		Example:           convertExample,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.StringSliceVarP(&o.files, "filename", "f", nil, "File with the objects, or directory of .yaml, .yml, and .json files; - is standard input.")
	flags.StringVarP(&o.output, "output", "o", "yaml", "Output format: yaml or json.")
	flags.BoolVar(&o.strict, "strict", false, "If anything is lost, print no object, and exit with 2.")
	_ = command.MarkFlagRequired("filename") // fails only for unknown flags
	return command
}

func (o convertOptions) run(in io.Reader, out, messages io.Writer) error {
	write, known := map[string]func(io.Writer, []any) error{"yaml": writeYAML, "json": writeJSON}[o.output]
	if !known {
		return fmt.Errorf("output format %q is neither yaml nor json", o.output)
	}
	var objects []convert.Object
	for _, name := range o.files {
		read, err := readAll(name, in)
		if err != nil {
			return err
		}
		objects = append(objects, read...)
	}
	result, err := convert.Convert(objects)
	for _, f := range result.Findings {
		if err := remark(messages, []string{f.String()}); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("convert: %w", err)
	case o.strict && result.Lost():
		return errLoss
	}
	return write(out, result.Objects)
}

// readAll reads the objects from a file, from the files of a directory, or from standard
// input.
func readAll(name string, in io.Reader) ([]convert.Object, error) {
	if name == "-" {
		return convert.Read("standard input", in)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	files := []string{name}
	if info.IsDir() {
		if files, err = manifests(name); err != nil {
			return nil, err
		}
	}
	var out []convert.Object
	for _, file := range files {
		objects, err := readFile(file)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	return out, nil
}

func readFile(name string) ([]convert.Object, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return convert.Read(name, f)
}

// manifests returns the files of a directory that kubectl would read.
func manifests(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

func writeYAML(w io.Writer, objects []any) error {
	for i, o := range objects {
		text, err := output.YAML(o)
		if err != nil {
			return fmt.Errorf("encode object %d: %w", i+1, err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return fmt.Errorf("write objects: %w", err)
		}
	}
	return nil
}

// writeJSON writes the objects like kubectl get: one object as it is, and several as a
// List.
func writeJSON(w io.Writer, objects []any) error {
	var value any = map[string]any{"apiVersion": "v1", "kind": "List", "items": append([]any{}, objects...)}
	if len(objects) == 1 {
		value = objects[0]
	}
	text, err := json.MarshalIndent(value, "", "    ")
	if err != nil {
		return fmt.Errorf("encode objects: %w", err)
	}
	if _, err := io.WriteString(w, terminal.JSON(string(text))+"\n"); err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	return nil
}
