// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package record writes the reports of this node, and keeps a record of them. Because only the agent writes them, it
// records what it wrote instead of watching: with a watch from each node, the API server would have to evaluate all watches
// for each write of any node.
package record

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const (
	// relist is the default minimum interval of periodic lists of this node's
	// reports. In a cluster with 250,000 reports, a list takes half a second of the API
	// server's CPU.
	relist = 3 * time.Hour
	// reportsPage is the maximum number of reports in a page of a list.
	reportsPage = 500
	// relistPause is the minimum time between two lists of this node's reports, because
	// the API server reads the reports of all nodes for each list.
	relistPause  = 5 * time.Second
	listDeadline = time.Minute
	readDeadline = 10 * time.Second
)

// Reports are the reports of this node's programs. Its methods can be called concurrently.
type Reports struct {
	Cluster *cluster.Cluster
	// NodeName is the name of the agent's node.
	NodeName string
	// Interval is the minimum interval of periodic lists. The maximum is twice as long. 0 means 3 hours.
	Interval time.Duration
	// Differs is called with the owner of each report that a list has found to differ from the record.
	Differs func(program.Key)
	// Changed is called after reports have changed, on which the plans of owners that share maps depend.
	Changed func()

	known memory
	pace  pace
	asked []chan time.Duration
}

// Start starts to list the reports, and marks their kinds as read after the first list. Background starts a function in
// a goroutine. Call Start once.
func (r *Reports) Start(background func(func(context.Context))) {
	for _, kind := range v1alpha1.ProgramKinds {
		asked := make(chan time.Duration, 1)
		r.asked = append(r.asked, asked)
		r.Cluster.Kinds.SetListed(kind.GroupVersionKind(), func() bool { return r.known.isListed(kind.Namespaced) })
		background(func(ctx context.Context) { r.keepListing(ctx, kind, asked) })
	}
}

// A failed list is retried with a backoff between these times.
const (
	firstList = 500 * time.Millisecond
	lastList  = 30 * time.Second
)

// keepListing lists the reports of a kind: at the start, on request, and
// periodically, to repair changes by others. Each list updates the record.
func (r *Reports) keepListing(ctx context.Context, kind v1alpha1.Kind[v1alpha1.ProgramObject], asked <-chan time.Duration) {
	retry := wait.Backoff{Duration: firstList, Factor: 2, Jitter: 1, Steps: 7, Cap: lastList}
	backoff := retry
	consistent := false
	for {
		rarely := cmp.Or(r.Interval, relist)
		next := rarely + rand.N(rarely) //nolint:gosec // only spreads requests
		if err := r.list(ctx, kind, consistent); err != nil {
			next = backoff.Step()
			logr.FromContextOrDiscard(ctx).V(1).Error(err, "Failed to list this node's reports; retrying", "kind", kind.Name)
		} else {
			backoff = retry
			consistent = false
		}
		pause := time.After(relistPause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
			continue
		case delay := <-asked:
			consistent = true
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-pause:
		}
	}
}

// Relist requests a list of the reports after a delay.
func (r *Reports) Relist(delay time.Duration) {
	for _, asked := range r.asked {
		select {
		case asked <- delay:
		default: // it has already been requested
		}
	}
}

// list updates the record of a kind's reports from the API server: from its watch
// cache, unless the list must be consistent. Many agents can list at the same time, and
// some API servers read the reports of all nodes from etcd for each consistent list.
//
// The cache can be stale. A list without the latest writes does no harm: newer records are
// kept, an update of a changed report is a conflict, and a report is read before links
// that it might contain are removed. But a requested list must be consistent, because it
// was requested after a change that it must contain.
func (r *Reports) list(ctx context.Context, kind v1alpha1.Kind[v1alpha1.ProgramObject], consistent bool) error {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	options := metav1.ListOptions{
		LabelSelector:   labels.SelectorFromSet(labels.Set{v1alpha1.LabelHostname: v1alpha1.LabelValue(r.NodeName)}).String(),
		ResourceVersion: "0",
	}
	if consistent {
		options.ResourceVersion, options.Limit = "", reportsPage
	}
	var began moment // of unknown age
	if consistent {
		began = r.known.begin()
	}
	var all []v1alpha1.ProgramObject
	for {
		found, page, err := r.readPage(ctx, kind, "", options)
		if err != nil {
			return err
		}
		all = append(all, page...)
		if options.Continue = found.GetContinue(); options.Continue == "" {
			for _, key := range r.known.replace(kind.Namespaced, all, found.GetResourceVersion(), began) {
				r.Differs(key)
			}
			r.Changed()
			return nil
		}
	}
}

// readPage lists a page of reports.
func (r *Reports) readPage(ctx context.Context, kind v1alpha1.Kind[v1alpha1.ProgramObject], namespace string, options metav1.ListOptions) (metav1.ListInterface, []v1alpha1.ProgramObject, error) {
	objects, err := r.Cluster.Kinds.List(ctx, kind, namespace, options)
	if err != nil {
		return nil, nil, err
	}
	list, err := meta.ListAccessor(objects)
	if err != nil {
		return nil, nil, fmt.Errorf("list %ss: %w", kind.Name, err)
	}
	var page []v1alpha1.ProgramObject
	err = meta.EachListItem(objects, func(o runtime.Object) error {
		p, ok := o.(v1alpha1.ProgramObject)
		if !ok {
			return fmt.Errorf("%T is not a program object", o)
		}
		page = append(page, p.DeepCopyObject().(v1alpha1.ProgramObject)) //nolint:errcheck // copied so that the page can be freed
		return nil
	})
	return list, page, err
}

// Read updates the record of some reports from the API server, which looks each of them up by its name. Those that can't
// be read in time are in doubt then.
func (r *Reports) Read(ctx context.Context, key program.Key, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	for n, name := range names {
		if _, err := r.read(ctx, key, name); err != nil {
			for _, unread := range names[n:] {
				r.known.doubt(key, unread)
			}
			return err
		}
	}
	return nil
}

// read updates the record of one report. It reports whether the record has changed.
func (r *Reports) read(ctx context.Context, key program.Key, name string) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	kind := v1alpha1.ProgramKind(key.Namespace != "")
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	began := r.known.begin()
	_, found, err := r.readPage(ctx, kind, key.Namespace, options)
	if err != nil {
		return false, fmt.Errorf("read %s %s: %w", kind.Name, name, err)
	}
	switch {
	case len(found) == 0:
		changed = r.known.drop(key, name, began)
	case r.isForeign(key, found[0]):
		r.known.take(key, name)
		changed = r.known.drop(key, name, began)
	default:
		changed = r.known.put(key, found[0], began)
	}
	if changed { // a write whose response was lost can have taken effect
		r.Changed()
	}
	return changed, nil
}

// Of returns an owner's reports by name as they were last written or read. It returns an error if they haven't been listed
// yet.
func (r *Reports) Of(key program.Key) (map[string]v1alpha1.ProgramObject, error) {
	if err := r.Cluster.Kinds.CheckReadable(v1alpha1.ProgramKind(key.Namespace != "").GroupVersionKind()); err != nil {
		return nil, err
	}
	return r.known.of(key), nil
}

// Settle reads an owner's reports that are in doubt. It reports whether plans can depend on what it has read: links that
// another agent of the node has recorded, or a report that must be written again.
func (r *Reports) Settle(ctx context.Context, key program.Key) (matters bool, err error) {
	for name, doubt := range r.known.doubted(key) {
		changed, err := r.read(ctx, key, name)
		if err != nil {
			return matters, err
		}
		matters = matters || changed || doubt == uncertain
	}
	return matters, nil
}

// All returns the reports as they were last written or read.
func (r *Reports) All() []v1alpha1.ProgramObject {
	return r.known.all(func(program.Key) bool { return true })
}

// Recorded returns an owner's reports by name as they were last written or read.
func (r *Reports) Recorded(key program.Key) map[string]v1alpha1.ProgramObject { return r.known.of(key) }

// InDoubt returns the names of an owner's reports that must be read again before they are written.
func (r *Reports) InDoubt(key program.Key) []string {
	return slices.Collect(maps.Keys(r.known.doubted(key)))
}

// MapOwners returns the programs on this node whose maps an owner can share. It returns nil
// if the owner doesn't share maps.
func (r *Reports) MapOwners(owner program.Owner) ([]plan.MapOwner, error) {
	if !owner.SharesMaps() {
		return nil, nil
	}
	if err := r.Cluster.Kinds.CheckReadable(v1alpha1.ProgramKind(owner.Namespace != "").GroupVersionKind()); err != nil {
		return nil, err
	}
	objects := r.known.all(func(key program.Key) bool { return key.Namespace == owner.Namespace })
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
