// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package version provides the version of a component. The operator, the agent, and the CSI plugin
// use it.
package version

import (
	"flag"
	"fmt"
	"os"
	"runtime"
)

// Version is the version of the release. The linker sets it; see hack/make/build.mk.
var Version = "dev"

// Line returns a component's name and version, such as "bpfman-agent 0.6.0".
func Line(component string) string { return component + " " + Version }

// Flag adds the flag --version to a command. It prints the version and exits.
func Flag(component string) {
	flag.BoolFunc("version", "Only print the version.", func(string) error {
		_, err := fmt.Fprintf(os.Stdout, "%s %s %s/%s\n", Line(component), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		if err != nil {
			return fmt.Errorf("print the version: %w", err)
		}
		os.Exit(0)
		return nil
	})
}
