// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

const programsLong = `List the eBPF programs of all nodes, no matter what loaded them: where they are attached, and who owns them. The owner is bpfman's object, or else the pod, systemd unit, process, or file that holds the program.

Programs of a node that only differ in their IDs and ages share a row, which has the ID and age of the first one; -o wide lists each of them. The cgroup_device programs that container runtimes and systemd attach to each container and unit are only listed with --all.

The command only requires permission to list bpfnodes.`

const programsExample = `  # List all programs of the cluster, the newest last
  kubectl bpfman programs --sort-by age

  # List the network programs of a node that bpfman didn't load
  kubectl bpfman programs --node worker-1 --by others --type xdp,sched_cls`

type programsOptions struct {
	nodes, types []string
	by           string
	all          bool
	format       *output.Flags
}

func programsCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := programsOptions{format: output.NewFlags()}
	command := &cobra.Command{
		Use:               "programs",
		Aliases:           []string{"program", "progs", "ps"},
		Short:             "List the eBPF programs of all nodes, no matter what loaded them",
		Long:              programsLong,
		Example:           programsExample,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return o.run(c.Context(), connect, streams) },
	}
	flags := command.Flags()
	addNodes(command, &o.nodes, connect, "Nodes whose programs to list. By default, all.")
	flags.StringSliceVar(&o.types, "type", nil, "Types of programs, such as xdp or sched_cls. By default, all.")
	flags.StringVar(&o.by, "by", "", "Who loaded the programs: bpfman or others. By default, all.")
	flags.BoolVar(&o.all, "all", false, "Also list the cgroup_device programs of containers and systemd units.")
	_ = command.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{byBpfman, byOthers}, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	o.format.AddTo(command, programsTable.Keys()...)
	return command
}

// Values of --by.
const (
	byBpfman = "bpfman"
	byOthers = "others"
)

// listedProgram is a row of the table: a program, or several that only differ in their IDs and ages.
type listedProgram struct {
	*inventory.Program `json:",inline"`
	count              int `json:"-"`
}

var programsTable = output.Table[listedProgram]{
	Kind: "NodeProgram",
	Columns: []output.Column[listedProgram]{
		{Name: "NODE", Cell: func(p listedProgram) any { return p.Node }},
		{Name: "ID", Cell: func(p listedProgram) any { return int64(p.ID) }},
		{Name: "COUNT", Cell: func(p listedProgram) any { return int64(p.count) }},
		{Name: "NAME", Cell: func(p listedProgram) any { return p.Name }},
		{Name: "TYPE", Cell: func(p listedProgram) any { return p.Type }},
		{Name: "OWNER", Cell: func(p listedProgram) any { return inventory.OwnerOf(p.BpfNodeProgram) }},
		{Name: "ATTACHED", Cell: func(p listedProgram) any {
			points := p.Attached()
			for i := range points {
				points[i] = strings.TrimPrefix(points[i], p.Type+" ")
			}
			return listed(points)
		}},
		{Name: "AGE", Cell: func(p listedProgram) any {
			if p.LoadedAt == nil {
				return metav1.Time{}
			}
			return *p.LoadedAt
		}},
		{Name: "TAG", Wide: true, Cell: func(p listedProgram) any { return p.Tag }},
		{Name: "MAPS", Wide: true, Cell: func(p listedProgram) any { return int64(len(p.MapIDs)) }},
		{Name: "HOLDERS", Wide: true, Cell: func(p listedProgram) any {
			words := make([]string, len(p.Holders))
			for i, h := range p.Holders {
				words[i] = inventory.Holder(h)
			}
			return listed(words)
		}},
	},
}

// listed joins the first words, and counts the others.
func listed(words []string) string {
	const shown = 3
	if more := len(words) - shown; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(words[:shown], ", "), more)
	}
	return strings.Join(words, ", ")
}

func (o programsOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams) error {
	if o.by != "" && o.by != byBpfman && o.by != byOthers {
		return fmt.Errorf("--by: %q is neither %s nor %s", o.by, byBpfman, byOthers)
	}
	c, err := connect()
	if err != nil {
		return err
	}
	var found foundPrograms
	err = c.BpfNodes(ctx, o.nodes, func(node *v1alpha1.BpfNode) error {
		o.find(node, &found)
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found.programs, inventory.Compare)
	table, rows := withNode(programsTable, found.nodes), group(found.programs, o.format.Human() && !o.format.Wide())
	if len(rows) == len(found.programs) {
		table = table.Without("COUNT")
	}
	if err := table.Print(streams.Out, o.format, rows); err != nil {
		return err
	}
	if o.format.Human() {
		return remark(streams.ErrOut, found.remarks())
	}
	return nil
}

// group returns the rows for programs, which are in the order of their nodes. If alike is set, programs of a node that
// only differ in their IDs and ages share the row of the first one.
func group(programs []inventory.Program, alike bool) []listedProgram {
	rows := make([]listedProgram, 0, len(programs))
	at := map[string]int{} // of the programs of one node: there can be hundreds of thousands of programs
	for i := range programs {
		p := &programs[i]
		if i > 0 && p.Node != programs[i-1].Node {
			clear(at)
		}
		if alike {
			key := strings.Join(append([]string{p.Name, p.Type, inventory.OwnerOf(p.BpfNodeProgram)}, p.Attached()...), "\x00")
			if row, known := at[key]; known {
				rows[row].count++
				continue
			}
			at[key] = len(rows)
		}
		rows = append(rows, listedProgram{p, 1})
	}
	return rows
}

// foundPrograms contains the programs to list, and the number of programs that aren't
// listed.
type foundPrograms struct {
	programs                []inventory.Program
	nodes, routine, omitted int
}

// find adds the matching programs of a node, and counts the others.
func (o programsOptions) find(node *v1alpha1.BpfNode, found *foundPrograms) {
	found.nodes++
	if omitted := node.Status.Omitted; omitted != nil {
		found.omitted += int(omitted.Programs)
	}
	for _, p := range inventory.Programs(node) {
		switch {
		case o.types != nil && !slices.Contains(o.types, p.Type), o.by == byBpfman && !p.Bpfman, o.by == byOthers && p.Bpfman:
		case !o.all && o.types == nil && inventory.Routine(p.BpfNodeProgram):
			found.routine++
		default:
			found.programs = append(found.programs, p)
		}
	}
}

// remarks say what the table doesn't show.
func (f foundPrograms) remarks() []string {
	var remarks []string
	switch {
	case f.nodes == 0:
		remarks = append(remarks, "No BpfNodes found: the inspector is turned off, or hasn't reported yet.")
	case len(f.programs) == 0:
		remarks = append(remarks, "No programs found.")
	default:
		ours := 0
		for _, p := range f.programs {
			if p.Bpfman {
				ours++
			}
		}
		remarks = append(remarks, fmt.Sprintf("Programs: %d, of which bpfman loaded %d.", len(f.programs), ours))
	}
	if f.routine > 0 {
		remarks = append(remarks, fmt.Sprintf("%d cgroup_device programs of containers and systemd units aren't listed: to list them, use --all.", f.routine))
	}
	if f.omitted > 0 {
		remarks = append(remarks, fmt.Sprintf("%d programs aren't listed: their nodes have more programs than fit in a BpfNode.", f.omitted))
	}
	return remarks
}

// remark prints remarks, a line each.
func remark(w io.Writer, remarks []string) error {
	for _, r := range remarks {
		if _, err := fmt.Fprintln(w, terminal.Line(r)); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// withNode returns a table without the column NODE if its rows are those of one node.
func withNode[T any](table output.Table[T], nodes int) output.Table[T] {
	if nodes == 1 {
		return table.Without("NODE")
	}
	return table
}

// addNodes adds the flag --node, which can be repeated.
func addNodes(command *cobra.Command, nodes *[]string, connect cluster.Connect, usage string) {
	command.Flags().StringSliceVar(nodes, "node", nil, usage)
	_ = command.RegisterFlagCompletionFunc("node", completeNode(connect)) // fails only for unknown flags
}
