// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// PluginVersion is the version of this plugin, and the daemons of the cluster.
type PluginVersion struct {
	metav1.TypeMeta `json:",inline"`

	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	// Platform is for example linux/amd64.
	Platform string `json:"platform"`
	// Daemons are the daemons that the nodes run, if the cluster was asked.
	Daemons inventory.Daemons `json:"daemons,omitempty"`
}

// clusterDeadline is how long the cluster has to answer.
const clusterDeadline = 10 * time.Second

const versionLong = `Print the version of this plugin, and which bpfman daemons the nodes of the cluster run.

The command requires permission to list bpfnodes. If they can't be read, it prints a warning, and only the version of the plugin.`

const versionExample = `  # Print the version of this plugin, and the daemons of the cluster
  kubectl bpfman version

  # Print only the version of this plugin, without a cluster
  kubectl bpfman version --client`

func versionCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	format, only := output.NewFlags(), false
	command := &cobra.Command{
		Use:               "version",
		Short:             "Print the version of this plugin, and the daemons of the nodes",
		Long:              versionLong,
		Example:           versionExample,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			v := PluginVersion{
				TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "PluginVersion"},
				Version:  version.Version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			}
			if !only {
				var err error
				if v.Daemons, err = daemons(c.Context(), connect); err != nil {
					fmt.Fprintf(streams.ErrOut, "Warning: failed to read which daemons the nodes run: %s\n", terminal.Line(err.Error()))
				}
			}
			if !format.Human() {
				return format.Print(streams.Out, &v)
			}
			_, err := fmt.Fprintf(streams.Out, "%s %s %s\n", version.Line("kubectl-bpfman"), v.GoVersion, v.Platform)
			for _, d := range v.Daemons {
				_, failed := fmt.Fprintf(streams.Out, "daemon %s\n", terminal.Line(inventory.Daemons{d}.String()))
				err = errors.Join(err, failed)
			}
			return err
		},
	}
	command.Flags().BoolVar(&only, "client", false, "print only the version of this plugin")
	format.AddFormatTo(command)
	return command
}

// daemons returns the daemons that the nodes run.
func daemons(ctx context.Context, connect cluster.Connect) (found inventory.Daemons, err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterDeadline)
	defer cancel()
	c, err := connect()
	if err != nil {
		return nil, err
	}
	return found, c.BpfNodes(ctx, nil, func(n *v1alpha1.BpfNode) error {
		found.Add(n)
		return nil
	})
}
