// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inspectors"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
	"github.com/bpfman/bpfman-operator/internal/live"
)

const topLong = `Show which eBPF programs take CPU time, no matter what loaded them, on all nodes, and repeat this at each interval. With an object, show only its programs. CPU is relative to one CPU: a program that keeps two CPUs busy has 200%.

On a terminal, the table is updated in place, with the CPU time of the last rounds as HISTORY. Press c, r, or t to sort by CPU time, runs, or time per run, and q to end.

Meanwhile, the kernels of the nodes count each program's runs and time, which makes each run slightly slower. They stop when the command ends, however it ends.

` + liveRights + ` For the programs of an object, it also requires permission to list the object's bpfprograms or bpfnsprograms. With permission to list bpfnodes, it also shows the owners of the programs.`

const topExample = `  # Show what takes CPU time in the cluster
  kubectl bpfman top

  # Show the programs of an object, those that run most often first
  kubectl bpfman top bpfapplication/shop --sort-by runs

  # Show it once, for ten seconds, on two nodes
  kubectl bpfman top --once --interval 10s --node worker-1,worker-2`

type topOptions struct {
	live     liveFlags
	interval time.Duration
	once     bool
	rows     int
	sortBy   string
	format   *output.Flags
}

// orders are the values of --sort-by. Each puts the highest first.
var orders = map[string]func(a, b usage) int{
	"cpu":  func(a, b usage) int { return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Runs, a.Runs)) },
	"runs": func(a, b usage) int { return cmp.Compare(b.Runs, a.Runs) },
	"time": func(a, b usage) int { return cmp.Compare(b.PerRun, a.PerRun) },
}

func topCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := topOptions{format: output.NewFlags()}
	command := &cobra.Command{
		Use:               "top [KIND/NAME]",
		Short:             "Show which programs take CPU time",
		Long:              topLong,
		Example:           topExample,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeUserObject(connect),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), connect, streams, args) },
	}
	o.live.addTo(command, connect, "Nodes whose programs to show. By default, all, or all that the object is loaded on.")
	names := slices.Sorted(maps.Keys(orders))
	command.Flags().StringVar(&o.sortBy, "sort-by", "cpu", "What to sort by, highest first: "+strings.Join(names, ", ")+" (per run).")
	_ = command.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	command.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "Period over which runs are counted.")
	command.Flags().BoolVar(&o.once, "once", false, "End after one interval.")
	command.Flags().IntVar(&o.rows, "rows", 0, "Maximum number of programs to show. If 0, as many as fit on the terminal, or all if there is no terminal.")
	o.format.AddFormatTo(command)
	return command
}

// usage is the CPU time that a program used on a node.
type usage struct {
	Node  string `json:"node"`
	ID    uint32 `json:"id"`
	Name  string `json:"name,omitempty"`
	Type  string `json:"type,omitempty"`
	Owner string `json:"owner,omitempty"`
	// CPU is the percentage of one CPU.
	CPU float64 `json:"cpuPercent"`
	// Runs is the number of runs per second.
	Runs float64 `json:"runsPerSecond"`
	// PerRun is the duration of a run in nanoseconds.
	PerRun int64 `json:"nanosecondsPerRun"`
	// history contains CPU in the last rounds, if there are several.
	history []float64
}

var topTable = output.Table[usage]{
	Kind: "ProgramUsage",
	Columns: []output.Column[usage]{
		{Name: "NODE", Cell: func(u usage) any { return u.Node }},
		{Name: "ID", Cell: func(u usage) any { return int64(u.ID) }},
		{Name: "NAME", Cell: func(u usage) any { return u.Name }},
		{Name: "TYPE", Cell: func(u usage) any { return u.Type }},
		{Name: "OWNER", Cell: func(u usage) any { return u.Owner }},
		{Name: "CPU", Cell: func(u usage) any { return fmt.Sprintf("%.2f%%", u.CPU) }},
		{Name: "RUNS/S", Cell: func(u usage) any { return rate(u.Runs) }},
		{Name: "NS/RUN", Cell: func(u usage) any { return u.PerRun }},
	},
}

// historyColumn is an additional column on a terminal that is redrawn.
var historyColumn = output.Column[usage]{Name: "HISTORY", Cell: func(u usage) any { return sparkline(u.history) }}

// maxHistory is the number of rounds in the history of a program.
const maxHistory = 20

// sparkline draws values as bars, of which the highest value has the highest.
func sparkline(values []float64) string {
	const bars = "▁▂▃▄▅▆▇█"
	levels := []rune(bars)
	var line strings.Builder
	for _, v := range values {
		level := 0
		if highest := slices.Max(values); highest > 0 {
			level = int(v / highest * float64(len(levels)-1))
		}
		line.WriteRune(levels[level])
	}
	return line.String()
}

// rate formats small rates with a decimal, so that they don't appear as zero.
func rate(perSecond float64) string {
	if perSecond < 10 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}

func (o topOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams, args []string) error {
	if orders[o.sortBy] == nil {
		return fmt.Errorf("--sort-by: %q is not one of %s", o.sortBy, strings.Join(slices.Sorted(maps.Keys(orders)), ", "))
	}
	if o.interval < 100*time.Millisecond {
		return fmt.Errorf("--interval: %v is less than 100ms", o.interval)
	}
	c, err := connect()
	if err != nil {
		return err
	}
	only, err := o.live.programs(ctx, c, args)
	if err != nil {
		return err
	}
	asked, err := o.live.inspectors(ctx, c, slices.Sorted(maps.Keys(only))...)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	t := top{
		options: o, out: streams.Out, end: end,
		owners: func() map[program]string { return owners(ctx, c, o.live.nodes) },
	}
	if !o.once && o.format.Human() {
		var restore func()
		t.out, restore, t.interactive = terminal.Keys(streams.In, streams.Out, t.press)
		defer restore()
	}
	t.screen = newScreen(t.out)
	rounds := inspectors.Rounds[[]usage]{Asked: len(asked), Show: t.show}
	return inspectors.Each(asked, func(i inspectors.Inspector) error {
		err := inspectors.AskUsage(ctx, i, o.interval, func(u live.Usage) error {
			return rounds.Answered(i.Node, usages(i.Node, u, only))
		})
		return errors.Join(err, rounds.Ended(i.Node, err))
	})
}

// usages returns what programs of a node used: those in only, or all if that is nil.
func usages(node string, u live.Usage, only map[string][]uint32) []usage {
	var all []usage
	for _, p := range u.Programs {
		if only != nil && !slices.Contains(only[node], p.ID) {
			continue
		}
		all = append(all, usage{
			Node: node, ID: p.ID, Name: p.Name, Type: p.Type,
			CPU:  100 * p.RunTime.Seconds() / u.Elapsed.Seconds(),
			Runs: float64(p.Runs) / u.Elapsed.Seconds(), PerRun: p.RunTime.Nanoseconds() / max(int64(p.Runs), 1), //nolint:gosec // at most one run per nanosecond
		})
	}
	return all
}

// program identifies a program on a node.
type program struct {
	node string
	id   uint32
}

// owners returns the owners of programs, as far as BpfNodes can be read.
func owners(ctx context.Context, c *cluster.Cluster, nodes []string) map[program]string {
	out := map[program]string{}
	_ = c.BpfNodes(ctx, nodes, func(node *v1alpha1.BpfNode) error { // the owner is unknown then
		for _, p := range inventory.Programs(node) {
			out[program{p.Node, p.ID}] = inventory.OwnerOf(p.BpfNodeProgram)
		}
		return nil
	})
	return out
}

// The owners are read again after ownersPace, or after unknownPace if an owner isn't known. A new program is in
// the BpfNode after at most ten seconds.
const (
	ownersPace  = time.Minute
	unknownPace = 5 * time.Second
)

// top prints what programs used in each round.
type top struct {
	options topOptions
	out     io.Writer
	screen  screen
	owners  func() map[program]string
	end     func()
	// interactive means that the table is redrawn on a terminal, whose keys are read.
	interactive bool

	mu      sync.Mutex // a key can be pressed while answers arrive
	printed bool
	known   map[program]string
	read    time.Time // when known was read
	last    []usage   // what is printed
	history map[program][]float64
}

// show prints the answers of all nodes.
func (t *top) show(answers map[string][]usage, _ map[string]error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(answers) == 0 || t.options.once && t.printed {
		return nil
	}
	all := slices.Concat(slices.Collect(maps.Values(answers))...)
	if since := time.Since(t.read); since > ownersPace || since > unknownPace && !t.knows(all) {
		t.known, t.read = t.owners(), time.Now()
	}
	t.remember(all)
	t.printed, t.last = true, all
	err := t.print()
	if t.options.once {
		t.end()
	}
	return err
}

// remember adds a round to the history of each program. Programs that no longer run are forgotten.
func (t *top) remember(round []usage) {
	if !t.interactive {
		return
	}
	before := t.history
	t.history = make(map[program][]float64, len(round))
	for i, u := range round {
		of := program{u.Node, u.ID}
		past := before[of]
		t.history[of] = append(slices.Clone(past[max(0, len(past)-maxHistory+1):]), u.CPU)
		round[i].history = t.history[of]
	}
}

// The keys of top.
var keys = map[byte]string{'c': "cpu", 'r': "runs", 't': "time"}

// press handles a key.
func (t *top) press(key byte) {
	if key == 'q' || key == terminal.Interrupt {
		t.end() // before the lock, which is held while the owners are read
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if order, sorts := keys[key]; sorts && t.printed {
		t.options.sortBy = order
		_ = t.print() // if the terminal is gone, the next round ends the command
	}
}

// knows reports whether the owners of all programs are known.
func (t *top) knows(all []usage) bool {
	return !slices.ContainsFunc(all, func(u usage) bool {
		_, known := t.known[program{u.Node, u.ID}]
		return !known
	})
}

func (t *top) print() error {
	all := t.last
	for i := range all {
		all[i].Owner = t.known[program{all[i].Node, all[i].ID}]
	}
	slices.SortFunc(all, func(a, b usage) int {
		return cmp.Or(orders[t.options.sortBy](a, b), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	if err := t.screen.next(); err != nil {
		return err
	}
	table, above := topTable, 2 // the header and the line of the cursor
	if t.interactive {
		table.Columns = append(slices.Clip(table.Columns), historyColumn)
		above++
		if _, err := fmt.Fprintf(t.out, "Sorted by %s. Keys: c (cpu), r (runs), t (time per run), q (quit)\n", t.options.sortBy); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	rows := t.options.rows
	if _, lines, ok := terminal.Size(t.out); ok && lines > 0 && rows == 0 {
		rows = max(lines-above, 1)
	}
	if rows > 0 {
		all = all[:min(rows, len(all))]
	}
	return table.Print(t.out, t.options.format, all)
}
