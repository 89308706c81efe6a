// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/bpfman/bpfman-operator/internal/figures"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// measuredProcesses are the processes whose memory is shown.
var measuredProcesses = []string{node.Agent, node.CSI, node.Operator, node.Daemon, node.Inspector, node.Registrar}

// nodeProcesses are the processes of the DaemonSet's pod.
var nodeProcesses = []string{node.Agent, node.CSI, node.Daemon, node.Inspector, node.Registrar}

// loadAndAttach is the daemon's time that the declared time is compared with.
func loadAndAttach(t node.Times) time.Duration { return t.Load + t.Attach }

// results are the measurements.
type results struct {
	shipped map[int][]node.Times    // the daemon as upstream ships it, by number of programs
	own     map[int][]node.Times    // the cluster's daemon, by number of programs
	ours    map[int][]declaredTimes // by number of programs
	memory  map[string][]float64    // MiB, by process
	// afterLoads is the memory of the daemon after manyLoads, in bytes.
	afterLoads int
	// reboot is the time after a reboot. It is 0 if it isn't measured.
	reboot time.Duration
	// policies are the rounds with policies. There are none if these aren't measured.
	policies []policyTimes

	attaching, removing map[request]int // nil without an audit log
}

func newResults() *results {
	return &results{shipped: map[int][]node.Times{}, own: map[int][]node.Times{}, ours: map[int][]declaredTimes{}, memory: map[string][]float64{}}
}

// timesOfRound are the measurements of one round.
type timesOfRound struct {
	shipped, own node.Times
	ours         declaredTimes
}

func (f *results) add(n int, t timesOfRound) {
	f.shipped[n] = append(f.shipped[n], t.shipped)
	f.own[n] = append(f.own[n], t.own)
	f.ours[n] = append(f.ours[n], t.ours)
}

// loads returns how many programs the cluster's daemon has loaded.
func (f *results) loads() int {
	loads := 0
	for n, all := range f.own {
		loads += n * (len(all) + len(f.ours[n]))
	}
	return loads
}

func (f *results) addMemory(resident map[string]int) {
	for name, bytes := range resident {
		f.memory[name] = append(f.memory[name], mebibytes(bytes))
	}
}

func (f *results) readRequests(auditLog string) (err error) {
	var attaching, removing []span
	for n, all := range f.ours {
		for _, t := range all {
			attaching = append(attaching, span{from: t.From, to: t.To, programs: n})
			removing = append(removing, span{from: t.To, to: t.Gone, programs: n})
		}
	}
	if f.attaching, err = requestsIn(auditLog, attaching); err != nil {
		return err
	}
	if len(f.attaching) == 0 {
		return fmt.Errorf("audit log %s has no request of bpfman's about the programs measured: is it this cluster's?", auditLog)
	}
	f.removing, err = requestsIn(auditLog, removing)
	return err
}

// programs returns the total number of declared programs.
func (f *results) programs() float64 {
	sum := 0
	for n, all := range f.ours {
		sum += n * len(all)
	}
	return float64(sum)
}

// ratio returns the declared time divided by the cluster's daemon's own time, as the
// median of the rounds. Each round measures one after the other.
func (f *results) ratio(n int, of func(declaredTimes) time.Duration) float64 {
	return ratio(f.ours[n], of, f.own[n])
}

// ratioToShipped returns the declared time, from the first object seen, divided by the
// time of the daemon as upstream ships it.
func (f *results) ratioToShipped(n int) float64 { return ratio(f.ours[n], served, f.shipped[n]) }

func ratio(declared []declaredTimes, of func(declaredTimes) time.Duration, direct []node.Times) float64 {
	ratios := make([]float64, 0, len(declared))
	for round, ours := range declared {
		ratios = append(ratios, of(ours).Seconds()/loadAndAttach(direct[round]).Seconds())
	}
	return figures.Median(ratios, func(r float64) float64 { return r })
}

// attached is the declared time. served is the same without the time that kubectl needs before
// it sends the first object.
func attached(t declaredTimes) time.Duration { return t.Attached }

func served(t declaredTimes) time.Duration { return t.Attached - t.Seen }

// writesPerProgram returns the number of the agent's writes for each program. Without an audit
// log, it counts only those that the BpfPrograms show.
func (f *results) writesPerProgram() float64 {
	writes := 0
	if f.attaching == nil {
		for _, all := range f.ours {
			for _, t := range all {
				writes += t.Writes
			}
		}
	}
	for r, count := range f.attaching {
		if r.Component == node.Agent && r.writes() {
			writes += count
		}
	}
	return float64(writes) / f.programs()
}

// json returns the values that are compared between runs.
func (f *results) json() map[string]any {
	out := map[string]any{
		"writes_per_program": figures.Round(f.writesPerProgram()),
		"agent_rss_mb":       figures.Round(f.resident(node.Agent)),
		"csi_rss_mb":         figures.Round(f.resident(node.CSI)),
		"operator_rss_mb":    figures.Round(f.resident(node.Operator)),
		"daemon_rss_mb":      figures.Round(f.resident(node.Daemon)),
		"node_rss_mb":        figures.Round(f.residentOnNode()),

		"daemon_rss_600_loads_mb": figures.Round(mebibytes(f.afterLoads)),
	}
	if f.reboot != 0 {
		out["reboot_60_s"] = figures.Round(f.reboot.Seconds())
	}
	maps.Copy(out, f.timesJSON())
	maps.Copy(out, f.policiesJSON())
	if f.attaching != nil {
		requests := []map[string]any{}
		for _, r := range f.requests() {
			requests = append(requests, map[string]any{
				"component": r.Component, "verb": r.Verb, "resource": r.Resource,
				"attaching": figures.Round(float64(f.attaching[r]) / f.programs()), "removing": figures.Round(float64(f.removing[r]) / f.programs()),
			})
		}
		out["requests_per_program"] = requests
	}
	return out
}

// timesJSON returns the times and ratios by number of programs.
func (f *results) timesJSON() map[string]any {
	out := map[string]any{}
	for _, n := range sizes {
		key := func(name string) string { return fmt.Sprintf("%s_%d", name, n) }
		out[key("attach_ratio")] = figures.Round(f.ratio(n, attached))
		out[key("attach_ratio_from_first_object")] = figures.Round(f.ratio(n, served))
		out[key("attach_vs_shipped")] = figures.Round(f.ratioToShipped(n))
		for name, direct := range map[string][]node.Times{"daemon": f.own[n], "shipped": f.shipped[n]} {
			out[key(name+"_s")] = figures.Round(figures.Median(direct, loadAndAttach).Seconds())
			out[key(name+"_load_s")] = figures.Round(figures.Median(direct, func(t node.Times) time.Duration { return t.Load }).Seconds())
			out[key(name+"_attach_s")] = figures.Round(figures.Median(direct, func(t node.Times) time.Duration { return t.Attach }).Seconds())
		}
		for name, of := range map[string]func(declaredTimes) time.Duration{
			"first_object_s": func(t declaredTimes) time.Duration { return t.Seen },
			"applied_s":      func(t declaredTimes) time.Duration { return t.Applied },
			"loaded_s":       func(t declaredTimes) time.Duration { return t.Loaded },
			"attached_s":     func(t declaredTimes) time.Duration { return t.Attached },
		} {
			out[key(name)] = figures.Round(figures.Median(f.ours[n], of).Seconds())
		}
	}
	return out
}

// policiesJSON returns the additional time of a load with a policy, for a new image and for a
// known one. It returns nothing if this wasn't measured.
func (f *results) policiesJSON() map[string]any {
	if len(f.policies) == 0 {
		return nil
	}
	more := func(of func(policyTimes) time.Duration) float64 {
		return figures.Round(figures.Median(f.policies, func(t policyTimes) time.Duration { return of(t) - t.Without }).Seconds() * 1000)
	}
	return map[string]any{
		"policy_first_ms": more(func(t policyTimes) time.Duration { return t.First }),
		"policy_known_ms": more(func(t policyTimes) time.Duration { return t.Known }),
	}
}

// resident returns the maximum memory of a component while all programs were attached.
func (f *results) resident(process string) float64 {
	if len(f.memory[process]) == 0 {
		return 0
	}
	return slices.Max(f.memory[process])
}

// residentOnNode returns the maximum memory of all processes of the DaemonSet's pod.
func (f *results) residentOnNode() float64 {
	var sums []float64
	for _, process := range nodeProcesses {
		for round, resident := range f.memory[process] {
			if round == len(sums) {
				sums = append(sums, 0)
			}
			sums[round] += resident
		}
	}
	if len(sums) == 0 {
		return 0
	}
	return slices.Max(sums)
}

func mebibytes(bytes int) float64 { return float64(bytes) / (1 << 20) }

// requests returns the kinds of requests of both phases.
func (f *results) requests() []request {
	all := map[request]int{}
	for _, counts := range []map[request]int{f.attaching, f.removing} {
		for r, count := range counts {
			all[r] += count
		}
	}
	return sortedRequests(all)
}

func (f *results) print(w io.Writer) {
	f.printTimes(w)
	f.printRequests(w)
	fmt.Fprintf(w, "\nResident memory in MiB with %d programs attached, the most of all rounds\n\n", sizes[len(sizes)-1])
	table := newTable(w)
	for _, process := range measuredProcesses {
		fmt.Fprintf(table, "  %s\t%.1f\n", process, f.resident(process))
	}
	fmt.Fprintf(table, "  all of the DaemonSet's pod\t%.1f\n", f.residentOnNode())
	fmt.Fprintf(table, "  %s, after %d loads or more\t%.1f\n", node.Daemon, manyLoads, mebibytes(f.afterLoads))
	_ = table.Flush() // to standard output
	if f.reboot != 0 {
		fmt.Fprintf(w, "\nAfter a reboot without the image in the registry, %d programs were attached after %.2f s\n", sizes[len(sizes)-1], f.reboot.Seconds())
	}
}

func (f *results) printTimes(w io.Writer) {
	fmt.Fprintf(w, "\nSeconds, medians of %d rounds\n\n", len(f.ours[sizes[0]]))
	table := newTable(w)
	fmt.Fprint(table, "  programs\t")
	for _, n := range sizes {
		fmt.Fprintf(table, "%d\t", n)
	}
	row := func(name string, of func(n int) float64) {
		fmt.Fprintf(table, "\n  %s\t", name)
		for _, n := range sizes {
			fmt.Fprintf(table, "%.2f\t", of(n))
		}
	}
	direct := func(name string, all map[int][]node.Times, of func(node.Times) time.Duration) {
		row(name, func(n int) float64 { return figures.Median(all[n], of).Seconds() })
	}
	ours := func(name string, of func(declaredTimes) time.Duration) {
		row(name, func(n int) float64 { return figures.Median(f.ours[n], of).Seconds() })
	}
	load := func(t node.Times) time.Duration { return t.Load }
	attach := func(t node.Times) time.Duration { return t.Attach }
	direct("daemon as upstream ships it, called directly: Load", f.shipped, load)
	direct("… Attach", f.shipped, attach)
	direct("… both", f.shipped, loadAndAttach)
	direct("the cluster's daemon, called directly: Load", f.own, load)
	direct("… Attach", f.own, attach)
	direct("… both", f.own, loadAndAttach)
	ours("kubectl apply started; first object seen after", func(t declaredTimes) time.Duration { return t.Seen })
	ours("… kubectl apply ended after", func(t declaredTimes) time.Duration { return t.Applied })
	ours("… last BpfProgram Loaded after", func(t declaredTimes) time.Duration { return t.Loaded })
	ours("… last object ReconcileSuccess after", func(t declaredTimes) time.Duration { return t.Attached })
	row("ratio, from the first object seen, to the daemon as upstream ships it", f.ratioToShipped)
	row("ratio, from the first object seen, to the cluster's daemon", func(n int) float64 { return f.ratio(n, served) })
	row("ratio, from kubectl's start, to the cluster's daemon", func(n int) float64 { return f.ratio(n, attached) })
	direct("daemon as upstream ships it, called directly: Unload", f.shipped, func(t node.Times) time.Duration { return t.Unload })
	direct("the cluster's daemon, called directly: Unload", f.own, func(t node.Times) time.Duration { return t.Unload })
	ours("kubectl delete started; last BpfProgram gone after", func(t declaredTimes) time.Duration { return t.Removed })
	fmt.Fprintln(table)
	_ = table.Flush() // to standard output
}

func (f *results) printRequests(w io.Writer) {
	fmt.Fprintf(w, "\nWrites of the agent per program and node: %.2f\n", f.writesPerProgram())
	if f.attaching == nil {
		fmt.Fprintln(w, "Requests by component and verb are not shown: they are in the API server's audit log (--audit-log)")
		return
	}
	fmt.Fprint(w, "\nRequests of the API server per program\n\n")
	table := newTable(w)
	fmt.Fprintln(table, "  component\tverb\tresource\tto attach\tto remove")
	for _, r := range f.requests() {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%.2f\t%.2f\n", r.Component, r.Verb, r.Resource,
			float64(f.attaching[r])/f.programs(), float64(f.removing[r])/f.programs())
	}
	_ = table.Flush() // to standard output
}

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 3, ' ', 0) }
