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

var causeIsRefused = Invariant{
	Name:     "only a cause is refused",
	Sentence: "A version is tried again if the API server stayed silent for the time limit after it was rolled back.",
	Watch: func(c *Cluster) Checks {
		type node struct {
			undone                    time.Time // the last removal of a program or link
			process                   int       // of the agent that did so
			silentSince, silentBefore time.Time // the last time without a way to the API server
		}
		nodes := map[string]*node{}
		of := func(name string) *node {
			if nodes[name] == nil {
				nodes[name] = &node{}
			}
			return nodes[name]
		}
		const slack = 10 * time.Second
		return Checks{
			Call: func(n *simulation.Node, e simulation.Event) error {
				if e.Verb == "Detach" || e.Verb == "Unload" {
					is := of(n.Name)
					is.undone, is.process = time.Now(), n.Agent.Starts()
				}
				return nil
			},
			Second: func() error {
				for _, n := range c.Nodes() {
					if is := of(n.Name); c.silent(n) {
						if time.Since(is.silentBefore) > time.Second {
							is.silentSince = time.Now()
						}
						is.silentBefore = time.Now()
					}
				}
				return nil
			},
			Write: func(w Write) error {
				if w.After == nil || w.Resource != "bpfprograms" || w.Before != nil && isRefused(reportOf(w.Before)) {
					return nil
				}
				status := reportOf(w.After)
				n := of(status.Node)
				if !isRefused(status) || n.silentSince.After(n.undone) || n.process != c.node(status.Node).Agent.Starts() {
					return nil
				}
				if silent := n.silentBefore.Sub(n.undone); silent > confirmLimit+slack {
					return fmt.Errorf("%s refuses %s, although the API server was silent for %s after the rollback", status.Node, w.After.GetName(), silent)
				}
				return nil
			},
		}
	},
}

// silent reports whether a node gets no response from the API server.
func (c *Cluster) silent(n *simulation.Node) bool {
	return slices.ContainsFunc([]*simulation.Network{n.Network, n.Cable, c.Network}, func(part *simulation.Network) bool {
		reach, _ := part.Reach()
		return reach == simulation.Silent
	})
}
