// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package timeline lists what happened to an object, in order: its revisions, which node took or refused them and when, its
// rollout, and Events. It uses only what the cluster stores anyway, so a report has what a node did last, and Events of the
// last hour are known.
package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Revision is a revision of the object.
type Revision struct {
	Number  int64
	Created metav1.Time
	// Changes are the fields that differ from the revision before.
	Changes []string
	// Since are the generations of the object in which the revision became the newest one.
	Since []int64
}

// Event is an Event about the object, or about one of its reports.
type Event struct {
	Time            metav1.Time
	Reason, Message string
	// Node is the node of the report, or "" if the Event is about the object.
	Node    string
	Warning bool
	Count   int32
}

// Occurrence is something that happened.
type Occurrence struct {
	Time metav1.Time `json:"time"`
	// Until is the time of the last node, if nodes did the same after one another.
	Until *metav1.Time `json:"until,omitempty"`
	// Revision is the number of the revision, or 0 if none is meant.
	Revision int64 `json:"revision,omitempty"`
	// Nodes are the nodes on which it happened, by name, or nil if it happened to the object.
	Nodes []string `json:"nodes,omitempty"`
	// More is the number of nodes that were left out.
	More int    `json:"more,omitempty"`
	What string `json:"what"`
	// Failed means that something is wrong.
	Failed bool `json:"failed,omitempty"`
}

// Cut leaves out nodes after the first ones, and counts them.
func (o *Occurrence) Cut(nodes int) {
	if len(o.Nodes) > nodes {
		o.Nodes, o.More = o.Nodes[:nodes:nodes], o.More+len(o.Nodes)-nodes
	}
}

// Of returns what happened to an object, the oldest first.
func Of(object v1alpha1.UserObject, revisions []Revision, reports []v1alpha1.ProgramObject, events []Event) []Occurrence {
	revisions = inOrder(revisions)
	all := slices.Concat(ofRevisions(revisions), ofNodes(object, revisions, reports), ofRollout(object), ofEvents(events))
	slices.SortStableFunc(all, func(a, b Occurrence) int { return a.Time.Compare(b.Time.Time) })
	return together(all)
}

// In returns the index of the revision that an object had in a generation, or -1: the last one that became the newest until
// then. Changes of the node selector don't make another revision.
func In(revisions []Revision, generation int64) int {
	found, last := -1, int64(0)
	for i, r := range revisions {
		for _, since := range r.Since {
			if since <= generation && since > last {
				found, last = i, since
			}
		}
	}
	return found
}

// Count returns on how many nodes each revision runs, and on how many it failed. Where the newest one can't be loaded, the one that
// was loaded before can still run.
func Count(object v1alpha1.UserObject, revisions []Revision, reports []v1alpha1.ProgramObject) (running, failed []int) {
	type nodes = map[string]bool
	runs, fails := make([]nodes, len(revisions)), make([]nodes, len(revisions))
	for i := range revisions {
		runs[i], fails[i] = nodes{}, nodes{}
	}
	for _, report := range reports {
		status := report.GetStatus()
		i := In(revisions, status.OwnerGeneration)
		if i < 0 || len(status.Conditions) == 0 || !metav1.IsControlledBy(report, object) {
			continue
		}
		switch condition := v1alpha1.BpfProgramConditionType(status.Conditions[0].Type); {
		case condition.Failed():
			fails[i][status.Node] = true
			if before := loadedBefore(revisions, i, status); before >= 0 {
				runs[before][status.Node] = true
			}
		case condition != v1alpha1.BpfProgCondNone:
			runs[i][status.Node] = true
		}
	}
	for i := range revisions {
		maps.DeleteFunc(runs[i], func(node string, _ bool) bool { return fails[i][node] })
		running, failed = append(running, len(runs[i])), append(failed, len(fails[i]))
	}
	return running, failed
}

// loadedBefore returns the index of the revision that runs in place of one that can't be loaded, or -1 if none does: the newest one
// that existed when the program was loaded. One that has returned can have run before that, too.
func loadedBefore(revisions []Revision, failed int, status *v1alpha1.BpfProgramStatus) int {
	loaded, err := time.Parse(loadedFormat, status.LoadedAt)
	if !status.Previous || err != nil {
		return -1
	}
	found := int64(0)
	for _, r := range revisions {
		if r.Number != revisions[failed].Number && !r.Created.After(loaded) {
			found = max(found, r.Number)
		}
	}
	return slices.IndexFunc(revisions, func(r Revision) bool { return r.Number == found })
}

// inOrder returns the revisions by number. One that has returned has a new number and its former time. When it returned isn't
// stored, but it is after the revision before it.
func inOrder(revisions []Revision) []Revision {
	sorted := slices.SortedFunc(slices.Values(revisions), func(a, b Revision) int { return cmp.Compare(a.Number, b.Number) })
	for i := range sorted[min(1, len(sorted)):] {
		if before := sorted[i].Created; sorted[i+1].Created.Before(&before) {
			sorted[i+1].Created = before
		}
	}
	return sorted
}

func ofRevisions(revisions []Revision) []Occurrence {
	entries := make([]Occurrence, 0, len(revisions))
	for _, r := range revisions {
		what := "created"
		if len(r.Changes) > 0 {
			what = "changed: " + strings.Join(r.Changes, ", ")
		}
		if len(r.Since) > 1 {
			what = "returned, and so " + what
		}
		entries = append(entries, Occurrence{Time: r.Created, Revision: r.Number, What: what})
	}
	return entries
}

// ofNodes returns the last thing that each node did. The programs of an application are loaded in one call.
func ofNodes(object v1alpha1.UserObject, revisions []Revision, reports []v1alpha1.ProgramObject) []Occurrence {
	byNode := map[string]Occurrence{}
	for _, report := range reports {
		status := report.GetStatus()
		if !metav1.IsControlledBy(report, object) {
			continue
		}
		entry, done := ofReport(revisions, status)
		was, known := byNode[status.Node]
		if done && (!known || entry.Failed && !was.Failed || entry.Failed == was.Failed && entry.Time.After(was.Time.Time)) {
			byNode[status.Node] = entry
		}
	}
	entries := make([]Occurrence, 0, len(byNode))
	for _, entry := range byNode {
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b Occurrence) int { return strings.Compare(a.Nodes[0], b.Nodes[0]) })
	return entries
}

// ofReport returns what a report says, unless its node hasn't done anything yet.
func ofReport(revisions []Revision, status *v1alpha1.BpfProgramStatus) (entry Occurrence, done bool) {
	if len(status.Conditions) == 0 {
		return entry, false
	}
	first := status.Conditions[0]
	entry = Occurrence{Time: first.LastTransitionTime, Nodes: []string{status.Node}, What: "loaded"}
	var created metav1.Time
	if i := In(revisions, status.OwnerGeneration); i >= 0 {
		entry.Revision, created = revisions[i].Number, revisions[i].Created
	}
	loaded, err := time.Parse(loadedFormat, status.LoadedAt)
	switch condition := v1alpha1.BpfProgramConditionType(first.Type); {
	case condition == v1alpha1.BpfProgCondNone:
		return entry, false
	case condition.Failed():
		entry.What, entry.Failed = "failed: "+firstLine(first.Message), true
	case err == nil && !loaded.Before(created.Time):
		entry.Time = metav1.NewTime(loaded)
	case status.ProgramID == 0:
		entry.What = "nothing to attach to: " + firstLine(first.Message)
	case err == nil: // what the revision changed needed no load
		entry.What = "runs without a reload"
		if entry.Time.Before(&created) {
			entry.Time = created
		}
	}
	return entry, true
}

// loadedFormat is the format of the daemon's times.
const loadedFormat = "2006-01-02T15:04:05-0700"

// ofRollout returns what a RolloutPolicy has done with the newest revision.
func ofRollout(object v1alpha1.UserObject) []Occurrence {
	rollout := object.GetStatus().Rollout
	if rollout == nil {
		return nil
	}
	var entries []Occurrence
	if rollout.Started != nil {
		entries = append(entries, Occurrence{Time: *rollout.Started, Revision: rollout.Revision, What: "rollout started, by policy " + rollout.Policy})
	}
	if rollout.StepStarted != nil && rollout.Step > 1 {
		entries = append(entries, Occurrence{Time: *rollout.StepStarted, Revision: rollout.Revision, What: fmt.Sprintf("step %d of the rollout started, on %d nodes", rollout.Step, rollout.Nodes)})
	}
	if rollout.State == v1alpha1.RolloutProgressing {
		return entries
	}
	// When it ended isn't stored. A halted rollout stalls the object, and a complete one makes it ready, as other changes can.
	says := string(v1alpha1.Ready)
	if rollout.State.Stalled() {
		says = string(v1alpha1.Stalled)
	}
	condition := meta.FindStatusCondition(object.GetStatus().Conditions, says)
	if condition == nil || condition.Status != metav1.ConditionTrue || rollout.Started != nil && condition.LastTransitionTime.Before(rollout.Started) {
		return entries
	}
	what := "rollout " + strings.ToLower(string(rollout.State))
	if rollout.Message != "" && rollout.State != v1alpha1.RolloutComplete {
		what += ": " + firstLine(rollout.Message)
	}
	return append(entries, Occurrence{Time: condition.LastTransitionTime, Revision: rollout.Revision, What: what, Failed: rollout.State.Stalled()})
}

// ofEvents returns what Events say. Those about an object name nodes in their messages.
func ofEvents(events []Event) []Occurrence {
	entries := make([]Occurrence, 0, len(events))
	for _, e := range events {
		entry := Occurrence{Time: e.Time, What: e.Reason + ": " + firstLine(e.Message), Failed: e.Warning}
		if e.Count > 1 {
			entry.What = fmt.Sprintf("%s (%d times): %s", e.Reason, e.Count, firstLine(e.Message))
		}
		if e.Node != "" {
			entry.Nodes = []string{e.Node}
		}
		entries = append(entries, entry)
	}
	return entries
}

// EventsOf returns those of the API's Events that are about an object or one of its reports.
func EventsOf(object v1alpha1.UserObject, reports []v1alpha1.ProgramObject, events []corev1.Event) []Event {
	nodes := map[string]string{string(object.GetUID()): ""}
	for _, report := range reports {
		nodes[string(report.GetUID())] = report.GetStatus().Node
	}
	var out []Event
	for i := range events {
		e := &events[i]
		if node, about := nodes[string(e.InvolvedObject.UID)]; about {
			last, count := Last(e)
			out = append(out, Event{last, e.Reason, e.Message, node, e.Type == corev1.EventTypeWarning, count})
		}
	}
	return out
}

// Last returns when an Event happened last, and how often it has happened. Its fields depend on the version of the API that its
// writer used.
func Last(e *corev1.Event) (at metav1.Time, count int32) {
	at, count = e.LastTimestamp, max(e.Count, 1)
	if e.Series != nil {
		at, count = metav1.NewTime(e.Series.LastObservedTime.Time), e.Series.Count
	}
	for _, other := range []metav1.Time{e.FirstTimestamp, metav1.NewTime(e.EventTime.Time), e.CreationTimestamp} {
		if at.IsZero() {
			at = other
		}
	}
	return at, count
}

// together joins entries after one another that say the same about several nodes.
func together(entries []Occurrence) []Occurrence {
	var joined []Occurrence
	for _, e := range entries {
		last := len(joined) - 1
		if last < 0 || e.Nodes == nil || joined[last].Nodes == nil || joined[last].Revision != e.Revision || joined[last].What != e.What {
			joined = append(joined, e)
			continue
		}
		joined[last].Nodes = append(joined[last].Nodes, e.Nodes...)
		if e.Time.After(joined[last].Time.Time) {
			until := e.Time
			joined[last].Until = &until
		}
	}
	for i := range joined {
		slices.Sort(joined[i].Nodes)
		joined[i].Nodes = slices.Compact(joined[i].Nodes)
	}
	return joined
}

// firstLine returns the first line of a message.
func firstLine(message string) string {
	line, _, _ := strings.Cut(message, "\n")
	return line
}
