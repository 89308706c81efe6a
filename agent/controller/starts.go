// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// startLimit is how long the start of a pod or container waits for its programs. Container runtimes disconnect a plugin that
// takes longer than 2 seconds, and have one start after another wait for it.
const startLimit = 1500 * time.Millisecond

// starts are the pods and containers that wait for the programs that precede their start.
type starts struct {
	mu sync.Mutex
	// lacking is why the container runtime doesn't report starts, or nil.
	lacking error
	// waiting contains the starts that wait for an owner's next pass.
	waiting map[program.Key][]*start
	// overdue contains the owners for whose pass a start has waited too long. Others don't wait until one has ended.
	overdue map[program.Key]bool
	// passed contains the owners that have had a pass which decided what they run. It is nil once that doesn't matter anymore.
	passed map[program.Key]bool
	// late contains the pods and containers that have started without an owner's programs, with what is said about it.
	late map[program.Key]map[lateStart]lateText
	// patience is how long starts wait for the objects of a namespace.
	patience patience
}

// start waits for a pass of one owner.
type start struct {
	of     program.Container
	answer chan answer // has room for one
}

// answer is what a pass means for a start. The error is the reason why the pass has no plan.
type answer struct {
	late []report.Late
	err  error
}

var (
	errStartsOff      = problem.Errorf(problem.StartsNotReported, "bpfman.agent.beforestart.enabled of the ConfigMap bpfman-config isn't true")
	errStartsNotYet   = problem.Errorf(problem.StartsNotReported, "the agent isn't connected to the container runtime's NRI yet")
	errStartTooLong   = problem.Errorf(problem.StartedBeforeAttached, "this took longer than %s", startLimit)
	errStartOverdue   = problem.Errorf(problem.StartedBeforeAttached, "an earlier pod still waits for this")
	errStartUndecided = problem.Errorf(problem.StartedBeforeAttached, "the agent doesn't know yet what this node runs of the object")
)

func newStarts(enabled bool) *starts {
	s := &starts{
		waiting: map[program.Key][]*start{}, overdue: map[program.Key]bool{}, late: map[program.Key]map[lateStart]lateText{}, lacking: errStartsOff,
	}
	if enabled {
		s.lacking, s.passed = errStartsNotYet, map[program.Key]bool{}
	}
	return s
}

// wait returns a start that the next pass of an owner answers, or nil if an earlier start has waited too long for one.
func (s *starts) wait(key program.Key, of program.Container) *start {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overdue[key] {
		return nil
	}
	waiting := &start{of, make(chan answer, 1)}
	s.waiting[key] = append(s.waiting[key], waiting)
	return waiting
}

// tooLong records that a start has waited too long for an owner's pass, and returns the answer with this error. If the pass has
// answered in the meantime, it returns that answer: nothing else would end what it recorded.
func (s *starts) tooLong(key program.Key, waiting *start, err error) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case got := <-waiting.answer:
		return got
	default:
		s.overdue[key] = true
		return answer{err: err}
	}
}

// pass answers the starts that wait for it.
type pass struct {
	starts  *starts
	key     program.Key
	waiting []*start
	// knows means that the plan is known, and ended that undecided was called.
	knows, ended bool
}

// take returns the starts that wait for an owner's pass, which begins now.
func (s *starts) take(key program.Key) *pass {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &pass{starts: s, key: key, waiting: s.waiting[key]}
	delete(s.waiting, key)
	return p
}

// decided answers with the outcome of a plan, unless it has before. actual returns the daemon's programs of the owner. Nothing
// waits for a nil pass.
func (p *pass) decided(want plan.Plan, actual func(program.Key) []daemon.Program, outcome report.Outcome) {
	if p == nil {
		return
	}
	for _, waiting := range p.waiting {
		waiting.answer <- answer{late: report.LateFor(waiting.of, want, actual(p.key), outcome)}
	}
	p.waiting, p.knows = nil, true
}

// undecided ends the pass, unless it has ended before. It answers with an error, or with nil if the pass leaves everything as it
// is, unless decided did.
func (p *pass) undecided(err error) {
	if p.ended {
		return
	}
	p.ended = true
	for _, waiting := range p.waiting {
		waiting.answer <- answer{err: errors.Join(errStartUndecided, err)}
	}
	p.starts.mu.Lock()
	defer p.starts.mu.Unlock()
	delete(p.starts.overdue, p.key)
	if p.starts.passed != nil && (p.knows || err == nil) {
		p.starts.passed[p.key] = true
	}
}

// later ends a pass as the function later does, for which what isn't read yet is no error.
func (p *pass) later(err error) (time.Duration, error) {
	p.undecided(err)
	return later(err)
}

// hasPassed reports whether an owner has had a pass that decided what it runs.
func (s *starts) hasPassed(key program.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passed[key]
}

// connecting ends the record of the owners that have had a pass.
func (s *starts) connecting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed = nil
}

// forget forgets what pods and containers have started without an owner's programs, which the node doesn't run anymore.
func (s *starts) forget(key program.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.late, key)
}

// watchStarts has programs attached before pods and containers start, until ctx ends.
func (c *Controller) watchStarts(ctx context.Context) {
	if c.WatchStarts == nil {
		return
	}
	if err := wait.PollUntilContextCancel(ctx, startsPoll, true, c.knowsObjects); err != nil {
		return // the agent stops
	}
	if err := wait.PollUntilContextTimeout(ctx, startsPoll, startsBehind, true, c.hasCaughtUp); err != nil {
		logr.FromContextOrDiscard(ctx).Info("The agent connects to the container runtime's NRI although some pods lack programs", "after", startsBehind.String())
	}
	c.starts.connecting()
	c.WatchStarts(ctx, program.Starts{
		Starting: c.starting,
		Ended:    c.ended,
		Existing: func(ctx context.Context, ids []string) {
			c.withdraw(ctx, func(of program.Container) bool {
				return !slices.Contains(ids, of.Sandbox) || of.ID != "" && !slices.Contains(ids, of.ID)
			})
		},
		Connected: c.startsReported,
	})
}

const (
	// startsPoll is the interval of checks whether the agent knows which starts concern it.
	startsPoll = 100 * time.Millisecond
	// startsBehind is how long the agent waits for programs in the pods that ran before: one object can fail all the time.
	startsBehind = 30 * time.Second
)

// knowsObjects reports whether all objects are known.
func (c *Controller) knowsObjects(context.Context) (bool, error) {
	for _, kind := range v1alpha1.UserKinds {
		err := c.Cluster.Kinds.CheckReadable(kind.GroupVersionKind())
		unread := (*kinds.UnreadError)(nil)
		if errors.As(err, &unread) && !unread.Unused && !apierrors.IsNotFound(unread.Err) && !apierrors.IsForbidden(unread.Err) {
			return false, nil
		}
	}
	return true, nil
}

// hasCaughtUp reports whether the pods that ran before have their programs, for which a start would wait.
func (c *Controller) hasCaughtUp(ctx context.Context) (bool, error) {
	if !c.anyOwner(ctx, program.Owner.PrecedesAny) {
		return true, nil
	}
	c.Cluster.Kinds.Open(cluster.PodKind)
	behind := c.anyOwner(ctx, func(owner program.Owner) bool { return owner.PrecedesAny() && !c.starts.hasPassed(owner.Key) })
	return !behind && c.Cluster.Kinds.CheckReadable(cluster.PodKind) == nil, nil
}

// startsReported records whether the container runtime reports starts, and has it reported for the owners that need it.
func (c *Controller) startsReported(ctx context.Context, err error) {
	c.starts.mu.Lock()
	was := c.starts.lacking
	c.starts.lacking = err
	c.starts.mu.Unlock()
	if (was == nil) != (err == nil) || err != nil && was.Error() != err.Error() {
		log := logr.FromContextOrDiscard(ctx)
		if err == nil {
			log.Info("The container runtime reports starts of pods")
		} else {
			log.Error(err, "Programs are attached after pods start; retrying")
		}
		c.enqueue(ctx, program.Owner.PrecedesAny, since{})
	}
}

// starting has programs attached before a pod or container starts. It returns an error if it must not start without one that
// isn't attached in time. A container can start long after its sandbox, which isn't known anymore if the API server hasn't sent
// the pod, or isn't known yet if the agent wasn't connected then: the pod is about to start.
func (c *Controller) starting(ctx context.Context, of program.Container) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if of.ID != "" && !c.facts.knows(of.Sandbox) {
		pod := of
		pod.Name, pod.ID, pod.PID = "", "", 0
		if of.HostNetwork || of.NetNS != "" { // otherwise, nothing is known of the pod either
			pod.Err = nil
		}
		if err := c.precede(ctx, pod); err != nil {
			return err
		}
	}
	return c.precede(ctx, of)
}

// precede has programs attached before the start of a pod or container, until ctx ends.
func (c *Controller) precede(ctx context.Context, of program.Container) error {
	began := time.Now()
	owners := c.preceding(ctx, of)
	if len(owners) == 0 {
		return nil
	}
	// Cluster-scoped ones come first: the wait for them isn't the namespace's.
	slices.SortStableFunc(owners, func(a, b program.Owner) int { return cmp.Compare(a.Namespace, b.Namespace) })
	one := []program.Container{of}
	c.PodInterfaces(one)
	if ctx.Err() == nil { // otherwise, the runtime may have abandoned the start, and doesn't report its end
		c.withdraw(ctx, func(other program.Container) bool { return replaces(of, other) })
		c.facts.announced.add(one[0])
	}
	waiting := make([]*start, len(owners))
	for i, owner := range owners {
		if waiting[i] = c.starts.wait(owner.Key, one[0]); waiting[i] != nil {
			c.queue.addSince(owner.Key, since{}) // the last reads, with what was announced
		}
	}
	var refused []error
	for i, owner := range owners {
		late := c.await(ctx, owner, waiting[i], of)
		refused = append(refused, c.tellLate(owner, of, late))
	}
	err := errors.Join(refused...)
	logr.FromContextOrDiscard(ctx).V(1).Info("A start waited for programs", "of", of.Subject(), "objects", len(owners), "milliseconds", milliseconds(time.Since(began)))
	if err != nil {
		c.withdraw(ctx, func(other program.Container) bool { return other.Sandbox == of.Sandbox && other.ID == of.ID })
	}
	return err
}

// preceding returns the owners of this node with programs that are to be attached before the start of a pod or container.
func (c *Controller) preceding(ctx context.Context, of program.Container) []program.Owner {
	var owners []program.Owner
	c.ownersOf(ctx, func(o v1alpha1.UserObject) bool {
		return (o.GetNamespace() == "" || o.GetNamespace() == of.Namespace) && c.mayRun(o)
	}, func(owner program.Owner) bool {
		known := slices.ContainsFunc(owners, func(o program.Owner) bool { return o.Key == owner.Key })
		if precedes, _ := owner.Precedes(of); precedes && !known {
			owners = append(owners, owner)
		}
		return true
	})
	return owners
}

// mayRun reports whether an object isn't being deleted, and selects this node, as far as that is known.
func (c *Controller) mayRun(o v1alpha1.UserObject) bool {
	if o.GetDeletionTimestamp() != nil {
		return false
	}
	node, err := c.Cluster.OwnNode()
	if err != nil {
		return true
	}
	common := o.GetAppCommon()
	selector, err := metav1.LabelSelectorAsSelector(&common.NodeSelector)
	return err != nil || selector.Matches(labels.Set(node.Labels))
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 } //nolint:mnd // the unit

// await returns an owner's programs that aren't attached in time.
func (c *Controller) await(ctx context.Context, owner program.Owner, waiting *start, of program.Container) []report.Late {
	var got answer
	if waiting == nil {
		got.err = errStartOverdue
	} else {
		ctx, end := c.starts.patience.limit(ctx, owner.Namespace)
		select {
		case got = <-waiting.answer:
		case <-ctx.Done():
			late := errStartTooLong
			if errors.Is(context.Cause(ctx), errStartImpatient) {
				late = errStartImpatient
			}
			got = c.starts.tooLong(owner.Key, waiting, late)
		}
		end()
	}
	if got.err == nil {
		return got.late
	}
	var late []report.Late
	for _, m := range owner.Members {
		if precedes, required := m.Precedes(of); precedes {
			late = append(late, report.Late{Function: m.LoadInfo().GetName(), Required: required, Err: got.err})
		}
	}
	return late
}

// reasons of Events about pods.
const (
	reasonStartedBefore = "StartedBeforeAttached"
	reasonStartRefused  = "StartRefused"
)

// tellLate emits an Event about programs that aren't attached before a pod or container starts. It returns an error if one of
// them is required.
func (c *Controller) tellLate(owner program.Owner, of program.Container, late []report.Late) error {
	if len(late) == 0 {
		return nil
	}
	said := late[0]
	if i := slices.IndexFunc(late, func(l report.Late) bool { return l.Required }); i >= 0 {
		said = late[i]
	}
	cause := shorten.Middle(said.Err.Error(), maxStartCause)
	object, err := c.Cluster.UserObject(owner.Kind, owner.Namespace, owner.Name)
	known := err == nil // otherwise, it has been deleted
	if said.Required {
		if known {
			event.Emit(c.Cluster.Events, object, corev1.EventTypeWarning, reasonStartRefused, "Attach",
				fmt.Sprintf("The %s on node %s doesn't start, because program %s isn't attached: %s", of.Subject(), c.NodeName, said.Function, cause))
		}
		return problem.Errorf(problem.StartedBeforeAttached, "bpfman: program %s of %s isn't attached: %s", said.Function, owner.Key, cause)
	}
	c.starts.remember(owner.Key, of, late)
	c.queue.addSince(owner.Key, since{}) // to report it
	if known {
		event.Emit(c.Cluster.Events, object, corev1.EventTypeWarning, reasonStartedBefore, "Attach",
			fmt.Sprintf("The %s on node %s started before program %s was attached: %s", of.Subject(), c.NodeName, said.Function, cause))
	}
	return nil
}

// maxStartCause is the maximum length of the reason, in bytes.
const maxStartCause = 512

// withdraw forgets pods and containers that don't exist anymore, and has the programs of those that were announced detached. A
// list from before that can still have them.
func (c *Controller) withdraw(ctx context.Context, gone func(program.Container) bool) {
	c.starts.withdraw(gone)
	removed := c.facts.announced.remove(gone)
	if len(removed) > 0 {
		logr.FromContextOrDiscard(ctx).V(1).Info("Forgot announced containers", "count", len(removed))
		c.enqueueAffected(ctx, program.Change{Containers: removed}, since{containers: c.facts.event()})
	}
}

// ended has the programs detached from a sandbox, or a container that was announced, that ends. The last list can still have the
// sandbox, and the next pod can get the number of its network namespace. While the daemon has a link in the old one, it fails to
// attach in the new one, because it takes both for the same.
func (c *Controller) ended(ctx context.Context, id string) {
	c.enqueueAffected(ctx, program.Change{Containers: c.facts.end(id)}, since{})
	c.withdraw(ctx, func(of program.Container) bool { return of.Sandbox == id || of.ID == id })
}
