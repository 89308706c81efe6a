// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/terminal"
	"github.com/bpfman/bpfman-operator/cli/ui"
	"github.com/bpfman/bpfman-operator/cli/ui/view"
	"github.com/bpfman/bpfman-operator/cli/why"
)

const uiLong = `Serve a page about the eBPF of the cluster, for the browser on this machine: the nodes and their health, what runs at each hook of a node and in which order, the state of objects and their rollouts, and the content of maps. The page is live, and only reads. For each view, it shows the kubectl commands that print the same.

The command prints an address that can be opened once, within ten minutes. To get another one, press Enter. The page ends with the command.

The page has the permissions of the user who runs the command, and shows what it isn't permitted to read. It uses what the other commands use: it lists and watches nodes, bpfnodes, bpfman's objects, policies, and events, and reads reports and pods. For run times and the content of maps, it needs permission to create pods/exec in the namespace in which bpfman is installed.`

const uiExample = `  # Serve the page
  kubectl bpfman ui

  # Serve it at another cluster, on a fixed port
  kubectl bpfman ui --context production --port 8080`

type uiOptions struct {
	port int
	why  whyOptions
	live liveFlags
}

func uiCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := uiOptions{}
	command := &cobra.Command{
		Use:               "ui",
		Short:             "Serve a live page about the eBPF of the cluster",
		Long:              uiLong,
		Example:           uiExample,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return o.run(c.Context(), connect, streams) },
	}
	addNamespace(command, &o.live.namespace)
	command.Flags().IntVar(&o.port, "port", 0, "Port on 127.0.0.1 to serve the page on. If 0, a free one.")
	return command
}

func (o uiOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams) error {
	c, err := connect()
	if err != nil {
		return err
	}
	o.why.components = o.live.namespace
	server := ui.Server{
		Cluster: c, Components: o.live.namespace, Version: version.Version,
		Explain: func(ctx context.Context, owner v1alpha1.BpfNodeOwner, conflicts []why.Conflict) (why.Facts, why.Page, error) {
			return o.explain(ctx, c, owner, conflicts)
		},
		Revisions: func(ctx context.Context, object v1alpha1.UserObject) ([]view.Revision, error) {
			return o.revisions(ctx, c, object)
		},
	}
	listener, err := ui.Listen(ctx, o.port)
	if err != nil {
		return err
	}
	return server.Serve(ctx, listener, func(address func() string) {
		say := func() {
			fmt.Fprintf(streams.Out, "Open %s\n", address())
		}
		say()
		fmt.Fprintln(streams.ErrOut, "The address works once. For another one, press Enter. To end, press Ctrl+C.")
		terminal.ReadInBackground()
		go onEnter(ctx, streams.In, say)
	})
}

// onEnter calls say for each line. In the background of a shell, it waits until the command is in the foreground again.
func onEnter(ctx context.Context, in io.Reader, say func()) {
	for {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			say()
		}
		if !errors.Is(lines.Err(), syscall.EIO) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// explain explains an object.
func (o uiOptions) explain(ctx context.Context, c *cluster.Cluster, owner v1alpha1.BpfNodeOwner, conflicts []why.Conflict) (why.Facts, why.Page, error) {
	facts, err := o.why.gather(ctx, c, owner, func(_ context.Context, _ *cluster.Cluster, facts *why.Facts) error {
		facts.Conflicts = conflicts
		return nil
	})
	if err != nil {
		return why.Facts{}, why.Page{}, err
	}
	page, err := why.Explain(facts)
	return facts, page, err
}

// revisions returns the revisions of an object, the latest first.
func (o uiOptions) revisions(ctx context.Context, c *cluster.Cluster, object v1alpha1.UserObject) ([]view.Revision, error) {
	r := rolling{components: o.live.namespace}
	all, err := r.revisions(ctx, rolled{cluster: c, object: object})
	if errors.Is(err, errNoRevisions) {
		return nil, nil // the operator hasn't recorded the first one yet
	}
	if err != nil {
		return nil, err
	}
	var revisions []view.Revision
	for _, is := range slices.Backward(all) {
		revisions = append(revisions, view.Revision{Number: is.Revision, Created: is.Created, Change: strings.Join(is.Changes, ", "), Newest: is.Current, Since: is.since})
	}
	return revisions, nil
}
