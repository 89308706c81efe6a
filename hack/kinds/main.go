// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command kinds writes what files of this repository list for each kind of the API, from the tables in
// apis/v1alpha1/kinds.go:
//
//	kinds lists   the roles of users, and the lists in manifests, definitions, and documentation
//	kinds chart   the definitions that Artifact Hub shows, from config/crd/bases
//	kinds definitions   the schemas that kubectl bpfman validate checks, from config/crd/bases
//	kinds files   nothing: it prints the names of these files
//
// Its working directory is the root of the repository.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/bpfman/bpfman-operator/hack/rewrite"
)

const (
	rolesFile = "config/rbac/users/roles.yaml"
	chartFile = "charts/bpfman-operator/Chart.yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kinds:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch strings.Join(args, " ") {
	case "lists":
		if err := os.WriteFile(rolesFile, []byte(userRoles()), 0o644); err != nil { //nolint:gosec // it is in the repository
			return fmt.Errorf("write the roles of users: %w", err)
		}
		for _, l := range lists {
			if err := rewrite.File(l.file, l.rewrite); err != nil {
				return err
			}
		}
		return nil
	case "chart":
		return rewrite.File(chartFile, func(text string) (string, error) { return inChart(text, "config/crd/bases") })
	case "definitions":
		return writeDefinitions("config/crd/bases")
	case "files":
		fmt.Println(rolesFile, chartFile, definitionsFile)
		for _, l := range lists {
			fmt.Println(l.file)
		}
		return nil
	}
	return errors.New("usage: kinds lists|chart|definitions|files")
}
