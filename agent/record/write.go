// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/agent/breaker"
	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// writeDeadline is the timeout of writing the reports of one owner. If there are too many, the rest is written by the next
// calls, after the reports of others.
const writeDeadline = time.Minute

// Write writes the reports of an owner, and deletes its other ones. It ends at the first write that gets no response. It
// returns a [PausedError] if they are to be written later.
func (r *Reports) Write(ctx context.Context, key program.Key, owner *program.Owner, want plan.Plan, actual []daemon.Program, outcome report.Outcome) error {
	var objects []v1alpha1.ProgramObject
	if owner != nil {
		objects = report.Programs(*owner, r.NodeName, want, actual, outcome)
		r.name(*owner, objects)
	}
	ctx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	existing := r.known.of(key)
	if left := r.pace.left(key); left > 0 && onlyLinks(existing, objects) {
		return &PausedError{left}
	}
	if owner == nil {
		r.pace.forget(key)
		r.known.giveBack(key)
	}
	var errs []error
	for _, object := range objects {
		old := existing[object.GetName()]
		delete(existing, object.GetName())
		err := r.writeProgram(ctx, key, old, object)
		if err != nil && !cluster.Answered(err) {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, err)
	}
	if owner != nil {
		r.tellRefused(*owner, errs)
	}
	for _, name := range slices.Sorted(maps.Keys(existing)) {
		err := r.remove(ctx, key, existing[name], outcome)
		if err != nil && !cluster.Answered(err) {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// writeProgram creates or updates one report. It only writes the content or the status if
// they have changed.
func (r *Reports) writeProgram(ctx context.Context, key program.Key, old, object v1alpha1.ProgramObject) error {
	status := object.GetStatus().DeepCopy()
	what := describe(object)
	switch {
	case old == nil:
		// AlreadyExists, if another agent on this node created the report, is an error
		// too. The retry reads the report first.
		if err := r.send(key, object, func() error { return r.Cluster.CreateReport(ctx, object) }); err != nil {
			return fmt.Errorf("create %s: %w", what, err)
		}
	case sameContent(old, object):
		object = copyOf(old)
	default:
		object = withContent(copyOf(old), object)
		if err := r.send(key, object, func() error { return r.Cluster.UpdateReport(ctx, object) }); err != nil {
			return fmt.Errorf("update %s: %w", what, err)
		}
	}

	before := object.GetStatus().DeepCopy()
	keep(status, before)
	if equality.Semantic.DeepEqual(status, before) {
		return nil
	}
	*object.GetStatus() = *status
	if err := r.sendStatus(ctx, key, object); err != nil {
		return fmt.Errorf("update status of %s: %w", what, err)
	}
	r.pace.written(key)
	r.tell(key, object, before)
	return nil
}

// send writes one report, and updates the record. The API server drops fields that the cluster's definitions lack, for example
// after a rollback of them. So what was sent is recorded: with the response, each pass would find a difference, and write again.
func (r *Reports) send(key program.Key, object v1alpha1.ProgramObject, write func() error) error {
	sent := object.GetSpec().DeepCopy()
	err := write()
	if err == nil {
		*object.GetSpec() = *sent
	}
	r.recorded(key, object, err)
	return err
}

// sendStatus is send for a write of the status.
func (r *Reports) sendStatus(ctx context.Context, key program.Key, object v1alpha1.ProgramObject) error {
	sent := object.GetStatus().DeepCopy()
	return r.send(key, object, func() error {
		if err := r.Cluster.UpdateReportStatus(ctx, object); err != nil {
			return err
		}
		*object.GetStatus() = *sent
		return nil
	})
}

// recorded updates the record after a write of an owner's report that succeeded or failed.
// If the error shows that another client writes this node's reports, all of them are
// listed again.
func (r *Reports) recorded(key program.Key, o v1alpha1.ProgramObject, err error) {
	others := apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
	switch {
	case err == nil:
		if r.known.put(key, copyOf(o), 0) {
			r.Changed()
		}
	case others:
		r.Relist(rand.N(relistPause)) //nolint:gosec // only spreads requests
		r.known.doubt(key, o.GetName())
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || errors.As(err, new(*breaker.OpenError)):
		// The write wasn't applied.
	default:
		r.known.doubt(key, o.GetName())
	}
}

// remove deletes the report of a program that isn't wanted. If the program couldn't be
// removed, remove reports the reason instead.
func (r *Reports) remove(ctx context.Context, key program.Key, object v1alpha1.ProgramObject, outcome report.Outcome) error {
	what := describe(object)
	if len(outcome.Removals) > 0 && object.GetDeletionTimestamp() == nil {
		object = copyOf(object)
		conditions, reason := outcome.NotUnloaded()
		was := object.GetStatus().Problem
		object.GetStatus().Problem = string(reason)
		if !v1alpha1.SetConditions(&object.GetStatus().Conditions, conditions...) && was == string(reason) {
			return nil
		}
		err := r.sendStatus(ctx, key, object)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("update status of %s: %w", what, err)
		}
		return nil
	}
	err := r.Cluster.DeleteReport(ctx, object)
	if err != nil && !apierrors.IsNotFound(err) {
		r.recorded(key, object, err)
		return fmt.Errorf("delete %s: %w", what, err)
	}
	r.known.drop(key, object.GetName(), r.known.begin())
	r.Changed()
	return nil
}

// WriteUnreachable reports for an owner's programs that the daemon is unreachable.
// Reports of loaded programs of this generation don't change: the programs stay attached
// without the daemon, and nothing else is known.
func (r *Reports) WriteUnreachable(ctx context.Context, owner program.Owner, want plan.Plan, cause error) error {
	outcome := report.Outcome{Loads: map[int]error{}}
	for n := range want.Loads {
		outcome.Loads[n] = cause
	}
	ctx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	existing := r.known.of(owner.Key)
	var errs []error
	objects := report.Programs(owner, r.NodeName, want, nil, outcome)
	r.name(owner, objects)
	for _, object := range objects {
		old := existing[object.GetName()]
		if old != nil && old.GetStatus().ProgramID != 0 && old.GetStatus().OwnerGeneration == owner.Generation {
			continue
		}
		if old != nil {
			// Only the condition changes in the report of a previously loaded program.
			status := object.GetStatus()
			object = copyOf(old)
			object.GetStatus().Conditions, object.GetStatus().Problem = status.Conditions, status.Problem
		}
		err := r.writeProgram(ctx, owner.Key, old, object)
		errs = append(errs, err)
		if err != nil && !cluster.Answered(err) {
			break
		}
	}
	return errors.Join(errs...)
}

func sameContent(a, b v1alpha1.ProgramObject) bool {
	return equality.Semantic.DeepEqual(a.GetSpec(), b.GetSpec()) && contains(a.GetLabels(), b.GetLabels()) && contains(a.GetAnnotations(), b.GetAnnotations())
}

// withContent sets the wanted content of a report, and keeps labels and annotations of
// other clients.
func withContent(object, wanted v1alpha1.ProgramObject) v1alpha1.ProgramObject {
	object.SetLabels(merge(object.GetLabels(), wanted.GetLabels()))
	object.SetAnnotations(merge(object.GetAnnotations(), wanted.GetAnnotations()))
	*object.GetSpec() = *wanted.GetSpec()
	return object
}

func contains(all, some map[string]string) bool {
	for k, v := range some {
		if have, ok := all[k]; !ok || have != v {
			return false
		}
	}
	return true
}

func merge(old, wanted map[string]string) map[string]string {
	out := maps.Clone(old)
	if out == nil {
		return wanted
	}
	maps.Copy(out, wanted)
	return out
}

// keep copies the transition times of the previous status, so that retries that fail with
// the same error don't write it each time.
func keep(status, before *v1alpha1.BpfProgramStatus) {
	conditions := before.Conditions
	v1alpha1.SetConditions(&conditions, status.Conditions...)
	status.Conditions = conditions
}

func describe(o v1alpha1.ProgramObject) string {
	return v1alpha1.ProgramKind(o.GetNamespace() != "").Name + " " + toolscache.MetaObjectToName(o).String()
}

func copyOf(o v1alpha1.ProgramObject) v1alpha1.ProgramObject {
	return o.DeepCopyObject().(v1alpha1.ProgramObject) //nolint:errcheck // a copy has the same type
}
