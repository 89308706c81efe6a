// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
)

// ownerKey returns the key of the owner of a report, and false if it has none.
func ownerKey(o metav1.Object) (program.Key, bool) {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return program.Key{}, false
	}
	return program.Key{Kind: ref.Kind, Namespace: o.GetNamespace(), Name: ref.Name}, true
}

// write writes the reports of an owner, and deletes the others.
func (r *Controller) write(ctx context.Context, key program.Key, owner *program.Owner, want plan.Plan, existing map[string]v1alpha1.ProgramObject, outcome report.Outcome) error {
	var errs []error
	if owner != nil {
		for _, object := range report.Programs(*owner, r.NodeName, want, r.Inventory.Of(key), outcome) {
			old := existing[object.GetName()]
			delete(existing, object.GetName())
			if err := r.writeProgram(ctx, key, old, object); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(existing)) {
		if err := r.remove(ctx, key, existing[name], outcome); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// writeProgram creates or updates one report. It only writes the content or the status if
// they have changed.
func (r *Controller) writeProgram(ctx context.Context, key program.Key, old, object v1alpha1.ProgramObject) error {
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
	if err := r.send(key, object, func() error { return r.Cluster.UpdateReportStatus(ctx, object) }); err != nil {
		return fmt.Errorf("update status of %s: %w", what, err)
	}
	r.tell(key, object, before)
	return nil
}

// send writes one report, and updates the record.
func (r *Controller) send(key program.Key, object v1alpha1.ProgramObject, write func() error) error {
	err := write()
	r.recorded(key, object, err)
	return err
}

// remove deletes the report of a program that isn't wanted. If the program couldn't be
// removed, remove reports the reason instead.
func (r *Controller) remove(ctx context.Context, key program.Key, object v1alpha1.ProgramObject, outcome report.Outcome) error {
	what := describe(object)
	if len(outcome.Removals) > 0 && object.GetDeletionTimestamp() == nil {
		object = copyOf(object)
		if !v1alpha1.SetConditions(&object.GetStatus().Conditions, outcome.NotUnloaded()...) {
			return nil
		}
		err := r.send(key, object, func() error { return r.Cluster.UpdateReportStatus(ctx, object) })
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("update status of %s: %w", what, err)
		}
		return nil
	}
	err := r.Cluster.DeleteReport(ctx, object)
	if err != nil && !apierrors.IsNotFound(err) {
		r.reports.doubt(key, object.GetName())
		return fmt.Errorf("delete %s: %w", what, err)
	}
	r.reports.drop(key, object.GetName())
	r.enqueueSharers()
	return nil
}

// reportUnreachable reports for an owner's programs that the daemon is unreachable.
// Reports of loaded programs of this generation don't change: the programs stay attached
// without the daemon, and nothing else is known.
func (r *Controller) reportUnreachable(ctx context.Context, key program.Key, owner *program.Owner, cause error) error {
	if owner == nil {
		return cause
	}
	existing, err := r.programsOf(ctx, key)
	if err != nil {
		return errors.Join(cause, err)
	}
	want, err := r.plan(ctx, *owner, change{})
	if err != nil {
		return errors.Join(cause, err)
	}
	outcome := report.Outcome{Loads: map[int]error{}}
	for n := range want.Loads {
		outcome.Loads[n] = cause
	}
	for _, object := range report.Programs(*owner, r.NodeName, want, nil, outcome) {
		old := existing[object.GetName()]
		if old != nil && old.GetStatus().ProgramID != 0 && old.GetStatus().OwnerGeneration == owner.Generation {
			continue
		}
		if old != nil {
			// Only the condition changes in the report of a previously loaded program.
			conditions := object.GetStatus().Conditions
			object = copyOf(old)
			object.GetStatus().Conditions = conditions
		}
		err = errors.Join(err, r.writeProgram(ctx, key, old, object))
	}
	return errors.Join(cause, err)
}

// tell emits an Event about the user object if a program starts to fail, fails for
// another reason, recovers, or is reloaded. The operator reports the first success, once
// for all nodes.
func (r *Controller) tell(key program.Key, object v1alpha1.ProgramObject, before *v1alpha1.BpfProgramStatus) {
	if len(object.GetStatus().Conditions) == 0 {
		return
	}
	owner, err := r.Cluster.UserObject(key.Kind, key.Namespace, key.Name)
	if err != nil {
		return // the object has been deleted, or can't be read
	}
	is := object.GetStatus().Conditions[0]
	var was metav1.Condition
	if len(before.Conditions) > 0 {
		was = before.Conditions[0]
	}
	r.tellWarned(owner, object, before)
	failed := func(c metav1.Condition) bool { return v1alpha1.BpfProgramConditionType(c.Type).Failed() }
	function := object.GetStatus().Function
	switch id := object.GetStatus().ProgramID; {
	case failed(is) && is.Message != was.Message:
		event.Emit(r.Cluster.Events, owner, corev1.EventTypeWarning, is.Type, "Load",
			fmt.Sprintf("Program %s %s on node %s: %s", function, failure(is), r.NodeName, is.Message))
	case failed(was) && !failed(is):
		event.Emit(r.Cluster.Events, owner, corev1.EventTypeNormal, is.Type, "Load",
			fmt.Sprintf("Program %s recovered on node %s", function, r.NodeName))
	case before.ProgramID != 0 && before.ProgramID != id:
		event.Emit(r.Cluster.Events, owner, corev1.EventTypeNormal, "Reloaded", "Load",
			fmt.Sprintf("Reloaded program %s on node %s: program %d replaced program %d", function, r.NodeName, id, before.ProgramID))
	}
}

// failure describes a failed condition.
func failure(c metav1.Condition) string {
	if v1alpha1.BpfProgramConditionType(c.Type) == v1alpha1.BpfProgCondPolicyViolated {
		return "violates a policy"
	}
	return "failed"
}

// reasonWarned is the reason of Events about policies in mode warn that would deny a
// program.
const reasonWarned = "PolicyWarned"

// tellWarned emits an Event if the program starts to violate a policy in mode warn, or
// violates it for another reason.
func (r *Controller) tellWarned(owner v1alpha1.UserObject, object v1alpha1.ProgramObject, before *v1alpha1.BpfProgramStatus) {
	said := func(s *v1alpha1.BpfProgramStatus) []v1alpha1.BpfProgramPolicy {
		if s.Bytecode == nil {
			return nil
		}
		return s.Bytecode.Policies
	}
	for _, is := range said(object.GetStatus()) {
		told := slices.ContainsFunc(said(before), func(was v1alpha1.BpfProgramPolicy) bool {
			return was.Name == is.Name && was.Verdict == is.Verdict && was.Message == is.Message
		})
		if is.Verdict == v1alpha1.VerdictWarned && !told {
			event.Emit(r.Cluster.Events, owner, corev1.EventTypeWarning, reasonWarned, "Load",
				fmt.Sprintf("Policy %s would deny program %s on node %s in mode enforce: %s", is.Name, object.GetStatus().Function, r.NodeName, is.Message))
		}
	}
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
	if o.GetNamespace() == "" {
		return "BpfProgram " + o.GetName()
	}
	return "BpfNsProgram " + o.GetNamespace() + "/" + o.GetName()
}

func copyOf(o v1alpha1.ProgramObject) v1alpha1.ProgramObject {
	return o.DeepCopyObject().(v1alpha1.ProgramObject) //nolint:errcheck // a copy has the same type
}
