// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/timeline"
)

const timelineLong = `Show what happened to an object, the oldest first: its revisions and their changes, when each node loaded the one that it has or why it failed, the steps of a rollout, and Events. Nodes that did the same one after another share a row.

The cluster stores what each node did last, the last ten revisions, and Events for about an hour. What happened before isn't shown.

The command requires permission to get the object, to list its controllerrevisions as for history, and its bpfprograms or bpfnsprograms. With permission to list events in the object's namespace, or in the namespace default for cluster-scoped objects, it also shows Events.`

var timelineTable = output.Table[timeline.Occurrence]{
	Kind: "Occurrence",
	Columns: []output.Column[timeline.Occurrence]{
		{Name: "AGE", Cell: func(e timeline.Occurrence) any { return e.Time }},
		{Name: "TIME", Wide: true, Cell: func(e timeline.Occurrence) any {
			from := e.Time.UTC().Format(time.RFC3339)
			if e.Until == nil {
				return from
			}
			return from + " to " + e.Until.UTC().Format(time.RFC3339)
		}},
		{Name: "REVISION", Cell: func(e timeline.Occurrence) any {
			if e.Revision == 0 {
				return nil
			}
			return e.Revision
		}},
		{Name: "NODES", Cell: func(e timeline.Occurrence) any { return listed(e.Nodes) }},
		{Name: "WHAT", Cell: func(e timeline.Occurrence) any { return e.What }},
	},
}

// timeline prints what happened to an object.
func (r *rolling) timeline(ctx context.Context, o rolled) error {
	all, err := r.revisions(ctx, o)
	if err != nil {
		return err
	}
	reports, err := cluster.Reports(ctx, o.cluster, o.owner())
	if err != nil {
		return fmt.Errorf("list the reports of %s: %w", o, err)
	}
	namespace := o.object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	events, unseen := cluster.All[corev1.Event](ctx, o.cluster, &corev1.EventList{}, client.InNamespace(namespace))
	if err := timelineTable.Print(r.streams.Out, r.format, timeline.Of(o.object, marks(all), reports, timeline.EventsOf(o.object, reports, events))); err != nil {
		return err
	}
	if unseen != nil && r.format.Human() {
		return remark(r.streams.ErrOut, []string{"Events aren't shown: " + unseen.Error()})
	}
	return nil
}
