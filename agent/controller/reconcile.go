// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package controller executes the plans of package plan. It watches the resources that a
// plan depends on, executes its steps, and reports the outcome.
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// Reconciler reconciles the programs on this node with the user objects. The keys of its
// queue are owners, so that only one worker at a time handles an owner's programs.
type Reconciler struct {
	// Cluster provides access to the API server.
	Cluster *cluster.Cluster
	// Namespace is the agent's namespace, with the Secrets and ConfigMaps that policies
	// refer to.
	Namespace string
	// Bytecode answers what is in an image, and who signed it.
	Bytecode *bytecode.Library
	// RequirePolicy refuses images for which no policy in mode enforce requires a
	// signature.
	RequirePolicy bool
	// Inventory contains the daemon's programs.
	Inventory *daemon.Inventory
	// NodeName is the name of the agent's node.
	NodeName string
	// Drift is the interval of comparing the inventory with the daemon's list.
	Drift time.Duration
	// Bpffs is the mount point of the daemon's BPF file system.
	Bpffs string
	// Interfaces returns the host's network interfaces.
	Interfaces func() (map[string]program.Interface, error)
	// Containers returns the running containers of pods on this node.
	Containers func(context.Context, []corev1.Pod) ([]program.Container, error)
	// PodInterfaces sets the interfaces of each of these containers: those in its pod's
	// network namespace.
	PodInterfaces func([]program.Container)
	// PinsDir is the directory with maps that bytecode pins by name, or "" if there is
	// none.
	PinsDir string
	// UprobeNamespaces are the namespaces whose uprobes can run for processes of others, or
	// "*" for all.
	UprobeNamespaces []string
	// Changes confirms or undoes changes of network programs. It can be nil.
	Changes *confirm.Changes
	// Metrics counts repairs. It can be nil.
	Metrics *metrics.Metrics
	// FindKinds is the average interval of checks for the first object of an unused kind,
	// in case there is no hint from the operator. 0 means 4 minutes.
	FindKinds time.Duration
	// RelistReports is the minimum interval of periodic lists of this node's reports. The
	// maximum is twice as long. 0 means 3 hours.
	RelistReports time.Duration

	opened sync.Once
	// waits contains a timer for each owner that waits for an image.
	waits    sync.Map
	queue    workqueue.TypedRateLimitingInterface[program.Key]
	reports  reports
	asked    []chan time.Duration
	hinted   hinted
	policies policyCache
	refusals refusals
	// undoing is held for writing while a change is undone, and for reading while plans are executed.
	undoing sync.RWMutex
	// replacing is held while pins are replaced.
	replacing sync.Mutex
	// stored contains the images of programs that are known to be in the store.
	stored sync.Map
	// sharers contains the keys of owners that use maps of other programs.
	sharers sync.Map
}

// Reconcile executes an owner's plan, and reports the outcome. It returns the time until
// the next reconciliation if nothing failed, or 0 for none. A waitingError means that nothing
// is reported yet.
func (r *Reconciler) Reconcile(ctx context.Context, key program.Key) (again time.Duration, err error) {
	assigned, err := r.assigned(key)
	if undecodable := (*undecodableError)(nil); errors.As(err, &undecodable) {
		// The operator reports the problem. The object's programs stay loaded until it can
		// be decoded or is deleted.
		logr.FromContextOrDiscard(ctx).Info("Failed to decode the object; its programs stay loaded", "reason", undecodable.reason)
		return 0, nil
	}
	if err != nil || assigned.held {
		return r.later(err)
	}
	owner := assigned.owner
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

	want, outcome, unsettled, err := r.runVersion(ctx, key, assigned)
	for _, touched := range r.Inventory.Touched() {
		if touched != key {
			r.queue.Add(touched)
		}
	}
	if err != nil {
		return r.later(err) // there is no plan, or the agent is stopping: don't change the reports
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

// recall passes the links in reports to the inventory.
func (r *Reconciler) recall(existing map[string]v1alpha1.ProgramObject) {
	for _, object := range existing {
		status := object.GetStatus()
		r.Inventory.Recall(status.ProgramID, status.LoadedAt, report.LinksOf(status))
	}
}

// readUnrecorded reads the reports of programs with links that aren't recorded. Another
// agent on this node might have attached and reported them, for example during a rolling
// update.
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

// logged shortens an error for the log, to which each retry writes it. The log of the
// kernel's verifier can have a megabyte. The daemon's log contains the full error.
func logged(err error) error {
	const most = 4096
	if err == nil {
		return nil
	}
	return errors.New(shorten.Middle(err.Error(), most))
}

// passes is the maximum number of passes with a new plan each, if interfaces that a plan
// discovered disappear before they are attached.
const passes = 3

// converge plans and executes the steps for an owner. It returns the time until the next
// reconciliation if nothing failed, or 0 for none. It returns an error if there is no plan,
// or if ctx ends. Other errors are in the outcome.
func (r *Reconciler) converge(ctx context.Context, key program.Key, owner *program.Owner, c change) (plan.Plan, report.Outcome, time.Duration, error) {
	if owner == nil {
		outcome, err := r.execute(ctx, key, nil, plan.Plan{}, nil, nil)
		return plan.Plan{}, outcome, 0, err
	}
	g, err := r.gateFor(ctx, owner)
	if err != nil {
		return plan.Plan{}, report.Outcome{}, 0, err
	}
	g.change = c
	want, outcome, err := r.pass(ctx, key, owner, g)
	for pass := 1; err == nil && pass < passes; pass++ {
		found := outcome.FailedDiscovered(want)
		if len(found) == 0 {
			break
		}
		again, unplanned := r.plan(ctx, *owner, c)
		if unplanned != nil || !slices.ContainsFunc(found, func(a report.Attach) bool { return !again.Discovers(a.Load, a.Function, a.Link) }) {
			return want, outcome, g.again(), unplanned
		}
		want, outcome, err = r.pass(ctx, key, owner, g)
	}
	if err == nil && g.waits > 0 {
		err = &waitingError{g.waits}
	}
	if err == nil {
		r.keep(ctx, *owner, g)
	}
	return want, outcome, g.again(), err
}

// pass makes a plan, applies policies to it, and executes its steps.
func (r *Reconciler) pass(ctx context.Context, key program.Key, owner *program.Owner, g *gate) (plan.Plan, report.Outcome, error) {
	want, err := r.plan(ctx, *owner, g.change)
	if err != nil {
		return want, report.Outcome{}, err
	}
	judgements := r.inspect(ctx, owner, g, &want)
	outcome, err := r.execute(ctx, key, owner, want, g, judgements)
	return want, outcome, err
}

// heldUpRetry is the interval of checks of a report whose deletion is delayed by a
// finalizer. The agent doesn't watch reports, so it doesn't get an event.
const heldUpRetry = 10 * time.Second

// unreadRetry is the interval of retries for an owner that depends on a kind that the API
// server doesn't let the agent read.
const unreadRetry = 5 * time.Second

// later returns when to retry a pass for which an object or an image is unavailable. If a
// kind hasn't been read, this isn't a failure of the owner, and nothing is changed, because it isn't
// known whether the object exists.
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

// lost counts the programs and links that are reported, but that the daemon doesn't have
// anymore.
func (r *Reconciler) lost(reported map[string]v1alpha1.ProgramObject) (programs, links int) {
	counted := map[uint32]bool{0: true} // 0 means that the reported program wasn't loaded
	for _, object := range reported {
		status := object.GetStatus()
		if counted[status.ProgramID] {
			continue // members of an application can share a program
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

func (r *Reconciler) node() (*corev1.Node, error) {
	node, err := r.Cluster.Node(r.NodeName)
	if err != nil {
		return nil, fmt.Errorf("get own node %s: %w", r.NodeName, err)
	}
	return node, nil
}

// plan collects the facts that the owner's plan depends on, and makes the plan.
func (r *Reconciler) plan(ctx context.Context, owner program.Owner, c change) (plan.Plan, error) {
	facts := program.Node{Name: r.NodeName, UprobeNamespaces: r.UprobeNamespaces}
	needs := owner.Needs()
	if needs.Interfaces {
		node, err := r.node()
		switch {
		case err == nil:
			facts.Addresses = addressesOf(node)
		case c.offline:
			facts.Addresses = c.addresses
		default:
			return plan.Plan{}, err
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

// addressesOf returns the internal IP addresses of a node.
func addressesOf(node *corev1.Node) []netip.Addr {
	var addresses []netip.Addr
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			addresses = append(addresses, ip)
		}
	}
	return addresses
}

// mapOwners returns the programs on this node whose maps an owner can share. It returns nil
// if the owner doesn't share maps.
func (r *Reconciler) mapOwners(owner program.Owner) ([]plan.MapOwner, error) {
	if !owner.SharesMaps() {
		return nil, nil
	}
	if err := r.Cluster.Kinds.Read(reportKind(owner.Namespace != "").GroupVersionKind()); err != nil {
		return nil, err
	}
	objects := r.reports.all(func(key program.Key) bool { return key.Namespace == owner.Namespace })
	out := make([]plan.MapOwner, 0, len(objects))
	for _, o := range objects {
		if ref := metav1.GetControllerOf(o); ref == nil || ref.UID == owner.UID {
			continue // a program must not match its own selector
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

// ensureInventory lists the daemon's programs if they aren't known. It enqueues their
// owners, which includes owners whose objects have been deleted.
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

// compare compares the inventory with the daemon's list periodically until ctx ends, so
// that programs that were unloaded by others are loaded again. It returns an error if the
// daemon has another API, because the agent can't work with it. The agent then stops with a
// termination message for the operator. By then, the reports have the error too.
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
		return err
	}
	return nil
}
