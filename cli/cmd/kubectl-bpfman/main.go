// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command kubectl-bpfman is kubectl's plugin `kubectl bpfman`.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// exitLoss is the exit code of a conversion that --strict refuses.
const exitLoss = 2

func main() {
	err := root().Execute()
	switch {
	case errors.Is(err, errLoss):
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(exitLoss)
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	command := &cobra.Command{
		Use:           "kubectl-bpfman",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl bpfman"},
		Short:         "Work with bpfman's eBPF programs",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	command.AddCommand(convertCommand())
	return command
}
