// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package hints defines the ConfigMap in which the operator, which watches everything,
// publishes what agents would otherwise have to watch themselves: which kinds are in
// use, and on which nodes someone other than the agent changed reports. Every agent
// watches this one ConfigMap by name.
//
// An agent also works without hints: it then discovers both later. Hints only make an
// agent read from the API server.
package hints

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// ConfigMapName is the name of the ConfigMap, in the namespace where bpfman runs.
const ConfigMapName = "bpfman-hints"

// EveryNode stands for all nodes in [Hints.Relist]. It isn't a valid name of a node.
const EveryNode = "*"

// MaxNodes is the maximum number of nodes that the ConfigMap names. If there are more,
// it names EveryNode instead.
const MaxNodes = 100

// Keys of the ConfigMap's data.
const (
	keyKinds  = "kinds"
	keyRelist = "relist"
)

// maxYear limits times in Relist. A later time might not be representable in RFC 3339,
// depending on the time zone.
const maxYear = 9999

// Hints are the content of the ConfigMap.
type Hints struct {
	// Kinds are the kinds that users write and that have objects, or had objects
	// recently.
	Kinds map[string]bool
	// Relist contains the nodes whose agents must list their reports again, by the value
	// of the reports' node label, with the time when the operator noticed. An agent
	// lists its reports when the time of its node changes. It compares times only for
	// equality.
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

// Parse reads the content of the ConfigMap. It ignores what it doesn't understand, so
// that agents accept the ConfigMap of a newer operator and survive edits by users.
func Parse(data map[string]string) Hints {
	h := Hints{Kinds: map[string]bool{}, Relist: map[string]time.Time{}}
	for word := range strings.FieldsSeq(data[keyKinds]) {
		known := slices.ContainsFunc(v1alpha1.UserKinds, func(k v1alpha1.Kind[v1alpha1.UserObject]) bool { return k.Name == word })
		if known || word == v1alpha1.RolloutPolicyKind.Name {
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

// For returns the time of the last request to the agent of a node to list its reports
// again, by the value of the reports' node label, and whether that request was to all
// agents. The time is zero if there was no request.
func (h Hints) For(node string) (at time.Time, everyNode bool) {
	at = h.Relist[node]
	if all := h.Relist[EveryNode]; all.After(at) {
		return all, true
	}
	return at, false
}
