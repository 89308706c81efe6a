// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policies

import (
	"slices"
	"testing"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

func TestTally(t *testing.T) {
	const a, d, w, u = v1alpha1.VerdictAllowed, v1alpha1.VerdictDenied, v1alpha1.VerdictWarned, v1alpha1.VerdictUnknown
	said := func(policy string, verdict v1alpha1.PolicyVerdict) v1alpha1.BpfProgramPolicy {
		return v1alpha1.BpfProgramPolicy{Name: policy, Verdict: verdict}
	}
	tally, last := newTally(), map[types.UID]*reports.Report{}
	for i, step := range []struct {
		uid     types.UID
		node    string
		said    []v1alpha1.BpfProgramPolicy
		changed []string
		p, q    counts
		nodes   int
	}{
		{"1", "n1", []v1alpha1.BpfProgramPolicy{said("p", a)}, []string{"p"}, counts{1, 0, 0}, counts{}, 1},
		{"2", "n1", []v1alpha1.BpfProgramPolicy{said("p", d), said("q", w)}, []string{"p", "q"}, counts{1, 1, 0}, counts{0, 0, 1}, 1},
		{"2", "n1", []v1alpha1.BpfProgramPolicy{said("p", d), said("q", w)}, nil, counts{1, 1, 0}, counts{0, 0, 1}, 1},
		{"3", "n2", nil, nil, counts{1, 1, 0}, counts{0, 0, 1}, 2},
		{"2", "n1", []v1alpha1.BpfProgramPolicy{said("p", a), said("q", u)}, []string{"p", "q"}, counts{2, 0, 0}, counts{}, 2},
		{"1", "", nil, []string{"p"}, counts{1, 0, 0}, counts{}, 2},
		{"3", "", nil, nil, counts{1, 0, 0}, counts{}, 1},
		{"2", "", nil, []string{"p"}, counts{}, counts{}, 0},
	} {
		change := reports.Change{Before: last[step.uid]}
		if step.node != "" {
			change.After = &reports.Report{
				UID: step.uid, Node: unique.Make(reports.Node{Label: step.node}), State: unique.Make(reports.State{}.WithPolicies(step.said)),
			}
		}
		last[step.uid] = change.After
		changed := tally.change(change)
		slices.Sort(changed)
		if !slices.Equal(changed, step.changed) || tally.of("p") != step.p || tally.of("q") != step.q || tally.nodes() != step.nodes {
			t.Errorf("step %d: changed %q, p %v, q %v, %d nodes", i, changed, tally.of("p"), tally.of("q"), tally.nodes())
		}
	}
	if len(tally.byName)+len(tally.reports) > 0 {
		t.Errorf("it keeps %+v", tally)
	}
}
