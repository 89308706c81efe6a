// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package hints is what the operator, which watches everything, publishes so that
// agents needn't: which kinds are used, and on which nodes somebody else than the
// agent has changed reports. It is one ConfigMap that every agent watches by name.
//
// An agent works without hints: it finds both out by itself, later. No hint makes
// an agent do more than read from the API server.
package hints

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// ConfigMapName is the name of the ConfigMap, in the namespace that bpfman runs in.
const ConfigMapName = "bpfman-hints"

// EveryNode stands for all nodes in [Hints.Relist]; no node has this name.
const EveryNode = "*"

// MaxNodes is how many nodes are named at most. Of more, EveryNode is.
const MaxNodes = 100

// Keys of the ConfigMap's data.
const (
	keyKinds  = "kinds"
	keyRelist = "relist"
)

// maxYear is beyond the times that can be written, in whichever time zone.
const maxYear = 9999

// Hints are the content of the ConfigMap.
type Hints struct {
	// Kinds are the user kinds that have objects, or had some a while ago.
	Kinds map[string]bool
	// Relist has the nodes whose agents are to list their reports again, by the value
	// of the reports' node label, and when that was found to be necessary. An agent
	// acts when its node's time changes, so only equality matters to it.
	Relist map[string]time.Time
}

// Data returns the content of the ConfigMap: a line for each kind, and a line for
// each node with its time. Equal hints have equal data.
func (h Hints) Data() map[string]string {
	nodes := h.Relist
	if len(nodes) > MaxNodes {
		newest := time.Time{}
		for _, at := range nodes {
			if at.After(newest) {
				newest = at
			}
		}
		nodes = map[string]time.Time{EveryNode: newest}
	}
	var lines []string
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		lines = append(lines, node+" "+nodes[node].UTC().Format(time.RFC3339Nano))
	}
	return map[string]string{
		keyKinds:  strings.Join(slices.Sorted(maps.Keys(h.Kinds)), "\n"),
		keyRelist: strings.Join(lines, "\n"),
	}
}

// Parse reads the content of the ConfigMap. It ignores what it doesn't understand:
// a newer operator may say more, and nobody's edit may do harm.
func Parse(data map[string]string) Hints {
	h := Hints{Kinds: map[string]bool{}, Relist: map[string]time.Time{}}
	for word := range strings.FieldsSeq(data[keyKinds]) {
		if slices.ContainsFunc(v1alpha1.UserKinds, func(k v1alpha1.Kind[v1alpha1.UserObject]) bool { return k.Name == word }) {
			h.Kinds[word] = true
		}
	}
	for line := range strings.Lines(data[keyRelist]) {
		node, word, _ := strings.Cut(strings.TrimSpace(line), " ")
		if at, err := time.Parse(time.RFC3339Nano, word); err == nil && node != "" && at.Unix() > 0 && at.Year() < maxYear {
			h.Relist[node] = at
		}
	}
	return h
}

// For returns when the agent of a node was last asked to list its reports again, by
// the value of the reports' node label, and whether all agents were. The time is
// zero if it wasn't asked.
func (h Hints) For(node string) (at time.Time, everyNode bool) {
	at = h.Relist[node]
	if all := h.Relist[EveryNode]; all.After(at) {
		return all, true
	}
	return at, false
}
