// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inspectors"
	"github.com/bpfman/bpfman-operator/cli/terminal"
	"github.com/bpfman/bpfman-operator/internal/live"
)

const traceLong = `Show what eBPF programs print with bpf_printk, from now on: the programs of one of bpfman's objects, or all programs of the nodes. Each line shows the node, the program with its kernel ID, and the process in which it ran. For a program that runs on packets, that is the process that was interrupted.

Other readers of the kernel's trace still get everything. To end the command, press Ctrl-C. The command doesn't follow a program that is reloaded meanwhile.

` + liveRights + ` For the programs of an object, it also requires permission to list the object's bpfprograms or bpfnsprograms.`

const traceExample = `  # Show what the programs of an object print
  kubectl bpfman trace tcxprogram/firewall

  # Show what all programs print on one node
  kubectl bpfman trace --node worker-1`

type traceOptions struct {
	live   liveFlags
	format string
}

func traceCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	var o traceOptions
	command := &cobra.Command{
		Use:               "trace [KIND/NAME]",
		Short:             "Show what programs print",
		Long:              traceLong,
		Example:           traceExample,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeUserObject(connect),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkLineFormat(o.format); err != nil {
				return err
			}
			return o.run(c.Context(), connect, streams, args)
		},
	}
	o.live.addTo(command, connect, "Nodes whose programs to show. By default, all, or all that the object selects.")
	addLineFormat(command, &o.format, "print")
	return command
}

// printed is what a program printed, as JSON or YAML.
type printed struct {
	Node string `json:"node"`
	live.Print
}

func (o traceOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams, args []string) error {
	c, err := connect()
	if err != nil {
		return err
	}
	programs, err := o.live.programs(ctx, c, args)
	if err != nil {
		return err
	}
	asked, err := o.live.inspectors(ctx, c, slices.Sorted(maps.Keys(programs))...)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	waiting := len(asked)
	return inspectors.Each(asked, func(i inspectors.Inspector) error {
		arguments := []string{live.CommandTrace}
		if ids := programs[i.Node]; len(ids) > 0 {
			words := make([]string, len(ids))
			for i, id := range ids {
				words[i] = number(id)
			}
			arguments = append(arguments, "--programs", strings.Join(words, ","))
		}
		begun := false
		return inspectors.Ask(ctx, i, func(p live.Print) error {
			mu.Lock()
			defer mu.Unlock()
			if begun {
				return o.show(streams, printed{i.Node, p})
			}
			begun = true
			if waiting--; waiting > 0 {
				return nil
			}
			nodes := "nodes"
			if len(asked) == 1 {
				nodes = "node"
			}
			_, err := fmt.Fprintf(streams.ErrOut, "Tracing %d %s. Press Ctrl-C to end.\n", len(asked), nodes)
			return err
		}, arguments...)
	})
}

func (o traceOptions) show(streams genericiooptions.IOStreams, p printed) error {
	if o.format != "" {
		return printValue(streams.Out, o.format, p)
	}
	var lost string
	if p.Lost > 0 {
		lost = fmt.Sprintf("%s: %d prints were lost\n", p.Node, p.Lost)
	}
	names := make([]string, len(p.Programs))
	for i, program := range p.Programs {
		names[i] = fmt.Sprintf("%s[%d]", program.Name, program.ID)
	}
	who := strings.Join(names, " or ")
	if who == "" {
		who = "unknown program"
	}
	line := terminal.Line(fmt.Sprintf("%s %s %s[%d]: ", p.Node, who, p.Process, p.PID))
	if _, err := fmt.Fprintf(streams.Out, "%s%s%s\n", lost, line, terminal.Line(p.Text)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
