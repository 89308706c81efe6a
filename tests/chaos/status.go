// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// problems are differences from the model.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return errors.New(strings.Join(p, "\n"))
}

// count counts the nodes as the status of an object does, and returns those that fail.
func (m *Model) count(wanted *Object) (counts v1alpha1.NodeCounts, failing []string) {
	for _, name := range m.Nodes {
		e := m.Expect(wanted, name)
		if !e.Selected {
			continue
		}
		counts.Selected++
		switch {
		case e.Failed:
			counts.Failed++
			failing = append(failing, name)
		case e.Idle:
			counts.Idle++
		default:
			counts.Attached++
		}
	}
	return counts, failing
}

// CheckStatus returns how the status of an object differs from what the model expects.
func (m *Model) CheckStatus(wanted *Object, o v1alpha1.UserObject) []string {
	var p problems
	counts, failing := m.count(wanted)
	state := m.Rollout(wanted)
	want := v1alpha1.ProgramReconcileSuccess
	if counts.Failed > 0 || state.Stalled() {
		want = v1alpha1.ProgramReconcileError
	}
	if state.Stalled() {
		failing = append(failing, m.canary())
	}
	status := o.GetStatus()
	// A revision that no node is to run hasn't been proven, unless it was before the nodes left.
	unproven := counts.Selected == 0 && state == v1alpha1.RolloutComplete
	if is := status.Rollout; (is == nil) != (state == "") || is != nil && is.State != state && (!unproven || is.State != v1alpha1.RolloutProgressing) {
		p.add("%s %s has the rollout %+v, want %q", wanted.Kind, wanted.Name, is, state)
	}
	if len(status.Conditions) == 0 || status.Nodes == nil {
		p.add("%s %s has the status %+v, want %s", wanted.Kind, wanted.Name, *status, want)
		return p
	}
	c := status.Conditions[0]
	if v1alpha1.ProgramConditionTypeOf(c.Type) != want || status.ObservedGeneration != o.GetGeneration() || c.ObservedGeneration != o.GetGeneration() || *status.Nodes != counts {
		p.add("%s %s of generation %d says %s of generations %d and %d, nodes %+v: %s; want %s, nodes %+v", wanted.Kind, wanted.Name, o.GetGeneration(),
			c.Type, status.ObservedGeneration, c.ObservedGeneration, *status.Nodes, c.Message, want, counts)
	}
	if ready := meta.IsStatusConditionTrue(status.Conditions, string(v1alpha1.Ready)); ready != (want == v1alpha1.ProgramReconcileSuccess) {
		p.add("%s %s says that it is ready: %v; want %s", wanted.Kind, wanted.Name, ready, want)
	}
	if state.Stalled() && !meta.IsStatusConditionTrue(status.Conditions, string(v1alpha1.Stalled)) {
		p.add("%s %s doesn't say that its rollout is stalled: %+v", wanted.Kind, wanted.Name, status.Conditions)
	}
	for _, name := range failing {
		if !strings.Contains(c.Message, name) {
			p.add("%s %s doesn't name the node %s that fails: %s", wanted.Kind, wanted.Name, name, c.Message)
		}
	}
	return p
}
