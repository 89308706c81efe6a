// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/bpfman/bpfman-operator/apis/version"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version of this plugin",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s %s %s/%s\n", version.Line("kubectl-bpfman"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
