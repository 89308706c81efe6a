// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// wanted returns the object with a name as users want it, or nil.
func (c *Cluster) wanted(name string) *chaos.Object { return c.Model.Objects[name] }

// programsOf returns what a daemon has loaded for an object.
func (*Cluster) programsOf(n *simulation.Node, o *chaos.Object) (programs []daemontest.Loaded) {
	for _, p := range n.Daemon.Programs() {
		if p.Metadata[v1alpha1.MetadataProgramName] == o.Name && p.Metadata[v1alpha1.MetadataKind] == o.Kind {
			programs = append(programs, p)
		}
	}
	return programs
}

// attached returns how what a node runs for an object differs from what the model expects.
func (c *Cluster) attached(n *simulation.Node, o *chaos.Object) error {
	return c.attachedExcept(n, o, func(chaos.Point) bool { return false })
}

// attachedExcept is attached for an object that may lack certain points.
func (c *Cluster) attachedExcept(n *simulation.Node, o *chaos.Object, mayLack func(chaos.Point) bool) error {
	e := c.Model.Expect(o, n.Name)
	programs := c.programsOf(n, o)
	if !e.Selected || !e.Loaded {
		if held := o.Held(n.Name); len(programs) > 0 && (!e.Selected || held.Serial == 0) {
			return fmt.Errorf("%s has %d programs of %s %s, which it isn't to run", n.Name, len(programs), o.Kind, o.Name)
		}
		return nil
	}
	members := c.Model.Runs(o, n.Name).Members()
	if len(programs) != len(members) {
		return fmt.Errorf("%s has %d programs of %s %s, not %d", n.Name, len(programs), o.Kind, o.Name, len(members))
	}
	for i, member := range members {
		at := slices.IndexFunc(programs, func(p daemontest.Loaded) bool { return p.Function == member.Function })
		if at < 0 {
			return fmt.Errorf("%s doesn't have the program %s of %s %s", n.Name, member.Function, o.Kind, o.Name)
		}
		attachable := slices.DeleteFunc(slices.Clone(e.Points[i]), func(p chaos.Point) bool { return !p.Attached })
		most := len(attachable)
		least := len(slices.DeleteFunc(attachable, mayLack))
		if links := len(programs[at].Links); links > most || links < least {
			return fmt.Errorf("%s has %d links of the program %s of %s %s, not %d to %d: %v", n.Name, links, member.Function, o.Kind, o.Name, least, most, e.Points[i])
		}
	}
	return nil
}

var asExpected = Invariant{
	Name:     "as users want",
	Sentence: "At rest, each node has loaded and attached what users want, and nothing else, and each status says so.",
	Watch: func(c *Cluster) Checks {
		return Checks{Rest: func() error {
			var found []error
			for _, name := range slices.Sorted(maps.Keys(c.Model.Objects)) {
				for _, n := range c.Nodes() {
					found = append(found, c.attached(n, c.Model.Objects[name]))
				}
			}
			objects := 0
			for _, kind := range v1alpha1.UserKinds {
				for _, o := range c.Objects(kind.Resource()) {
					wanted := c.wanted(o.GetName())
					if wanted == nil {
						found = append(found, fmt.Errorf("%s %s is left", o.GetKind(), o.GetName()))
						continue
					}
					objects++
					for _, problem := range c.Model.CheckStatus(wanted, userObject(o)) {
						found = append(found, errors.New(problem))
					}
				}
			}
			if objects != len(c.Model.Objects) {
				found = append(found, fmt.Errorf("there are %d objects, not %d", objects, len(c.Model.Objects)))
			}
			return errors.Join(found...)
		}}
	},
}

var reportsAreTrue = Invariant{
	Name:     "reports are true",
	Sentence: "At rest, reports equal what the daemon has, and nothing of a deleted object is left.",
	Watch: func(c *Cluster) Checks {
		return Checks{Rest: func() error {
			reported := map[string]bool{}
			for _, resource := range []string{"bpfprograms", "bpfnsprograms"} {
				for _, o := range c.Objects(resource) {
					status := reportOf(o)
					n := c.node(status.Node)
					if n == nil {
						return fmt.Errorf("report %s is of node %q", o.GetName(), status.Node)
					}
					if status.ProgramID == 0 {
						continue
					}
					reported[fmt.Sprint(n.Name, status.ProgramID)] = true
					if err := sameLinks(n, o.GetName(), status); err != nil {
						return err
					}
				}
			}
			for _, n := range c.Nodes() {
				for _, p := range n.Daemon.Programs() {
					wanted := c.wanted(p.Metadata[v1alpha1.MetadataProgramName])
					if wanted == nil {
						return fmt.Errorf("%s has program %d of the deleted %s", n.Name, p.ID, p.Metadata[v1alpha1.MetadataProgramName])
					}
					// If the newest revision can't be loaded, the report is about that, and not about the one that is kept.
					if c.Model.Expect(wanted, n.Name).Loaded && !reported[fmt.Sprint(n.Name, p.ID)] {
						return fmt.Errorf("%s has program %d, %s of %s, which isn't reported", n.Name, p.ID, p.Function, p.Metadata[v1alpha1.MetadataProgramName])
					}
				}
			}
			return nil
		}}
	},
}

func reportOf(o *unstructured.Unstructured) v1alpha1.BpfProgramStatus {
	var report v1alpha1.BpfProgram
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &report); err != nil {
		panic(err) // a BpfNsProgram has the same fields
	}
	return report.Status
}

// sameLinks compares a report with its program.
func sameLinks(n *simulation.Node, report string, status v1alpha1.BpfProgramStatus) error {
	programs := n.Daemon.Programs()
	i := slices.IndexFunc(programs, func(p daemontest.Loaded) bool { return p.ID == status.ProgramID })
	if i < 0 {
		return fmt.Errorf("report %s is of program %d, which %s doesn't have", report, status.ProgramID, n.Name)
	}
	attached := 0
	for _, link := range status.Links {
		if link.LinkID != 0 {
			attached++
		}
	}
	if attached != len(programs[i].Links) {
		return fmt.Errorf("report %s has %d links, and program %d on %s has %d", report, attached, status.ProgramID, n.Name, len(programs[i].Links))
	}
	return nil
}

var loadedOnce = Invariant{
	Name:     "loaded once",
	Sentence: "The agent loads nothing twice, no matter at which call it crashed. At most the programs of two revisions are loaded.",
	Watch: func(*Cluster) Checks {
		return Checks{Call: func(n *simulation.Node, e simulation.Event) error {
			if e.Verb != "Load" {
				return nil
			}
			loaded := map[string]int{}
			for _, p := range n.Daemon.Programs() {
				key := fmt.Sprint(p.Metadata[v1alpha1.MetadataUUID], p.Metadata[v1alpha1.MetadataLoad], p.Function)
				if loaded[key]++; loaded[key] > 1 {
					return fmt.Errorf("%s has %s of %s twice", n.Name, p.Function, p.Metadata[v1alpha1.MetadataProgramName])
				}
			}
			return nil
		}}
	},
}

var keptPrograms = Invariant{
	Name:     "programs are kept",
	Sentence: "A program is loaded again only if its object requires that, or if the node or the daemon lost it.",
	Watch: func(c *Cluster) Checks {
		before := map[string]string{} // IDs, by node, object and number of the load
		return Checks{Rest: func() error {
			now := map[string]string{}
			for _, o := range c.Model.Objects {
				for _, n := range c.Nodes() {
					held := o.Held(n.Name)
					if held.Serial == 0 {
						continue
					}
					key, ids := fmt.Sprint(n.Name, "/", o.Name, "/", held.Serial), ""
					for _, p := range c.programsOf(n, o) {
						ids += fmt.Sprint(" ", p.ID)
					}
					if was, there := before[key]; there && was != ids && !c.Restored() && !c.mayUndo(o, n) {
						return fmt.Errorf("%s had the programs%s of %s, and now has%s", n.Name, was, o.Name, ids)
					}
					now[key] = ids
				}
			}
			before = now
			return nil
		}}
	},
}

// Limits of rollbacks.
const (
	confirmLimit = 30 * time.Second
	undoLimit    = 15 * time.Second
)

// cuts reports whether a program cuts off a node.
func cuts(n *simulation.Node) bool {
	return slices.ContainsFunc(n.Daemon.Programs(), func(p daemontest.Loaded) bool {
		return strings.Contains(p.Function, simulation.CutOff) && len(p.Links) > 0
	})
}

var cutOffIsBack = Invariant{
	Name:     "back after a cut",
	Sentence: "A node that a program cuts off is back within its time limit and 15 seconds.",
	Watch: func(c *Cluster) Checks {
		silent := map[string]time.Duration{} // how long a node was cut off while its agent and daemon could work
		return Checks{Second: func() error {
			for _, n := range c.Nodes() {
				switch {
				case !cuts(n):
					silent[n.Name] = 0
				case c.Calm(time.Minute, n.Name):
					silent[n.Name] += time.Second
				}
				if silent[n.Name] > confirmLimit+undoLimit {
					return fmt.Errorf("%s has been cut off for %s", n.Name, silent[n.Name])
				}
			}
			return nil
		}}
	},
}

var knownIsAttached = Invariant{
	Name:     "known is attached",
	Sentence: "What a node knows is attached within 10 seconds, with or without the API server.",
	Watch: func(c *Cluster) Checks {
		const limit = 10 * time.Second
		missing := map[string]time.Time{}
		return Checks{Second: func() error {
			for name, o := range c.Model.Objects {
				for _, n := range c.Nodes() {
					key := n.Name + "/" + name
					known := !c.Changed(name) && !c.Changed(n.Name) && !c.Changed("") && c.Calm(time.Since(c.Settled), n.Name) && o.Held(n.Name).Serial != 0 &&
						!strings.Contains(o.Kind, "Ns") && !cuts(n) && !c.mayUndo(o, n)
					if !known {
						delete(missing, key)
						continue
					}
					err := c.attachedExcept(n, o, c.mayLack(o, n))
					if err == nil {
						delete(missing, key)
						continue
					}
					if missing[key].IsZero() {
						missing[key] = time.Now()
					}
					if since := time.Since(missing[key]); since > limit {
						return fmt.Errorf("for %s: %w", since, err)
					}
				}
			}
			return nil
		}}
	},
}

// restInvariant is broken by a cluster that doesn't come to rest.
var restInvariant = Invariant{
	Name:     "comes to rest",
	Sentence: "Nothing is loaded and unloaded, or written, in turns when nothing changes.",
	Watch:    func(*Cluster) Checks { return Checks{} },
}
