// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"testing"
	"time"
)

// What a node reports, and what else is known of it, from the worst to the best.
func TestHealthOfANode(t *testing.T) {
	fine := Node{Reported: Attached, Ready: true}
	for name, test := range map[string]struct {
		change func(*Node)
		want   Health
		failed bool
	}{
		"attached":                          {func(*Node) {}, Healthy, false},
		"nothing reported":                  {func(n *Node) { n.Reported = Nothing }, Waiting, false},
		"failed":                            {func(n *Node) { n.Reported = Failed }, Failing, true},
		"failed, of all namespaces":         {func(n *Node) { n.Reported, n.Shared = Failed, true }, Failing, true},
		"failed in pods of one namespace":   {func(n *Node) { n.Reported = FailedInPods }, Failing, true},
		"failed in pods of all namespaces":  {func(n *Node) { n.Reported, n.Shared = FailedInPods, true }, Healthy, false},
		"failed, and not ready":             {func(n *Node) { n.Reported, n.Ready = Failed, false }, Failing, true},
		"not ready":                         {func(n *Node) { n.Ready = false }, Waiting, false},
		"not ready after a restart":         {func(n *Node) { n.Ready, n.Restarted = false, true }, Waiting, false},
		"restarted":                         {func(n *Node) { n.Restarted = true }, Failing, false},
		"in conflict":                       {func(n *Node) { n.Conflicted = true }, Failing, false},
		"in conflict, nothing reported":     {func(n *Node) { n.Reported, n.Conflicted = Nothing, true }, Waiting, false},
		"slower than before":                {func(n *Node) { n.RunTime = Failing }, Failing, false},
		"run time isn't known":              {func(n *Node) { n.RunTime = Waiting }, Waiting, false},
		"run time isn't known, in conflict": {func(n *Node) { n.RunTime, n.Conflicted = Waiting, true }, Failing, false},
	} {
		n := fine
		test.change(&n)
		if got := n.Health(); got != test.want || n.Failed() != test.failed {
			t.Errorf("%s: %d, failed %v; want %d, %v", name, got, n.Failed(), test.want, test.failed)
		}
	}
}

// An object that nodes already ran doesn't begin in the first step when a policy begins to match. One that is applied together
// with its policy does, although nodes can have been faster.
func TestAdopted(t *testing.T) {
	created := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		past Past
		want bool
	}{
		"new":                                      {Past{Created: created, Policy: created.Add(-time.Hour)}, false},
		"new, before the policy":                   {Past{Created: created, Policy: created.Add(time.Hour)}, false},
		"the status says that it runs":             {Past{Observed: true, Created: created, Policy: created}, true},
		"reported, together with the policy":       {Past{Reporting: 1, Created: created, Policy: created.Add(together)}, false},
		"reported, the policy was there before":    {Past{Reporting: 1, Created: created, Policy: created.Add(-time.Hour)}, false},
		"reported, and the policy came much later": {Past{Reporting: 1, Created: created, Policy: created.Add(together + time.Second)}, true},
	} {
		if got := test.past.Adopted(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
