// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"text/tabwriter"

	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// result is what was observed for a kind.
type result struct{ loaded, attached, counted, read, removed bool }

var results = struct {
	sync.Mutex
	kinds map[string]*result
}{kinds: map[string]*result{}}

// saw records what was observed for a kind.
func saw(kind string, note func(*result)) {
	results.Lock()
	defer results.Unlock()
	if results.kinds[kind] == nil {
		results.kinds[kind] = &result{}
	}
	note(results.kinds[kind])
}

func printResults(ctx context.Context, _ *envconf.Config) (context.Context, error) {
	results.Lock()
	defer results.Unlock()
	yes := map[bool]string{true: "yes", false: "-"}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nKIND\tLOADED\tATTACHED\tEVENTS COUNTED\tREAD BY AN UNPRIVILEGED POD\tREMOVED WITHOUT TRACE")
	for _, kind := range v1alpha1.UserKinds {
		r := results.kinds[kind.Name]
		if r == nil {
			r = &result{}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", kind.Name, yes[r.loaded], yes[r.attached], yes[r.counted], yes[r.read], yes[r.removed])
	}
	fmt.Fprintln(table, "\nTYPE\tTHE DAEMON ITSELF, ON THESE KERNELS")
	for _, name := range trialOrder {
		t, tried := under.trials[name]
		switch {
		case !tried:
			fmt.Fprintf(table, "%s\tnot tried\n", name)
		case t.Attached:
			fmt.Fprintf(table, "%s\tattaches\n", name)
		default:
			fmt.Fprintf(table, "%s\t%s\n", name, strings.ReplaceAll(inTheWay(t), "\n", " "))
		}
	}
	fmt.Fprintln(table, "\nSKIPPED\tLACKS\tREASON")
	for _, s := range prerequisite.Skipped() {
		fmt.Fprintf(table, "%s\t%v\t%s\n", s.Test, s.Names, s.Reason)
	}
	if err := table.Flush(); err != nil {
		return ctx, fmt.Errorf("print the results: %w", err)
	}
	return ctx, nil
}
