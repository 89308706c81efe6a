// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package controller does what package plan decides: it watches what a plan
// depends on, takes the steps, and writes what came of them.
package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/agent/verify"
	"github.com/bpfman/bpfman-operator/apis/policy"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/kinds"
)

// Reconciler brings this node to what the user objects want of it. Its queue is
// keyed by owner: one worker at a time has an owner's programs.
type Reconciler struct {
	// Cluster is the API server.
	Cluster *cluster.Cluster
	// Namespace is the one that the agent runs in, where policies' Secrets and
	// ConfigMaps are.
	Namespace string
	// Verifier finds out who has signed images, where policies ask for it.
	Verifier *verify.Verifier
	// Inventory is what the daemon holds.
	Inventory *daemon.Inventory
	// NodeName is the name of this node.
	NodeName string
	// Drift is how often the daemon's list is compared with what is known.
	Drift time.Duration
	// Bpffs is where the daemon's BPF file system is mounted.
	Bpffs string
	// Interfaces lists the host's network interfaces.
	Interfaces func() (map[string]program.Interface, error)
	// Containers lists the running containers of pods on this node.
	Containers func(context.Context, []corev1.Pod) ([]program.Container, error)
	// PodInterfaces tells of each of these containers the interfaces in its pod's
	// network namespace.
	PodInterfaces func([]program.Container)
	// PinsDir is where maps that bytecode pins by name are seen, "" where they can't be.
	PinsDir string
	// Metrics counts what had to be repaired.
	Metrics *metrics.Metrics
	// FindKinds is how often a kind that isn't used is looked at, on average, in case
	// that nobody tells of its first object: 4 minutes if it is 0.
	FindKinds time.Duration
	// RelistReports is the least time between two lists of this node's reports that
	// nobody asked for, half of the most: 3 hours if it is 0.
	RelistReports time.Duration

	queue      workqueue.TypedRateLimitingInterface[program.Key]
	reports    reports
	asked      []chan time.Duration
	hinted     hinted
	registries bytecode.Registries
	images     images
	policies   policyCache
	pinned     declarations
	// sharers holds the keys of owners that use maps of other programs.
	sharers sync.Map
}

// Reconcile takes an owner to its plan. It tells when to do so again though nothing failed,
// 0 for never.
func (r *Reconciler) Reconcile(ctx context.Context, key program.Key) (again time.Duration, err error) {
	owner, err := r.owner(ctx, key)
	if undecodable := (*undecodableError)(nil); errors.As(err, &undecodable) {
		// The operator tells its user. What is loaded for it stays until it can be
		// decoded, or is deleted.
		logr.FromContextOrDiscard(ctx).Info("Failed to decode the object; its programs stay loaded", "reason", undecodable.reason)
		return 0, nil
	}
	if err != nil {
		return r.later(err)
	}
	if owner != nil && owner.SharesMaps() {
		r.sharers.Store(key, struct{}{})
	} else {
		r.sharers.Delete(key)
	}
	if err := r.ensureInventory(ctx); err != nil {
		return 0, r.reportUnreachable(ctx, key, owner, err)
	}
	existing, err := r.programsOf(ctx, key)
	if err != nil {
		return r.later(err)
	}
	r.recall(existing)
	if existing, err = r.readUnrecorded(ctx, key, owner, existing); err != nil {
		return r.later(err)
	}
	lostPrograms, lostLinks := r.lost(existing)

	want, outcome, unsettled, err := r.converge(ctx, key, owner)
	for _, touched := range r.Inventory.Touched() {
		if touched != key {
			r.queue.Add(touched)
		}
	}
	if err != nil {
		return r.later(err) // no plan, or the agent is stopping: leave what is reported
	}
	if owner != nil && outcome.Err() == nil {
		r.Metrics.Repaired(lostPrograms, lostLinks)
	}
	err = r.write(ctx, key, owner, want, existing, outcome)
	if unsettled == 0 && len(r.reports.doubted(key)) > 0 {
		unsettled = heldUpRetry
	}
	return unsettled, logged(errors.Join(err, outcome.Err(), want.Problems()))
}

// recall tells the inventory which links the reports record.
func (r *Reconciler) recall(existing map[string]v1alpha1.ProgramObject) {
	for _, object := range existing {
		status := object.GetStatus()
		r.Inventory.Recall(status.ProgramID, status.LoadedAt, report.LinksOf(status))
	}
}

// readUnrecorded reads the reports of programs of which the daemon holds links that
// aren't recorded: another agent of this node may have made and reported them since,
// as for a moment while one replaces the other.
func (r *Reconciler) readUnrecorded(ctx context.Context, key program.Key, owner *program.Owner, existing map[string]v1alpha1.ProgramObject) (map[string]v1alpha1.ProgramObject, error) {
	if owner == nil {
		return existing, nil
	}
	unrecorded := map[string]bool{}
	for _, p := range r.Inventory.Of(key) {
		for _, link := range p.Links {
			unrecorded[p.Function] = unrecorded[p.Function] || link == (daemon.Link{})
		}
	}
	read := false
	for _, member := range owner.Members {
		if unrecorded[member.LoadInfo().GetName()] {
			if err := r.readReport(ctx, key, report.Name(*owner, member.ID, r.NodeName)); err != nil {
				return nil, err
			}
			read = true
		}
	}
	if !read {
		return existing, nil
	}
	existing = r.reports.of(key)
	r.recall(existing)
	return existing, nil
}

// logged shortens an error for the log, which has it at each retry: a log of the
// kernel's verifier can have a megabyte. The daemon's own log has it whole.
func logged(err error) error {
	const most = 4096
	if err == nil {
		return nil
	}
	return errors.New(shorten.Middle(err.Error(), most))
}

// passes is how often a plan is made at most while interfaces that it found go
// before it attaches to them.
const passes = 3

// converge makes the owner's plan and takes its steps. It tells when to look again
// though nothing failed, 0 for never. The error is for plans that can't be made, and
// for the agent's own end; all else is in the outcome.
func (r *Reconciler) converge(ctx context.Context, key program.Key, owner *program.Owner) (plan.Plan, report.Outcome, time.Duration, error) {
	if owner == nil {
		outcome, err := r.execute(ctx, key, nil, plan.Plan{}, nil, nil)
		return plan.Plan{}, outcome, 0, err
	}
	g, err := r.gateFor(ctx, owner)
	if err != nil {
		return plan.Plan{}, report.Outcome{}, 0, err
	}
	want, outcome, err := r.pass(ctx, key, owner, g)
	for pass := 1; err == nil && pass < passes; pass++ {
		found := outcome.FailedDiscovered(want)
		if len(found) == 0 {
			break
		}
		again, unplanned := r.plan(ctx, *owner)
		if unplanned != nil || !slices.ContainsFunc(found, func(a report.Attach) bool { return !again.Discovers(a.Load, a.Function, a.Link) }) {
			return want, outcome, g.again(), unplanned
		}
		want, outcome, err = r.pass(ctx, key, owner, g)
	}
	return want, outcome, g.again(), err
}

// pass makes a plan, has the policies change it, and takes its steps.
func (r *Reconciler) pass(ctx context.Context, key program.Key, owner *program.Owner, g *gate) (plan.Plan, report.Outcome, error) {
	want, err := r.plan(ctx, *owner)
	if err != nil {
		return want, report.Outcome{}, err
	}
	judgements := r.inspect(ctx, owner, g, &want)
	outcome, err := r.execute(ctx, key, owner, want, g, judgements)
	return want, outcome, err
}

// heldUpRetry is when an owner is looked at again of which somebody holds up the
// deletion of a report, which goes without a word.
const heldUpRetry = 10 * time.Second

// unreadRetry is when an owner is looked at again that depends on a kind which
// the API server doesn't let the agent read.
const unreadRetry = 5 * time.Second

// later ends a pass for want of a fact. That a kind hasn't been read is no error
// of the owner's: whether the object is there isn't known, so all stays.
func (*Reconciler) later(err error) (time.Duration, error) {
	unread := (*kinds.UnreadError)(nil)
	if !errors.As(err, &unread) {
		return 0, err
	}
	retry := firstRetry
	if unread.Err != nil {
		retry = unreadRetry
	}
	return retry, nil
}

// undecodableError is the error of reading an object that can't be decoded.
type undecodableError struct{ reason string }

func (e *undecodableError) Error() string { return "the object can't be decoded: " + e.reason }

// lost counts the programs and links that are reported and that the daemon no
// longer holds.
func (r *Reconciler) lost(reported map[string]v1alpha1.ProgramObject) (programs, links int) {
	counted := map[uint32]bool{0: true} // 0: not loaded when it was reported
	for _, object := range reported {
		status := object.GetStatus()
		if counted[status.ProgramID] {
			continue // members of an application may share a program
		}
		counted[status.ProgramID] = true
		gone, n := r.Inventory.Lost(status.ProgramID, status.LoadedAt, report.LinksOf(status))
		if gone {
			programs++
		}
		links += n
	}
	return programs, links
}

// owner reads the user object. It is nil where this node is to hold nothing of
// it: gone, going, or not for this node.
func (r *Reconciler) owner(ctx context.Context, key program.Key) (*program.Owner, error) {
	// Whatever led here: there is, or was, an object of this kind.
	r.Cluster.Kinds.Open(v1alpha1.SchemeGroupVersion.WithKind(key.Kind))
	object, err := r.Cluster.UserObject(key.Kind, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	if object.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	if reason := kinds.Undecodable(object); reason != "" {
		return nil, &undecodableError{reason}
	}
	owner, err := program.OwnerOf(key.Kind, object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	node, err := r.node()
	if err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(&owner.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("%s: nodeselector: %w", key, err)
	}
	if !selector.Matches(labels.Set(node.Labels)) {
		return nil, nil
	}
	owner.Subject = policy.SubjectOf(key.Kind, object).On(node.Labels)
	return &owner, nil
}

func (r *Reconciler) node() (*corev1.Node, error) {
	node, err := r.Cluster.Node(r.NodeName)
	if err != nil {
		return nil, fmt.Errorf("get own node %s: %w", r.NodeName, err)
	}
	return node, nil
}

// plan gathers the facts that the owner's plan depends on.
func (r *Reconciler) plan(ctx context.Context, owner program.Owner) (plan.Plan, error) {
	facts := program.Node{Name: r.NodeName}
	needs := owner.Needs()
	if needs.Interfaces {
		node, err := r.node()
		if err != nil {
			return plan.Plan{}, err
		}
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				facts.Addresses = append(facts.Addresses, ip)
			}
		}
		if facts.Interfaces, err = r.Interfaces(); err != nil {
			return plan.Plan{}, err
		}
	}
	if needs.Containers {
		r.Cluster.Kinds.Open(cluster.PodKind)
		pods, err := r.Cluster.Pods(owner.Namespace)
		if err != nil {
			return plan.Plan{}, fmt.Errorf("list pods: %w", err)
		}
		facts.Containers, facts.ContainersErr = r.Containers(ctx, pods)
	}
	if needs.PodInterfaces {
		r.PodInterfaces(facts.Containers)
	}
	mapOwners, err := r.mapOwners(owner)
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.Want(owner, facts, mapOwners), nil
}

// mapOwners lists the programs on this node whose maps others may share, where
// the owner asks for that.
func (r *Reconciler) mapOwners(owner program.Owner) ([]plan.MapOwner, error) {
	if !owner.SharesMaps() {
		return nil, nil
	}
	if err := r.Cluster.Kinds.Read(reportKind(owner.Namespace != "").GroupVersionKind()); err != nil {
		return nil, err //nolint:wrapcheck // callers ask whether it is an UnreadError
	}
	objects := r.reports.all(func(key program.Key) bool { return key.Namespace == owner.Namespace })
	out := make([]plan.MapOwner, 0, len(objects))
	for _, o := range objects {
		if ref := metav1.GetControllerOf(o); ref == nil || ref.UID == owner.UID {
			continue // a program's own object must not match its own selector
		}
		status := o.GetStatus()
		m := plan.MapOwner{Name: o.GetName(), Namespace: o.GetNamespace(), Labels: o.GetLabels(), ID: status.ProgramID}
		if status.MapOwnerID != nil {
			m.ID = *status.MapOwnerID
		}
		out = append(out, m)
	}
	return out, nil
}

// ensureInventory lists the daemon's programs if they aren't known. Owners whose
// objects are gone are found here: their programs are in the list.
func (r *Reconciler) ensureInventory(ctx context.Context) error {
	if r.Inventory.Known() {
		return nil
	}
	changed, err := r.Inventory.Refresh(ctx)
	if err != nil {
		return err
	}
	for _, key := range changed {
		r.queue.Add(key)
	}
	return nil
}

// compare asks the daemon for its list from time to time, so that what others
// unloaded comes back, until ctx ends. The error is that of a daemon which speaks
// another API: the agent is of no use beside it, and its end, of which the kubelet
// keeps the words, is what the operator sees. The objects have been told by then.
func (r *Reconciler) compare(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, r.Drift, false, func(ctx context.Context) (bool, error) {
		changed, err := r.Inventory.Refresh(ctx)
		if daemon.SpeaksOtherAPI(err) {
			return false, err
		}
		if err != nil {
			logr.FromContextOrDiscard(ctx).Info("Failed to compare the known programs with the daemon's", "reason", err.Error())
		}
		for _, key := range changed {
			logr.FromContextOrDiscard(ctx).Info("The daemon's programs have changed outside of the agent", "owner", key.String())
			r.queue.Add(key)
		}
		return false, nil
	})
	if ctx.Err() == nil {
		return err //nolint:wrapcheck // Refresh's own
	}
	return nil
}
