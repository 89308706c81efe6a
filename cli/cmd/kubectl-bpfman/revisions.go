// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
	"github.com/bpfman/bpfman-operator/cli/timeline"
	"github.com/bpfman/bpfman-operator/cli/why"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// Revision is a revision of an object.
type Revision struct {
	Revision int64       `json:"revision"`
	Created  metav1.Time `json:"created"`
	Current  bool        `json:"current"`
	// Nodes is the number of nodes that run the revision, and Failed the number of those that report that it failed. They are
	// missing if the reports can't be read.
	Nodes  *int `json:"nodes,omitempty"`
	Failed *int `json:"failed,omitempty"`
	// Changes are the fields that differ from the revision before.
	Changes []string `json:"changes"`

	stored rollout.Revision
	// since are the generations of the object in which the revision became the newest one.
	since []int64
}

// marks returns the revisions as a timeline has them.
func marks(all []Revision) []timeline.Revision {
	out := make([]timeline.Revision, 0, len(all))
	for _, r := range all {
		out = append(out, timeline.Revision{Number: r.Revision, Created: r.Created, Changes: r.Changes, Since: r.since})
	}
	return out
}

var revisionsTable = output.Table[Revision]{
	Kind: "Revision",
	Columns: []output.Column[Revision]{
		{Name: "REVISION", Cell: func(r Revision) any { return r.Revision }},
		{Name: "AGE", Cell: func(r Revision) any { return r.Created }},
		{Name: "CURRENT", Cell: func(r Revision) any { return map[bool]string{true: "yes", false: "no"}[r.Current] }},
		{Name: "NODES", Cell: func(r Revision) any { return count(r.Nodes) }},
		{Name: "FAILED", Cell: func(r Revision) any { return count(r.Failed) }},
		{Name: "CHANGES", Cell: func(r Revision) any { return strings.Join(r.Changes, ", ") }},
	},
}

// count returns the value of a cell.
func count(n *int) any {
	if n == nil {
		return nil
	}
	return int64(*n)
}

var errNoRevisions = errors.New("has no revisions")

// revisions returns the revisions of an object, by number.
func (r *rolling) revisions(ctx context.Context, o rolled) ([]Revision, error) {
	namespace := cmp.Or(o.object.GetNamespace(), r.components)
	var list appsv1.ControllerRevisionList
	if err := o.cluster.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelRevisionOf: string(o.object.GetUID())}); err != nil {
		return nil, fmt.Errorf("list revisions: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	current, err := rollout.RevisionOf(o.object)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o, err)
	}
	var all []Revision
	for i := range list.Items {
		c := &list.Items[i]
		if !metav1.IsControlledBy(c, o.object) {
			continue
		}
		stored, err := rollout.Parse(c.Data.Raw)
		if err != nil {
			return nil, fmt.Errorf("ControllerRevision %s: %w", c.Name, err)
		}
		is := Revision{Revision: c.Revision, Created: c.CreationTimestamp, Current: stored.Hash() == current.Hash(), Changes: []string{}, stored: stored}
		is.since = []int64{stored.Metadata.Generation}
		if returned, err := strconv.ParseInt(c.Annotations[v1alpha1.AnnotationReturnedIn], 10, 64); err == nil {
			is.since = append(is.since, returned)
		}
		if len(all) > 0 {
			is.Changes = differences(all[len(all)-1].stored, stored)
		}
		all = append(all, is)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s %w: bpfman's operator records each one, so check that it runs, and what it logs", o, errNoRevisions)
	}
	return all, nil
}

// differences returns the paths of the fields that differ between revisions.
func differences(a, b rollout.Revision) []string {
	var was, is any
	_ = json.Unmarshal(a.Spec, &was) // rollout.Parse has decoded both
	_ = json.Unmarshal(b.Spec, &is)
	paths := differing("spec", was, is)
	annotations := maps.Clone(a.Metadata.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, b.Metadata.Annotations)
	for name := range annotations {
		if a.Metadata.Annotations[name] != b.Metadata.Annotations[name] {
			paths = append(paths, "annotation "+name)
		}
	}
	return slices.Sorted(slices.Values(paths))
}

func differing(path string, a, b any) []string {
	was, ok := a.(map[string]any)
	is, both := b.(map[string]any)
	switch {
	case reflect.DeepEqual(a, b) || path == "spec.nodeselector":
		return nil
	case !ok || !both:
		return []string{path}
	}
	names := maps.Clone(was)
	maps.Copy(names, is)
	var paths []string
	for name := range names {
		paths = append(paths, differing(path+"."+name, was[name], is[name])...)
	}
	return paths
}

func (r *rolling) history(ctx context.Context, o rolled) error {
	all, err := r.revisions(ctx, o)
	if err != nil {
		return err
	}
	if r.diff {
		return r.printChanges(all)
	}
	if r.revision == 0 {
		if err := r.countNodes(ctx, o, all); err != nil {
			return err
		}
		return revisionsTable.Print(r.streams.Out, r.format, all)
	}
	found, err := numbered(all, r.revision)
	if err != nil {
		return err
	}
	if !r.format.Human() {
		object, err := found.stored.Object(o.kind)
		if err != nil {
			return fmt.Errorf("read revision %d: %w", r.revision, err)
		}
		object.GetObjectKind().SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(o.kind))
		object.SetNamespace(o.object.GetNamespace())
		object.SetName(o.object.GetName())
		return r.format.Print(r.streams.Out, object)
	}
	text, err := output.YAML(found.stored)
	if err != nil {
		return fmt.Errorf("print revision %d: %w", r.revision, err)
	}
	_, err = r.streams.Out.Write(text)
	return err
}

func numbered(all []Revision, number int64) (*Revision, error) {
	i := slices.IndexFunc(all, func(r Revision) bool { return r.Revision == number })
	if i < 0 {
		return nil, fmt.Errorf("there is no revision %d", number)
	}
	return &all[i], nil
}

// printChanges prints what revisions change, as differences of their YAML.
func (r *rolling) printChanges(all []Revision) error {
	if r.revision != 0 {
		if _, err := numbered(all, r.revision); err != nil {
			return err
		}
	}
	for i, is := range all {
		if i == 0 || r.revision != 0 && r.revision != is.Revision {
			continue
		}
		was := all[i-1]
		changes, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: was.lines(), B: is.lines(), Context: diffContext,
			FromFile: fmt.Sprintf("revision %d", was.Revision), ToFile: fmt.Sprintf("revision %d", is.Revision),
		})
		if err != nil {
			return fmt.Errorf("compare revision %d: %w", is.Revision, err)
		}
		if _, err := io.WriteString(r.streams.Out, terminal.Text(changes)); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// lines returns the lines of a revision in YAML, without what isn't part of it.
func (r Revision) lines() []string {
	content := map[string]any{}
	var spec map[string]any
	_ = json.Unmarshal(r.stored.Spec, &spec) // rollout.Parse has decoded it
	delete(spec, "nodeselector")
	content["spec"] = spec
	if len(r.stored.Metadata.Annotations) > 0 {
		content["annotations"] = r.stored.Metadata.Annotations
	}
	text, err := output.YAML(content)
	if err != nil {
		return []string{err.Error()}
	}
	return difflib.SplitLines(strings.TrimSuffix(string(text), "\n"))
}

// diffContext is the number of lines around a change, as in diff -u.
const diffContext = 3

// countNodes adds on how many nodes the revisions run, if the user is allowed to list the reports.
func (r *rolling) countNodes(ctx context.Context, o rolled, all []Revision) error {
	reports, err := cluster.Reports(ctx, o.cluster, o.owner())
	if apierrors.IsForbidden(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("count the nodes of each revision: %w", err)
	}
	running, failed := timeline.Count(o.object, marks(all), reports)
	for i := range all {
		all[i].Nodes, all[i].Failed = &running[i], &failed[i]
	}
	return nil
}

// NodeRevision is the revision of an object that a node runs.
type NodeRevision struct {
	Node string `json:"node"`
	// Revision is missing if the node has reported none.
	Revision int64 `json:"revision,omitempty"`
	// State is the state of the object on the node, and Reason why it has that one.
	State  why.State `json:"state"`
	Reason string    `json:"reason,omitempty"`
}

var nodeRevisionsTable = output.Table[NodeRevision]{
	Kind: "NodeRevision",
	Columns: []output.Column[NodeRevision]{
		{Name: "NODE", Cell: func(n NodeRevision) any { return n.Node }},
		{Name: "REVISION", Cell: func(n NodeRevision) any {
			if n.Revision == 0 {
				return nil
			}
			return n.Revision
		}},
		{Name: "STATE", Cell: func(n NodeRevision) any { return string(n.State) }},
		{Name: "REASON", Cell: func(n NodeRevision) any { return n.Reason }},
	},
}

// nodeRevisions prints which revision each node runs.
func (r *rolling) nodeRevisions(ctx context.Context, o rolled) error {
	all, err := r.revisions(ctx, o)
	if err != nil {
		return err
	}
	facts, err := whyOptions{components: r.components}.gather(ctx, o.cluster, o.owner(), func(context.Context, *cluster.Cluster, *why.Facts) error { return nil })
	if err != nil {
		return err
	}
	page, err := why.Explain(facts)
	if err != nil {
		return fmt.Errorf("explain %s: %w", o, err)
	}
	generations := map[string]int64{}
	for _, report := range facts.Reports {
		status := report.GetStatus()
		generations[status.Node] = max(generations[status.Node], status.OwnerGeneration)
	}
	newest, rows := marks(all), []NodeRevision{}
	for _, n := range page.Nodes {
		row := NodeRevision{Node: n.Name, State: n.State, Reason: n.Reason()}
		if i := timeline.In(newest, generations[n.Name]); i >= 0 {
			row.Revision = all[i].Revision
		}
		rows = append(rows, row)
	}
	return nodeRevisionsTable.Print(r.streams.Out, r.format, rows)
}
