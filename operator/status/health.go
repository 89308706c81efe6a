// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
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
)

// Changing is the state of the nodes that are to have the newest revision during a rollout.
type Changing struct {
	// Waiting is the number of nodes that haven't reported the revision, aren't ready, or haven't measured a run time that
	// is limited. Failed is the number of nodes that report a failure, or have become unhealthy.
	Waiting, Failed int
	// Names contains the first of them, failed ones first, with the reasons.
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
	if roll == nil || roll.Started == nil || !r.changes {
		return uninvolved, ""
	}
	if gone := r.lost && r.node.notReady[""].After(roll.Started.Time); !r.selected && !gone {
		return uninvolved, ""
	}
	switch {
	case r.outcome == failed:
		return failing, r.reason
	case !r.selected || r.outcome == waiting || !r.node.ready():
		return unsettled, ""
	}
	// Users accept what happened in an earlier step when they resume the rollout.
	if since := roll.StepStarted; since != nil {
		if at := r.node.restarted(); !at.Before(since.Time) {
			return failing, "the agent or the daemon terminated at " + at.UTC().Format(time.RFC3339)
		}
		for _, c := range r.node.conflicts {
			if c.Kind == o.ref.Kind && c.Namespace == o.ref.Namespace && c.Name == o.ref.Name && !c.Since.Time.Before(since.Time) {
				return failing, c.Message
			}
		}
	}
	if roll.MaxRunTimePercent != 0 && r.outcome == attached {
		return o.compareRunTimes(r)
	}
	return healthy, ""
}

// compareRunTimes returns the state of a node with a limit on run times.
func (o *owner) compareRunTimes(r *nodeState) (state progress, reason string) {
	state = healthy
	for _, program := range r.reports {
		measured, ok := r.node.runTimes[program.ProgramID]
		switch {
		case !ok:
			state, reason = unsettled, "the inspector hasn't measured run times"
		case measured.Loaded.Before(o.Rollout.Started) || measured.Previous == 0:
			// The change didn't load the program again, or there is nothing to compare with.
		case measured.Average == 0:
			state, reason = unsettled, "the program hasn't run often enough to compare run times"
		case measured.Average*100 > int64(o.Rollout.MaxRunTimePercent)*measured.Previous:
			return failing, failure(program.State.Value().Member, fmt.Sprintf("a run takes %d ns on average, and %d ns in the previous revision",
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

// restarted returns when a container of the agent's pods terminated last, or zero.
func (n *node) restarted() (last time.Time) {
	for _, at := range n.terminated {
		if at.After(last) {
			last = at
		}
	}
	return last
}

// SetReadiness sets since when a node isn't ready, or a pod of its agent, whose UID is given. The time is zero for ready.
// Terminated is when a container of the pod terminated last, or zero.
func (x *Index) SetReadiness(nodeName string, pod types.UID, unready, terminated time.Time) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(nodeName), nodeName)
	if n.notReady[pod].Equal(unready) && n.terminated[pod].Equal(terminated) {
		return nil
	}
	return x.changeNode(n, func() {
		setTime(n.notReady, pod, unready)
		setTime(n.terminated, pod, terminated)
	})
}

func setTime(times map[types.UID]time.Time, of types.UID, at time.Time) {
	if at.IsZero() {
		delete(times, of)
	} else {
		times[of] = at
	}
}

// SetHealth sets what the inspector of a node says about objects.
func (x *Index) SetHealth(nodeName string, h rollout.Health) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(nodeName), nodeName)
	if len(h.Conflicts)+len(h.RunTimes)+len(n.conflicts)+len(n.runTimes) == 0 {
		x.forgetNode(n)
		return nil
	}
	refs := x.changeNode(n, func() {
		n.conflicts, n.runTimes = h.Conflicts, nil
		if len(h.RunTimes) > 0 {
			n.runTimes = make(map[uint32]rollout.RunTime, len(h.RunTimes))
		}
		for _, measured := range h.RunTimes {
			n.runTimes[measured.Program] = measured
		}
	})
	x.forgetNode(n)
	return refs
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
			enqueue(q, r.index.SetHealth(o.Name, rollout.Health{}))
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
