// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/cli/output"
)

// PluginVersion is the version of this plugin.
type PluginVersion struct {
	metav1.TypeMeta `json:",inline"`

	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	// Platform is for example linux/amd64.
	Platform string `json:"platform"`
}

func versionCommand(streams genericiooptions.IOStreams) *cobra.Command {
	format := output.NewFlags()
	command := &cobra.Command{
		Use:               "version",
		Short:             "Print the version of this plugin",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			v := PluginVersion{
				TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "PluginVersion"},
				Version:  version.Version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			}
			if !format.Human() {
				return format.Print(streams.Out, &v)
			}
			_, err := fmt.Fprintf(streams.Out, "%s %s %s\n", version.Line("kubectl-bpfman"), v.GoVersion, v.Platform)
			return err
		},
	}
	format.AddFormatTo(command)
	return command
}
