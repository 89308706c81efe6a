// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command keys writes what files of this repository say about each key of the ConfigMap bpfman-config, from the table in
// operator/deploy/keys.go:
//
//	keys write   the ConfigMap, the chart's values with their schema and template, and the tables of the documentation
//	keys files   nothing: it prints the names of these files
//
// Its working directory is the root of the repository.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/bpfman/bpfman-operator/hack/rewrite"
	"github.com/bpfman/bpfman-operator/operator/deploy"
)

// output is a file that is written from the table, with its text before as input.
type output struct {
	file  string
	write func(text string, keys []deploy.Key) (string, error)
}

var outputs = []output{
	{"config/bpfman-deployment/config.yaml", configMap},
	{"charts/bpfman-operator/templates/_config.tpl", template},
	{"charts/bpfman-operator/values.yaml", values},
	{"charts/bpfman-operator/values.schema.json", schema},
	{"docs/configuration.md", tables},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch strings.Join(args, " ") {
	case "write":
		for _, o := range outputs {
			err := rewrite.File(o.file, func(text string) (string, error) { return o.write(text, deploy.Keys()) })
			if err != nil {
				return err
			}
		}
		return nil
	case "files":
		for _, o := range outputs {
			fmt.Println(o.file)
		}
		return nil
	}
	return errors.New("usage: keys write|files")
}
