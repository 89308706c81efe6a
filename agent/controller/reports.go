// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const (
	// relistReports is the default minimum interval of periodic lists of this node's
	// reports. In a cluster with 250,000 reports, a list takes half a second of the API
	// server's CPU.
	relistReports = 3 * time.Hour
	// reportsPage is the maximum number of reports in a page of a list.
	reportsPage = 500
	// relistPause is the minimum time between two lists of this node's reports, because
	// the API server reads the reports of all nodes for each list.
	relistPause = 5 * time.Second
	// relistSpread is the time over which the agents of all nodes spread a requested list.
	relistSpread = 2 * time.Minute
	listDeadline = time.Minute
	readDeadline = 10 * time.Second
)

// A failed list is retried with a backoff between these times.
const (
	firstList = 500 * time.Millisecond
	lastList  = 30 * time.Second
)

// reports is the agent's record of this node's reports. Because only the agent writes
// them, it stores what it wrote instead of watching. With a watch from each node, the API
// server would have to evaluate all watches for each write of any node.
type reports struct {
	mu     sync.Mutex
	owners map[program.Key]map[string]record
	// listed contains whether all reports have been listed, by whether they are
	// namespaced.
	listed map[bool]bool
}

// record is the known state of one report.
type record struct {
	// object is the report as it was last written or read, or nil.
	object v1alpha1.ProgramObject
	// doubtful means that the report could differ, because a write failed with an unknown
	// outcome.
	doubtful bool
}

// put records a report that was written or read, unless a newer version is recorded. It
// reports whether the record has changed.
func (r *reports) put(key program.Key, o v1alpha1.ProgramObject) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.owners[key][o.GetName()]
	if known && old.object != nil && older(o, old.object) {
		return false
	}
	o.SetManagedFields(nil)
	r.set(key, o.GetName(), record{object: o})
	return old.object == nil || old.object.GetUID() != o.GetUID() || old.object.GetResourceVersion() != o.GetResourceVersion()
}

func (r *reports) set(key program.Key, name string, to record) {
	if r.owners == nil {
		r.owners = map[program.Key]map[string]record{}
	}
	if r.owners[key] == nil {
		r.owners[key] = map[string]record{}
	}
	r.owners[key][name] = to
}

// drop removes the record of a report that doesn't exist. It reports whether the report
// was recorded.
func (r *reports) drop(key program.Key, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.owners[key][name].object != nil
	r.forget(key, name)
	return known
}

func (r *reports) forget(key program.Key, name string) {
	delete(r.owners[key], name)
	if len(r.owners[key]) == 0 {
		delete(r.owners, key)
	}
}

// doubt marks a report as one that must be read before it is used.
func (r *reports) doubt(key program.Key, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(key, name, record{object: r.owners[key][name].object, doubtful: true})
}

// doubted returns the names of an owner's reports that must be read: those that are
// marked, and those whose deletion is delayed by a finalizer, because the agent doesn't
// watch them.
func (r *reports) doubted(key program.Key) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name, known := range r.owners[key] {
		if known.doubtful || known.object != nil && known.object.GetDeletionTimestamp() != nil {
			names = append(names, name)
		}
	}
	return names
}

// of returns an owner's recorded reports by name.
func (r *reports) of(key program.Key) map[string]v1alpha1.ProgramObject {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]v1alpha1.ProgramObject{}
	for name, known := range r.owners[key] {
		if known.object != nil {
			out[name] = known.object
		}
	}
	return out
}

// all returns the recorded reports of the wanted owners.
func (r *reports) all(wanted func(program.Key) bool) []v1alpha1.ProgramObject {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []v1alpha1.ProgramObject
	for key, byName := range r.owners {
		for _, known := range byName {
			if known.object != nil && wanted(key) {
				out = append(out, known.object)
			}
		}
	}
	return out
}

func (r *reports) isListed(namespaced bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed[namespaced]
}

// replace records a list of all reports of a scope at a resource version. It returns the
// owners of reports that differ from the record. Reports that were written after that
// version keep their records.
func (r *reports) replace(namespaced bool, list []v1alpha1.ProgramObject, version string) []program.Key {
	changed := map[program.Key]bool{}
	there := map[program.Key]map[string]bool{}
	for _, o := range list {
		key, ok := ownerKey(o)
		if !ok {
			continue
		}
		if there[key] == nil {
			there[key] = map[string]bool{}
		}
		there[key][o.GetName()] = true
		if r.put(key, o) {
			changed[key] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, byName := range r.owners {
		if (key.Namespace != "") != namespaced {
			continue
		}
		for name, known := range byName {
			if !there[key][name] && known.object != nil && !newer(known.object, version) {
				changed[key] = true
				r.forget(key, name)
			}
		}
	}
	if r.listed == nil {
		r.listed = map[bool]bool{}
	}
	r.listed[namespaced] = true
	return slices.Collect(maps.Keys(changed))
}

// older reports whether a is an older version of an object than b. Since Kubernetes 1.35,
// resource versions of an object are guaranteed to be comparable as numbers. Before, they
// are with etcd.
func older(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

func newer(o metav1.Object, version string) bool {
	order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), version)
	return err == nil && order > 0
}

// keepReports lists this node's reports of a kind: at the start, on request, and
// periodically, to repair changes by others. Each list updates the record.
func (r *Controller) keepReports(ctx context.Context, kind v1alpha1.Kind[v1alpha1.ProgramObject], asked <-chan time.Duration) {
	retry := wait.Backoff{Duration: firstList, Factor: 2, Jitter: 1, Steps: 7, Cap: lastList}
	backoff := retry
	consistent := false
	for {
		rarely := cmp.Or(r.RelistReports, relistReports)
		next := rarely + rand.N(rarely) //nolint:gosec // only spreads requests
		if err := r.listReports(ctx, kind, consistent); err != nil {
			next = backoff.Step()
			logr.FromContextOrDiscard(ctx).V(1).Info("Failed to list this node's reports; retrying", "kind", kind.Name, "reason", err.Error())
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

// relist requests a list of this node's reports after a delay.
func (r *Controller) relist(delay time.Duration) {
	for _, asked := range r.asked {
		select {
		case asked <- delay:
		default: // it has already been requested
		}
	}
}

// listReports updates the record of a kind's reports from the API server: from its watch
// cache, unless the list must be consistent. Many agents can list at the same time, and
// some API servers read the reports of all nodes from etcd for each consistent list.
//
// The cache can be stale. A list without the latest writes does no harm: newer records are
// kept, an update of a changed report is a conflict, and a report is read before links
// that it might contain are removed. But a requested list must be consistent, because it
// was requested after a change that it must contain.
func (r *Controller) listReports(ctx context.Context, kind v1alpha1.Kind[v1alpha1.ProgramObject], consistent bool) error {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	options := metav1.ListOptions{
		LabelSelector:   labels.SelectorFromSet(labels.Set{v1alpha1.LabelHostname: v1alpha1.LabelValue(r.NodeName)}).String(),
		ResourceVersion: "0",
	}
	if consistent {
		options.ResourceVersion, options.Limit = "", reportsPage
	}
	var all []v1alpha1.ProgramObject
	for {
		list, page, err := r.readReports(ctx, kind, "", options)
		if err != nil {
			return err
		}
		all = append(all, page...)
		if options.Continue = list.GetContinue(); options.Continue == "" {
			for _, key := range r.reports.replace(kind.Namespaced, all, list.GetResourceVersion()) {
				r.queue.Add(key)
			}
			r.enqueueSharers()
			return nil
		}
	}
}

// readReports lists a page of reports.
func (r *Controller) readReports(ctx context.Context, kind v1alpha1.Kind[v1alpha1.ProgramObject], namespace string, options metav1.ListOptions) (metav1.ListInterface, []v1alpha1.ProgramObject, error) {
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

// readReport updates the record of one report from the API server, which looks it up by
// its name.
func (r *Controller) readReport(ctx context.Context, key program.Key, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	kind := reportKind(key.Namespace != "")
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	_, found, err := r.readReports(ctx, kind, key.Namespace, options)
	if err != nil {
		return fmt.Errorf("read %s %s: %w", kind.Name, name, err)
	}
	var changed bool
	if len(found) == 0 {
		changed = r.reports.drop(key, name)
	} else {
		changed = r.reports.put(key, found[0])
	}
	if changed { // a write whose response was lost can have taken effect
		r.enqueueSharers()
	}
	return nil
}

// reportKind returns the kind of reports for namespaced or cluster-scoped owners.
func reportKind(namespaced bool) v1alpha1.Kind[v1alpha1.ProgramObject] {
	for _, kind := range v1alpha1.ProgramKinds {
		if kind.Namespaced == namespaced {
			return kind
		}
	}
	panic("controller: no kind of reports") // ProgramKinds has both
}

// programsOf returns an owner's reports on this node by name, after reading those that are
// in doubt.
func (r *Controller) programsOf(ctx context.Context, key program.Key) (map[string]v1alpha1.ProgramObject, error) {
	if err := r.Cluster.Kinds.Read(reportKind(key.Namespace != "").GroupVersionKind()); err != nil {
		return nil, err
	}
	for _, name := range r.reports.doubted(key) {
		if err := r.readReport(ctx, key, name); err != nil {
			return nil, err
		}
	}
	return r.reports.of(key), nil
}

// recorded updates the record after a write of an owner's report that succeeded or failed.
// If the error shows that another client writes this node's reports, all of them are
// listed again.
func (r *Controller) recorded(key program.Key, o v1alpha1.ProgramObject, err error) {
	others := apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
	switch {
	case err == nil:
		r.reports.put(key, copyOf(o))
		r.enqueueSharers()
	case others:
		r.relist(rand.N(relistPause)) //nolint:gosec // only spreads requests
		r.reports.doubt(key, o.GetName())
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		// The write wasn't applied.
	default:
		r.reports.doubt(key, o.GetName())
	}
}

// Reports returns this node's reports as they were last written or read.
func (r *Controller) Reports() []v1alpha1.ProgramObject {
	return r.reports.all(func(program.Key) bool { return true })
}
