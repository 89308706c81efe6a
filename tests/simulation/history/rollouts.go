// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// userObject returns a user's object, or nil if it is another object.
func userObject(o *unstructured.Unstructured) v1alpha1.UserObject {
	if o == nil {
		return nil
	}
	for _, kind := range v1alpha1.UserKinds {
		if kind.Name != o.GetKind() {
			continue
		}
		typed := kind.New()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
			return nil
		}
		return typed
	}
	return nil
}

// rollouts returns the rollout before and after a write of a user's object, if neither its revision nor its policy changed, and
// nobody resumed it.
func rollouts(w Write) (was, is *v1alpha1.RolloutStatus, o v1alpha1.UserObject) {
	before, after := userObject(w.Before), userObject(w.After)
	if before == nil || after == nil {
		return nil, nil, nil
	}
	was, is = before.GetStatus().Rollout, after.GetStatus().Rollout
	if was == nil || is == nil || was.Hash != is.Hash || is.Hash != rolloutHash(after) || was.Policy != is.Policy {
		return nil, nil, nil
	}
	return was, is, after
}

func resumed(o v1alpha1.UserObject, was *v1alpha1.RolloutStatus) bool {
	return o.GetAnnotations()[v1alpha1.AnnotationRolloutResumed] == was.Position()
}

var finalStates = Invariant{
	Name:     "final states stay",
	Sentence: "A rollout that is complete, halted, or undone stays so until somebody edits the object, resumes the rollout, or changes the policy.",
	Watch: func(*Cluster) Checks {
		return Checks{Write: func(w Write) error {
			was, is, o := rollouts(w)
			if was == nil || was.State == is.State {
				return nil
			}
			final := was.State == v1alpha1.RolloutComplete || was.State == v1alpha1.RolloutUndone ||
				was.State == v1alpha1.RolloutHalted && !resumed(o, was)
			if final && is.State != v1alpha1.RolloutContested {
				return fmt.Errorf("%s: %s became %s: %s", w, was.State, is.State, is.Message)
			}
			return nil
		}}
	},
}

var stepsAreLimits = Invariant{
	Name:     "steps are limits",
	Sentence: "No more nodes than the steps allow get a revision that the steps before haven't accepted. Nodes that join, or are selected later, have the revision of their place.",
	Watch: func(c *Cluster) Checks {
		type progress struct {
			hash    string
			before  map[string]bool // the loads of earlier revisions
			allowed int
			object  types.UID
			is      *v1alpha1.RolloutStatus
			joined  map[string]bool // nodes that were made or labeled
		}
		// takesPlace reports whether a node has joined, or was selected, since the revision was written, and has a place among those
		// that have it.
		takesPlace := func(p *progress, node string) bool {
			all := c.Objects("nodes")
			i := slices.IndexFunc(all, func(n *unstructured.Unstructured) bool { return n.GetName() == node })
			return p.joined[node] && p.is != nil && i >= 0 &&
				rollout.Changes(p.is, rollout.Position(p.object, node, all[i].GetLabels(), rollout.Canaries(p.is.Canaries)))
		}
		of := map[string]*progress{} // by the object's name
		return Checks{
			Write: func(w Write) error {
				if w.Resource == "nodes" && w.After != nil && (w.Before == nil || !maps.Equal(w.Before.GetLabels(), w.After.GetLabels())) {
					for _, p := range of {
						p.joined[w.After.GetName()] = true
					}
				}
				o := userObject(w.After)
				if o == nil {
					return nil
				}
				wanted, revision := c.wanted(o.GetName()), rolloutHash(o)
				if wanted == nil || !wanted.Staged || !c.Model.Staged || c.Changed("") {
					delete(of, o.GetName())
					return nil
				}
				p := of[o.GetName()]
				if p == nil || p.hash != revision {
					p = &progress{hash: revision, before: c.loads(wanted), object: o.GetUID(), joined: map[string]bool{}}
					of[o.GetName()] = p
				}
				if is := o.GetStatus().Rollout; is != nil && is.Hash == revision {
					p.allowed = max(p.allowed, int(is.Nodes))
					if is.State != v1alpha1.RolloutUndone {
						p.is = is
					}
					if is.State == v1alpha1.RolloutComplete || is.Until == nil && is.Step > 0 {
						p.allowed = len(c.Model.Nodes)
					}
				}
				return nil
			},
			Call: func(*simulation.Node, simulation.Event) error {
				for name, p := range of {
					wanted := c.wanted(name)
					if wanted == nil || !c.Model.Staged {
						delete(of, name)
						continue
					}
					runs := 0
					for _, n := range c.Nodes() {
						if slices.ContainsFunc(c.programsOf(n, wanted), func(l daemontest.Loaded) bool { return !p.before[l.Metadata[v1alpha1.MetadataLoad]] }) && !takesPlace(p, n.Name) {
							runs++
						}
					}
					if runs > p.allowed {
						return fmt.Errorf("%d nodes have loaded the new revision of %s, and the steps allow %d", runs, name, p.allowed)
					}
				}
				return nil
			},
		}
	},
}

// loads returns the IDs of the loads of an object on all nodes.
func (c *Cluster) loads(o *chaos.Object) map[string]bool {
	loads := map[string]bool{}
	for _, n := range c.Nodes() {
		for _, p := range c.programsOf(n, o) {
			loads[p.Metadata[v1alpha1.MetadataLoad]] = true
		}
	}
	return loads
}

func rolloutHash(o v1alpha1.UserObject) string {
	revision, err := rollout.RevisionOf(o)
	if err != nil {
		panic(err) // it was decoded
	}
	return revision.Hash()
}

var stepsInTurn = Invariant{
	Name:     "steps in turn",
	Sentence: "A rollout enters a step after the nodes of the step before were attached and healthy for its pause.",
	Watch: func(c *Cluster) Checks {
		return Checks{Write: func(w Write) error {
			was, is, o := rollouts(w)
			if was == nil || resumed(o, was) || was.State == v1alpha1.RolloutComplete || is.Step <= was.Step && is.State != v1alpha1.RolloutComplete {
				return nil
			}
			return c.stepEnds(o, was)
		}}
	},
}

// stepEnds returns an error if a node of the step that ends doesn't run the revision.
func (c *Cluster) stepEnds(o v1alpha1.UserObject, was *v1alpha1.RolloutStatus) error {
	if was.StepStarted == nil {
		return nil
	}
	wanted := c.wanted(o.GetName())
	if wanted == nil || c.Model.Rollout(wanted) != v1alpha1.RolloutComplete {
		return nil
	}
	if was.Step > 1 && was.Until != nil && time.Since(was.StepStarted.Time) < pause-time.Second {
		return fmt.Errorf("%s left step %d after %s", o.GetName(), was.Step, time.Since(was.StepStarted.Time))
	}
	canaries := rollout.Canaries(was.Canaries)
	for _, n := range c.Objects("nodes") {
		position := rollout.Position(o.GetUID(), n.GetName(), n.GetLabels(), canaries)
		if !c.Calm(time.Minute, n.GetName()) || c.Changed(n.GetName()) || !rollout.Changes(was, position) || !c.Model.Expect(wanted, n.GetName()).Loaded {
			continue
		}
		if err := c.attached(c.node(n.GetName()), wanted); err != nil {
			return fmt.Errorf("%s left step %d: %w", o.GetName(), was.Step, err)
		}
	}
	return nil
}

var listedFirst = Invariant{
	Name:     "listed first",
	Sentence: "A decision waits until the operator has listed all nodes, agents, reports, and BpfNodes. What isn't listed isn't absent.",
	Watch: func(c *Cluster) Checks {
		type process struct {
			name  string
			start int
		}
		var mu sync.Mutex
		listed := map[process]map[string]bool{}
		of := func(actor string) map[string]bool {
			p := process{actor, c.Component(actor).Starts()}
			if listed[p] == nil {
				listed[p] = map[string]bool{}
			}
			return listed[p]
		}
		c.OnEvent(func(_ context.Context, e simulation.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(e.Actor, "operator/") && e.Done && (e.Verb == "list" || e.Verb == "watch") {
				of(e.Actor)[e.Resource] = true
			}
			return nil
		})
		return Checks{Write: func(w Write) error {
			was, is := userObject(w.Before), userObject(w.After)
			if was == nil || is == nil || !strings.HasPrefix(w.Actor, "operator/") || reflect.DeepEqual(was.GetStatus().Rollout, is.GetStatus().Rollout) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			for _, resource := range []string{"nodes", "pods", "bpfprograms", "bpfnodes", "rolloutpolicies"} {
				if !of(w.Actor)[resource] {
					return fmt.Errorf("%s, before it has listed %s", w, resource)
				}
			}
			return nil
		}}
	},
}

var readyIsAttached = Invariant{
	Name:     "ready is attached",
	Sentence: "An object is ready only when each selected node has attached that generation.",
	Watch: func(c *Cluster) Checks {
		return Checks{Write: func(w Write) error {
			was, is := userObject(w.Before), userObject(w.After)
			if is == nil || !ready(is) || was != nil && ready(was) && was.GetGeneration() == is.GetGeneration() {
				return nil
			}
			wanted := c.wanted(is.GetName())
			if wanted == nil || is.GetStatus().ObservedGeneration != is.GetGeneration() {
				return nil
			}
			// The model can be ahead of this generation, and points of attachment of the reports that the status is about.
			current := rolloutHash(is) == rolloutHash(c.objectOf(wanted)) && !c.Changed(points) && !c.Restored()
			for _, n := range c.Nodes() {
				// While the API server doesn't answer, nodes become unreachable. The status doesn't count them, even a moment after.
				if !c.Calm(recent, n.Name, "") || c.Changed(n.Name) {
					continue
				}
				e := c.Model.Expect(wanted, n.Name)
				switch err := c.attached(n, wanted); {
				case e.Loaded && len(c.programsOf(n, wanted)) == 0:
					return fmt.Errorf("%s is ready, and %s has loaded nothing for it", is.GetName(), n.Name)
				case current && e.Failed:
					return fmt.Errorf("%s is ready, although it can't be attached on %s", is.GetName(), n.Name)
				case current && err != nil:
					return fmt.Errorf("%s is ready: %w", is.GetName(), err)
				}
			}
			return nil
		}}
	},
}

func ready(o v1alpha1.UserObject) bool {
	return slices.ContainsFunc(o.GetStatus().Conditions, func(condition metav1.Condition) bool {
		return condition.Type == string(v1alpha1.Ready) && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == o.GetGeneration()
	})
}
