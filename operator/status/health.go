// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	steps "github.com/bpfman/bpfman-operator/operator/rollout"
)

// Changing is the state of the nodes that are to have the newest revision during a rollout.
type Changing struct {
	// Healthy is the number of nodes that have reported the revision, and work. Waiting is the number of those that haven't
	// reported it, aren't ready, or haven't measured a run time that is limited. Failed is the number of nodes that report a
	// failure, or have become unhealthy.
	Healthy, Waiting, Failed int
	// Names contains the first of those that aren't healthy, failed ones first, with the reasons.
	Names []string
}

// progress is the state of a node in a rollout.
type progress int

const (
	// uninvolved means that there is no rollout, or that the node isn't to have the newest revision.
	uninvolved progress = iota
	healthy
	unsettled
	failing
)

// progress returns the state of a node in the rollout of an object, and the reason why the node isn't healthy, if it is
// known.
func (o *owner) progress(r *nodeState) (progress, string) {
	roll := o.Rollout
	if roll == nil || roll.Started == nil || !r.changes || !r.selected || o.Deleting {
		return uninvolved, ""
	}
	restarted, conflict, slow := o.restarted(r.node), o.conflict(r.node), ""
	n := steps.Node{
		Reported: r.reported, Shared: o.ref.Namespace == "", Ready: r.node.ready(), Restarted: restarted != "", Conflicted: conflict != "",
	}
	if roll.MaxRunTimePercent != 0 && r.outcome != idle {
		n.RunTime, slow = o.compareRunTimes(r)
	}
	reason := cmp.Or(restarted, conflict, slow)
	switch {
	case n.Failed():
		reason = r.reason.Text
	case n.Reported == steps.Nothing || !n.Ready:
		reason = ""
	}
	switch n.Health() {
	case steps.Healthy:
		return healthy, ""
	case steps.Waiting:
		return unsettled, reason
	case steps.Failing:
	}
	return failing, reason
}

// sighting is when this process learned of something on a node, among all that it learns. The clocks of nodes and of the
// operator can differ.
type sighting struct {
	order uint64
	// first means that the process didn't know of the node before, for example because it has just started. So it can have
	// begun earlier.
	first bool
}

// restarted returns why the node isn't healthy if a container of the agent's pods has terminated since the step began, or "".
// Users accept what happened in an earlier step when they resume the rollout.
func (o *owner) restarted(n *node) string {
	var last time.Time
	for _, t := range n.terminated {
		if t.seen.order > o.stepOrder && !t.seen.first && t.at.After(last) {
			last = t.at
		}
	}
	if last.IsZero() {
		return ""
	}
	return "the agent or the daemon terminated at " + last.UTC().Format(time.RFC3339)
}

// conflict returns a conflict that has begun since the step began, or "".
func (o *owner) conflict(n *node) string {
	for _, c := range n.conflicts {
		seen := n.seenConflicts[c.ID()]
		if c.Kind == o.ref.Kind && c.Namespace == o.ref.Namespace && c.Name == o.ref.Name && seen.order > o.stepOrder && (!seen.first || c.AfterLoad()) {
			return c.Message
		}
	}
	return ""
}

// compareRunTimes returns the state of a node with a limit on run times.
func (o *owner) compareRunTimes(r *nodeState) (state steps.Health, reason string) {
	for _, program := range r.reports {
		measured, ok := r.node.runTimes[program.ProgramID]
		switch {
		case !ok:
			state, reason = steps.Waiting, "the inspector hasn't measured run times"
		case measured.seen.order <= o.rolloutOrder || measured.Previous == 0:
			// The change didn't load the program again, or there is nothing to compare with.
		case measured.Average == 0:
			state, reason = steps.Waiting, "the program hasn't run often enough to compare run times"
		case measured.Average*100 > int64(o.Rollout.MaxRunTimePercent)*measured.Previous:
			return steps.Failing, failure(program.State.Value().Member, fmt.Sprintf("a run takes %d ns on average, and %d ns in the previous revision",
				measured.Average, measured.Previous))
		}
	}
	return state, reason
}

// ready reports whether the node and a pod of its agent are ready.
func (n *node) ready() bool {
	ready := len(n.pods) == 0 // it is being replaced
	for pod := range n.pods {
		ready = ready || n.notReady[pod].IsZero()
	}
	return ready && n.notReady[""].IsZero()
}

// SetReadiness sets since when a node isn't ready, or a pod of its agent, whose UID is given. The time is zero for ready.
// Terminated is when a container of the pod terminated last, or zero.
func (x *Index) SetReadiness(nodeName string, pod types.UID, unready, terminated time.Time) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(nodeName), nodeName)
	was, known := n.terminated[pod]
	if known && n.notReady[pod].Equal(unready) && was.at.Equal(terminated) {
		return nil
	}
	if !known && n.notReady[pod].IsZero() && unready.IsZero() && terminated.IsZero() {
		n.terminated[pod] = termination{seen: x.sees(true)} // it changes no owner
		return nil
	}
	return x.changeNode(n, func() {
		if unready.IsZero() {
			delete(n.notReady, pod)
		} else {
			n.notReady[pod] = unready
		}
		if !known || !was.at.Equal(terminated) {
			n.terminated[pod] = termination{terminated, x.sees(!known)}
		}
	})
}

// termination is when a container of a pod terminated last, or zero.
type termination struct {
	at   time.Time
	seen sighting
}

// sees returns the sighting of something that the process learns now.
func (x *Index) sees(first bool) sighting {
	x.order++
	return sighting{x.order, first}
}

// maxSeen is the maximum number of conflicts of a node that are remembered, in case that they return.
const maxSeen = 500

// SetHealth sets what the inspector of a node says about objects.
func (x *Index) SetHealth(nodeName string, h rollout.Health) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(nodeName), nodeName)
	first := !n.inspected
	n.inspected = true
	if len(h.Conflicts)+len(h.RunTimes)+len(n.conflicts)+len(n.runTimes) == 0 {
		return nil
	}
	return x.changeNode(n, func() {
		n.conflicts = h.Conflicts
		if len(n.seenConflicts) > maxSeen {
			n.seenConflicts = nil
		}
		for _, c := range h.Conflicts {
			if n.seenConflicts == nil {
				n.seenConflicts = map[rollout.ConflictID]sighting{}
			}
			if _, known := n.seenConflicts[c.ID()]; !known {
				n.seenConflicts[c.ID()] = x.sees(first)
			}
		}
		before := n.runTimes
		n.runTimes = nil
		if len(h.RunTimes) > 0 {
			n.runTimes = make(map[uint32]runTime, len(h.RunTimes))
		}
		for _, measured := range h.RunTimes {
			is := runTime{measured, before[measured.Program].seen}
			if was := before[measured.Program]; is.seen.order == 0 || !was.Loaded.Equal(&measured.Loaded) {
				is.seen = x.sees(first)
			}
			n.runTimes[measured.Program] = is
		}
	})
}

// DeleteHealth removes what the inspector of a node says, because it has no BpfNode anymore.
func (x *Index) DeleteHealth(nodeName string) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(nodeName), nodeName)
	refs := x.changeNode(n, func() { n.inspected, n.conflicts, n.seenConflicts, n.runTimes = false, nil, nil, nil })
	x.forgetNode(n)
	return refs
}

// runTime is how long the runs of a program take, and when the process first learned of it.
type runTime struct {
	rollout.RunTime

	seen sighting
}

// healthEvents updates the index from the annotations of BpfNodes.
func (r *Reconciler) healthEvents() handler.TypedEventHandler[client.Object, Ref] {
	return handle(
		func(o *metav1.PartialObjectMetadata, q queue) {
			h, err := rollout.ParseHealth(o.Annotations[v1alpha1.AnnotationObjectHealth])
			if err != nil {
				ctrl.Log.Error(err, "Failed to read the health of objects on a node; conflicts and run times there are unknown", "node", o.Name)
			}
			enqueue(q, r.index.SetHealth(o.Name, h))
		},
		func(o *metav1.PartialObjectMetadata, q queue) {
			enqueue(q, r.index.DeleteHealth(o.Name))
		},
	)
}

// unreadySince returns since when a condition of type Ready isn't True, or zero if it is. An absent one counts from the
// creation of the object.
func unreadySince(ready bool, since, created metav1.Time) time.Time {
	switch {
	case ready:
		return time.Time{}
	case since.IsZero():
		return created.Time
	}
	return since.Time
}

// terminatedAt returns when the agent or the daemon in a pod terminated last, or zero. A new pod hasn't.
func terminatedAt(pod *corev1.Pod) (last time.Time) {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != deploy.AgentContainer && s.Name != deploy.DaemonContainer {
			continue
		}
		for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if t != nil && t.FinishedAt.After(last) {
				last = t.FinishedAt.Time
			}
		}
	}
	return last
}
