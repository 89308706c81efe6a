// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package view

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/objectmaps"
	"github.com/bpfman/bpfman-operator/cli/timeline"
	"github.com/bpfman/bpfman-operator/cli/why"
	"github.com/bpfman/bpfman-operator/internal/live"
)

// Object is the view of an object.
type Object struct {
	Page *why.Page `json:"page"`
	// Nodes are all its nodes. Page only has the details of the first ones, the most severe first.
	Nodes      []ObjectNode            `json:"nodes"`
	Conditions []metav1.Condition      `json:"conditions"`
	Counts     *v1alpha1.NodeCounts    `json:"counts,omitempty"`
	Rollout    *v1alpha1.RolloutStatus `json:"rollout,omitempty"`
	Revisions  []Revision              `json:"revisions"`
	Bytecode   []Bytecode              `json:"bytecode"`
	Maps       []objectmaps.Map        `json:"maps"`
	MoreMaps   int                     `json:"moreMaps,omitempty"`
	// Timeline is what happened to the object, the latest first.
	Timeline []timeline.Occurrence `json:"timeline"`
	Programs map[string][]uint32   `json:"programs"`
	Problems
}

// ObjectNode is the state of an object on a node.
type ObjectNode struct {
	Name  string    `json:"name"`
	State why.State `json:"state"`
}

// Revision is a revision of an object.
type Revision struct {
	Number  int64       `json:"number"`
	Created metav1.Time `json:"created"`
	Change  string      `json:"change"`
	Newest  bool        `json:"newest,omitempty"`
	// Nodes and Failed count the nodes that run it, and those on which it failed.
	Nodes  int `json:"nodes"`
	Failed int `json:"failed"`
	// Since are the generations of the object in which it became the newest one.
	Since []int64 `json:"-"`
}

// Bytecode is what nodes loaded.
type Bytecode struct {
	v1alpha1.BpfProgramBytecode

	Nodes int `json:"nodes"`
}

// The maximum numbers of nodes with details, of maps, and of entries of the timeline.
const (
	maxDetailed = 200
	maxMaps     = 500
	maxEntries  = 100
	maxNodes    = 5 // of an entry
)

// ObjectOf returns the view of an object. nodes contains the BpfNodes that could be read: without them, sections of
// global variables aren't known.
func ObjectOf(page why.Page, facts why.Facts, nodes map[string]*v1alpha1.BpfNode, revisions []Revision, events []*Event, problems Problems) *Object {
	status := facts.Object.GetStatus()
	maps := objectmaps.List(facts.Reports, nodes)
	revisions = slices.Clone(revisions)
	running, failed := timeline.Count(facts.Object, marks(revisions), facts.Reports)
	for i := range revisions {
		revisions[i].Nodes, revisions[i].Failed = running[i], failed[i]
	}
	v := &Object{
		Nodes: []ObjectNode{}, Conditions: append([]metav1.Condition{}, status.Conditions...), Counts: status.Nodes, Rollout: status.Rollout,
		Revisions: append([]Revision{}, revisions...), Bytecode: bytecode(facts.Reports), Maps: append([]objectmaps.Map{}, maps[:min(len(maps), maxMaps)]...),
		MoreMaps: max(len(maps)-maxMaps, 0), Timeline: happened(facts, revisions, events), Programs: map[string][]uint32{}, Problems: problems,
	}
	for _, n := range page.Nodes {
		v.Nodes = append(v.Nodes, ObjectNode{n.Name, n.State})
		for _, p := range n.Programs {
			if p.ID != 0 {
				v.Programs[n.Name] = append(v.Programs[n.Name], p.ID)
			}
		}
	}
	page.Nodes = append([]why.Node{}, page.Nodes[:min(len(page.Nodes), maxDetailed)]...)
	v.Page = &page
	return v
}

// happened returns what happened to an object, the latest first.
func happened(facts why.Facts, revisions []Revision, events []*Event) []timeline.Occurrence {
	owner := v1alpha1.BpfNodeOwner{Kind: facts.Kind, Namespace: facts.Object.GetNamespace(), Name: facts.Object.GetName()}
	var own []timeline.Event
	for _, e := range events {
		if e.Owner == owner {
			own = append(own, timeline.Event{Time: metav1.NewTime(e.At), Reason: e.Reason, Message: e.Message, Warning: e.Warning, Count: e.Count})
		}
	}
	entries := timeline.Of(facts.Object, marks(revisions), facts.Reports, own)
	slices.Reverse(entries)
	shown := append([]timeline.Occurrence{}, entries[:min(len(entries), maxEntries)]...)
	for i := range shown {
		shown[i].Cut(maxNodes)
	}
	return shown
}

// marks returns the revisions as a timeline has them.
func marks(revisions []Revision) []timeline.Revision {
	var out []timeline.Revision
	for _, r := range revisions {
		mark := timeline.Revision{Number: r.Number, Created: r.Created, Since: r.Since}
		if r.Change != "" {
			mark.Changes = []string{r.Change}
		}
		out = append(out, mark)
	}
	return out
}

// bytecode groups what nodes loaded by digest, signers, and verdicts.
func bytecode(reports []v1alpha1.ProgramObject) []Bytecode {
	all := []Bytecode{}
	nodes := []map[string]bool{}
	for _, r := range reports {
		status := r.GetStatus()
		if status.Bytecode == nil {
			continue
		}
		i := slices.IndexFunc(all, func(b Bytecode) bool {
			return b.Digest == status.Bytecode.Digest && b.Image == status.Bytecode.Image &&
				slices.Equal(b.Signers, status.Bytecode.Signers) && slices.Equal(b.Policies, status.Bytecode.Policies)
		})
		if i < 0 {
			i = len(all)
			all, nodes = append(all, Bytecode{BpfProgramBytecode: *status.Bytecode}), append(nodes, map[string]bool{})
		}
		nodes[i][status.Node] = true
		all[i].Nodes = len(nodes[i])
	}
	return all
}

// Session is what a page gets for its token.
type Session struct {
	Key     string `json:"key"`
	Context string `json:"context"`
	Flags   string `json:"flags"`
	// Components is the namespace in which bpfman is installed. It is empty if this is the default.
	Components string `json:"components"`
	Version    string `json:"version"`
}

// Usage is what programs used in the last interval.
type Usage struct {
	// Nodes and Of count the nodes that were measured, and all nodes with an inspector.
	Nodes int `json:"nodes"`
	Of    int `json:"of"`
	// Problem says why some nodes aren't measured.
	Problem string `json:"problem,omitempty"`
	// Programs are the programs of a node by ID, or those of all nodes by the key of their row.
	Programs map[string]Used `json:"programs"`
}

// Used is what one program used, on all measured nodes.
type Used struct {
	// CPU is the percentage of one CPU.
	CPU float64 `json:"cpu"`
	// Runs is the number of runs per second.
	Runs float64 `json:"runs"`
	// PerRun is the average duration of a run in nanoseconds.
	PerRun float64 `json:"perRun"`
}

// Dump is the content of a map on a node.
type Dump struct {
	Node    string       `json:"node"`
	Map     *live.Map    `json:"map"`
	Entries []live.Entry `json:"entries"`
	End     live.End     `json:"end"`
	At      time.Time    `json:"at"`
}
