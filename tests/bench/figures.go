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

	"github.com/bpfman/bpfman-operator/tests/figures"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// measuredProcesses are the processes whose memory is shown.
var measuredProcesses = []string{node.Agent, node.CSI, node.Operator, node.Daemon}

// loadAndAttach is the daemon's time that the declared time is compared with.
func loadAndAttach(t node.Times) time.Duration { return t.Load + t.Attach }

// results are the measurements.
type results struct {
	own    map[int][]node.Times    // by number of programs
	ours   map[int][]declaredTimes // by number of programs
	memory map[string][]float64    // MiB, by process
	// policies are the rounds with policies. There are none if these aren't measured.
	policies []policyTimes

	attaching, removing map[request]int // nil without an audit log
}

func newResults() *results {
	return &results{own: map[int][]node.Times{}, ours: map[int][]declaredTimes{}, memory: map[string][]float64{}}
}

func (f *results) add(n int, own node.Times, ours declaredTimes) {
	f.own[n] = append(f.own[n], own)
	f.ours[n] = append(f.ours[n], ours)
}

func (f *results) addMemory(resident map[string]int) {
	for name, bytes := range resident {
		f.memory[name] = append(f.memory[name], float64(bytes)/(1<<20))
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

// ratio returns the declared time divided by the daemon's own time, as the median of the
// rounds. Each round measures one after the other.
func (f *results) ratio(n int, of func(declaredTimes) time.Duration) float64 {
	ratios := make([]float64, 0, len(f.ours[n]))
	for round, ours := range f.ours[n] {
		ratios = append(ratios, of(ours).Seconds()/loadAndAttach(f.own[n][round]).Seconds())
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
	}
	for _, n := range sizes {
		key := func(name string) string { return fmt.Sprintf("%s_%d", name, n) }
		out[key("attach_ratio")] = figures.Round(f.ratio(n, attached))
		out[key("attach_ratio_from_first_object")] = figures.Round(f.ratio(n, served))
		out[key("daemon_s")] = figures.Round(figures.Median(f.own[n], loadAndAttach).Seconds())
		for name, of := range map[string]func(declaredTimes) time.Duration{
			"first_object_s": func(t declaredTimes) time.Duration { return t.Seen },
			"applied_s":      func(t declaredTimes) time.Duration { return t.Applied },
			"loaded_s":       func(t declaredTimes) time.Duration { return t.Loaded },
			"attached_s":     func(t declaredTimes) time.Duration { return t.Attached },
		} {
			out[key(name)] = figures.Round(figures.Median(f.ours[n], of).Seconds())
		}
	}
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
	_ = table.Flush() // to standard output
}

func (f *results) printTimes(w io.Writer) {
	fmt.Fprintf(w, "\nSeconds, medians of %d rounds\n\n", len(f.ours[sizes[0]]))
	table := newTable(w)
	fmt.Fprint(table, "  programs\t")
	for _, n := range sizes {
		fmt.Fprintf(table, "%d\t", n)
	}
	own := func(name string, of func(node.Times) time.Duration) {
		fmt.Fprintf(table, "\n  %s\t", name)
		for _, n := range sizes {
			fmt.Fprintf(table, "%.2f\t", figures.Median(f.own[n], of).Seconds())
		}
	}
	ours := func(name string, of func(declaredTimes) time.Duration) {
		fmt.Fprintf(table, "\n  %s\t", name)
		for _, n := range sizes {
			fmt.Fprintf(table, "%.2f\t", figures.Median(f.ours[n], of).Seconds())
		}
	}
	own("daemon, called directly: Load", func(t node.Times) time.Duration { return t.Load })
	own("daemon, called directly: Attach", func(t node.Times) time.Duration { return t.Attach })
	own("daemon, called directly: both", loadAndAttach)
	ours("kubectl apply started; first object seen after", func(t declaredTimes) time.Duration { return t.Seen })
	ours("… kubectl apply ended after", func(t declaredTimes) time.Duration { return t.Applied })
	ours("… last BpfProgram Loaded after", func(t declaredTimes) time.Duration { return t.Loaded })
	ours("… last object ReconcileSuccess after", func(t declaredTimes) time.Duration { return t.Attached })
	ratio := func(name string, of func(declaredTimes) time.Duration) {
		fmt.Fprintf(table, "\n  %s\t", name)
		for _, n := range sizes {
			fmt.Fprintf(table, "%.2f\t", f.ratio(n, of))
		}
	}
	ratio("ratio, all from kubectl's start over the daemon's own", attached)
	ratio("ratio, from the first object seen", served)
	own("daemon, called directly: Unload", func(t node.Times) time.Duration { return t.Unload })
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
