// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/output"
)

const chainLong = `Show which programs run at each hook of a node, in order, no matter what loaded them.

Programs of a hook without an order that only differ in their IDs share a row; -o wide lists each of them, and also shows priorities.

CONTINUES ON lists the verdicts after which the next program of the hook runs. It is "anything" if the kernel runs all programs, regardless of their verdicts. ELSE SKIPS lists the IDs of the programs that don't run after any other verdict: TCX programs run before TC filters, so they can also skip these.

The hooks of an interface are in the order in which a packet passes them. The programs of one of bpfman's dispatchers follow the dispatcher, numbered within its position.

The command requires permission to get bpfnodes. With permission to get bpfman's objects, it also shows their priorities and verdicts.`

const chainExample = `  # List the programs that see the packets of eth0, in order
  kubectl bpfman chain --node worker-1 --interface eth0`

type chainOptions struct {
	node, networkInterface string
	format                 *output.Flags
}

func chainCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := chainOptions{format: output.NewFlags()}
	command := &cobra.Command{
		Use:               "chain [--node NODE]",
		Short:             "Show what runs at each hook of a node, in order",
		Long:              chainLong,
		Example:           chainExample,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return o.run(c.Context(), connect, streams) },
	}
	command.Flags().StringVar(&o.node, "node", "", "Node whose hooks to show. You can omit it if there is only one.")
	command.Flags().StringVar(&o.networkInterface, "interface", "", "Only show the hooks of this network interface.")
	_ = command.RegisterFlagCompletionFunc("node", completeNode(connect)) // fails only for unknown flags
	o.format.AddTo(command, chainTable.Keys()...)
	return command
}

// listedLink is a row of the table: a program at a hook, or several that only differ in their IDs, at a hook
// without an order.
type listedLink struct {
	inventory.Link `json:",inline"`
	count          int `json:"-"`
}

var chainTable = output.Table[listedLink]{
	Kind: "ChainLink",
	Columns: []output.Column[listedLink]{
		{Name: "HOOK", Heading: true, Cell: func(l listedLink) any { return l.Hook }},
		{Name: "ORDER", Cell: func(l listedLink) any { return position(l.Link) }},
		{Name: "ID", Cell: func(l listedLink) any { return int64(l.ID) }},
		{Name: "COUNT", Cell: func(l listedLink) any { return int64(l.count) }},
		{Name: "NAME", Cell: func(l listedLink) any { return l.Name }},
		{Name: "OWNER", Cell: func(l listedLink) any { return l.Whose }},
		{Name: "PRIORITY", Wide: true, Cell: func(l listedLink) any {
			if l.Priority == nil {
				return nil
			}
			return int64(*l.Priority)
		}},
		{Name: "CONTINUES ON", Cell: func(l listedLink) any { return continuesOn(l.Link) }},
		{Name: "ELSE SKIPS", Cell: func(l listedLink) any {
			ids := make([]string, len(l.Skips))
			for i, id := range l.Skips {
				ids[i] = number(id)
			}
			return listed(ids)
		}},
	},
}

// continuesOn describes the verdicts after which the next program of a hook runs.
func continuesOn(l inventory.Link) string {
	if l.All {
		return "anything"
	}
	return strings.Join(l.ProceedOn, ", ")
}

func position(l inventory.Link) string {
	switch {
	case l.Position == 0 && l.Slot == 0:
		return ""
	case l.Slot == 0:
		return strconv.Itoa(int(l.Position))
	}
	return strconv.Itoa(max(int(l.Position), 1)) + "." + strconv.Itoa(int(l.Slot))
}

var errSeveralNodes = errors.New("specify a node with --node: to list the nodes, run kubectl get nodes")

func (o chainOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams) error {
	c, err := connect()
	if err != nil {
		return err
	}
	var names []string
	if o.node != "" {
		names = []string{o.node}
	}
	var status *v1alpha1.BpfNodeStatus
	err = c.BpfNodes(ctx, names, func(node *v1alpha1.BpfNode) error {
		if status != nil {
			return errSeveralNodes
		}
		status = &node.Status
		return nil
	})
	switch {
	case errors.Is(err, errSeveralNodes):
		return errSeveralNodes
	case err != nil:
		return err
	case status == nil:
		return errors.New("no node has a BpfNode: the inspector is turned off, or hasn't reported yet")
	}
	links := inventory.Chains(*status, inventory.AskedBy(ctx, c))
	if o.networkInterface != "" {
		links = slices.DeleteFunc(links, func(l inventory.Link) bool { return l.Interface != o.networkInterface })
	}
	table, rows := chainTable, groupLinks(links, o.format.Human() && !o.format.Wide())
	if len(rows) == len(links) {
		table = table.Without("COUNT")
	}
	if err := table.Print(streams.Out, o.format, rows); err != nil || !o.format.Human() {
		return err
	}
	if hooks := tied(links); len(hooks) > 0 {
		return remark(streams.ErrOut, []string{"Programs with the same priority at " + listed(hooks) + ": the order in which they run can change. To fix it, give them different priorities."})
	}
	return nil
}

// tied returns the hooks with programs that have the same priority in bpfman's objects.
func tied(links []inventory.Link) []string {
	type rank struct {
		hook     string
		priority int32
	}
	programs := map[rank]int{}
	var hooks []string
	for _, l := range links {
		if l.Priority == nil || !l.Ours {
			continue
		}
		of := rank{l.Hook, *l.Priority}
		if programs[of]++; programs[of] == 2 && !slices.Contains(hooks, l.Hook) {
			hooks = append(hooks, l.Hook)
		}
	}
	return hooks
}

// groupLinks returns the rows for programs at hooks. If alike is set, programs at a hook without an order that only
// differ in their IDs share the row of the first one.
func groupLinks(links []inventory.Link, alike bool) []listedLink {
	var rows []listedLink
	for _, l := range links {
		if n := len(rows); alike && n > 0 && l.Position == 0 && l.Slot == 0 && l.Hook == rows[n-1].Hook && l.Name == rows[n-1].Name && l.Whose == rows[n-1].Whose {
			rows[n-1].count++
			continue
		}
		rows = append(rows, listedLink{l, 1})
	}
	return rows
}
