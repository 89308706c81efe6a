// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// isRolledBack reports whether a report is about a version that its node has rolled back.
func isRolledBack(status v1alpha1.BpfProgramStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, string(v1alpha1.BpfProgCondRolledBack))
}

// isRefused reports whether the node doesn't try the version again, because the API server responded after the rollback.
func isRefused(status v1alpha1.BpfProgramStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, string(v1alpha1.BpfProgCondRolledBack))
	return c != nil && strings.Contains(c.Message, "got one after the rollback")
}

// mayUndo reports whether a node can have undone all of an object since the last rest. A version that can be attached to another
// interface must be confirmed there. Without the API server, its node undoes that, and all of a version that it hasn't confirmed
// anywhere.
func (c *Cluster) mayUndo(o *chaos.Object, n *simulation.Node) bool {
	open := slices.ContainsFunc(slices.Concat(c.Model.Expect(o, n.Name).Points...), func(p chaos.Point) bool { return p.Interface != "" })
	return open && c.mayConfirm(n) && (len(c.confirmed[placeOf(o, n)]) == 0 || c.Changed(o.Name) || !c.Calm(time.Since(c.Settled), n.Name))
}

// mayConfirm reports whether a node can have had to confirm versions since the last rest without the API server, although nobody
// changed them.
func (c *Cluster) mayConfirm(n *simulation.Node) bool {
	return c.Changed(points) && !c.Calm(time.Since(c.Settled), "", n.Name)
}

// mayLack reports whether a node can have undone an object at a point.
func (c *Cluster) mayLack(o *chaos.Object, n *simulation.Node) func(chaos.Point) bool {
	return func(p chaos.Point) bool {
		return p.Interface != "" && c.mayConfirm(n) && !c.confirmed[placeOf(o, n)][p.Name]
	}
}

// placeOf returns the key of what a node has of an object.
func placeOf(o *chaos.Object, n *simulation.Node) string { return n.Name + "/" + o.Name }

// confirmedAtRest returns the points at interfaces that nodes have confirmed when the cluster is at rest.
func (c *Cluster) confirmedAtRest() map[string]map[string]bool {
	confirmed := map[string]map[string]bool{}
	for _, o := range c.Model.Objects {
		for _, n := range c.Nodes() {
			at := map[string]bool{}
			for _, p := range slices.Concat(c.Model.Expect(o, n.Name).Points...) {
				if p.Attached && p.Interface != "" {
					at[p.Name] = true
				}
			}
			confirmed[placeOf(o, n)] = at
		}
	}
	return confirmed
}

// tryAgain does what users are told to do about good versions that nodes rolled back: a node that can't reach the API server for
// another reason can't tell which version is the cause. It reports whether there were any.
func (c *Cluster) tryAgain() bool {
	tried := map[string]bool{}
	for _, report := range c.Objects("bpfprograms") {
		status, name := reportOf(report), report.GetLabels()[v1alpha1.LabelOwnedByProgram]
		wanted := c.wanted(name)
		if !isRolledBack(status) || wanted == nil || tried[name] || !c.Model.Expect(wanted, status.Node).Loaded {
			continue
		}
		tried[name] = true
		c.note("USER tries %s again", name)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationRestartedAt, time.Now().Format(time.RFC3339))
		if err := c.Client.Patch(c.tb.Context(), c.objectOf(wanted), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			c.tb.Fatalf("try %s again: %v", name, err)
		}
	}
	return len(tried) > 0
}

var reachableIsKept = Invariant{
	Name:     "kept if reachable",
	Sentence: "A node that can reach the API server is never rolled back.",
	Watch: func(c *Cluster) Checks {
		cut, silent := map[string]time.Time{}, silences{}
		told := map[string]bool{} // reports with their messages: a report can be made again
		const recent = time.Hour  // other faults delay the report about a rollback
		return Checks{
			Call: func(n *simulation.Node, _ simulation.Event) error {
				if cuts(n) {
					cut[n.Name] = time.Now()
				}
				return nil
			},
			Second: func() error {
				silent.observe(c)
				return nil
			},
			Write: func(w Write) error {
				if w.After == nil || w.Resource != "bpfprograms" {
					return nil
				}
				status := reportOf(w.After)
				if !isRolledBack(status) {
					return nil
				}
				message := meta.FindStatusCondition(status.Conditions, string(v1alpha1.BpfProgCondRolledBack)).Message
				key := w.After.GetName() + ": " + message
				if told[key] {
					return nil
				}
				told[key] = true
				if time.Since(cut[status.Node]) < recent || time.Since(silent[status.Node].last) < recent || strings.HasPrefix(message, "this node restarted") {
					return nil
				}
				return fmt.Errorf("%s rolled back %s although it could reach the API server: %s", status.Node, w.After.GetName(), message)
			},
		}
	},
}

var causeIsRefused = Invariant{
	Name:     "only a cause is refused",
	Sentence: "A version is tried again if the API server stayed silent for the time limit after it was rolled back.",
	Watch: func(c *Cluster) Checks {
		type removal struct {
			at    time.Time
			start int // of the agent
		}
		removed, silent := map[string]removal{}, silences{} // by node
		const slack = 10 * time.Second
		return Checks{
			Call: func(n *simulation.Node, e simulation.Event) error {
				if e.Verb == "Detach" || e.Verb == "Unload" {
					removed[n.Name] = removal{time.Now(), n.Agent.Starts()}
				}
				return nil
			},
			Second: func() error {
				silent.observe(c)
				return nil
			},
			Write: func(w Write) error {
				if w.After == nil || w.Resource != "bpfprograms" || w.Before != nil && isRefused(reportOf(w.Before)) {
					return nil
				}
				status := reportOf(w.After)
				undone, silence := removed[status.Node], silent[status.Node]
				if !isRefused(status) || silence.since.After(undone.at) || c.node(status.Node).Agent.Starts() != undone.start {
					return nil
				}
				if lasted := silence.last.Sub(undone.at); lasted > confirmLimit+slack {
					return fmt.Errorf("%s refuses %s, although the API server was silent for %s after the rollback", status.Node, w.After.GetName(), lasted)
				}
				return nil
			},
		}
	},
}

// silence is a time in which a node gets no response from the API server.
type silence struct{ since, last time.Time }

// silences contains the last silence of each node.
type silences map[string]silence

// observe is called each second.
func (s silences) observe(c *Cluster) {
	for _, n := range c.Nodes() {
		if !c.silent(n) {
			continue
		}
		is := s[n.Name]
		if time.Since(is.last) > time.Second {
			is.since = time.Now()
		}
		is.last = time.Now()
		s[n.Name] = is
	}
}

// silent reports whether a node gets no response from the API server.
func (c *Cluster) silent(n *simulation.Node) bool {
	return slices.ContainsFunc([]*simulation.Network{n.Network, n.Cable, c.Network}, func(part *simulation.Network) bool {
		reach, _ := part.Reach()
		return reach == simulation.Silent
	})
}
