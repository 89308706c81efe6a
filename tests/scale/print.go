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
)

// goals are the targets, with 250,000 reports if the number matters.
var goals = map[string]string{
	"operator_rss_mb":                    "at most 350 with 250,000 reports",
	"operator_rss_peak_mb":               "at most 350 with 250,000 reports",
	"operator_restart_s":                 "at most 15 with 250,000 reports, on 2 cores",
	"settle_s":                           "under 1",
	"apiserver_kb_per_agent":             "at most 350",
	"apiserver_kb_per_real_agent":        "at most 350",
	"apiserver_us_per_report_write_1000": "within 10 % of that at 100",
	"agent_rss_mb":                       "at most 32, and as with one node",
}

// print prints all figures, each with its target.
func (b *bench) print(w io.Writer) {
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(b.figures)) {
		goal := ""
		if text, ok := goals[name]; ok {
			goal = "goal: " + text
		}
		fmt.Fprintf(table, "  %s\t%v\t%s\n", name, b.figures[name], goal)
	}
	_ = table.Flush() // to standard output
}
