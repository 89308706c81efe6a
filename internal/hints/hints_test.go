// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package hints

import (
	"fmt"
	"maps"
	"testing"
	"time"
)

func TestDataIsParsed(t *testing.T) {
	one, two := time.Unix(1, 5), time.Unix(2, 0)
	many := map[string]time.Time{}
	for n := range MaxNodes + 1 {
		many[fmt.Sprintf("node-%d", n)] = time.Unix(int64(n), 0)
	}
	for name, test := range map[string]struct {
		hints  Hints
		node   string
		at     time.Time
		every  bool
		relist int
	}{
		"none":            {node: "a"},
		"kinds":           {hints: Hints{Kinds: map[string]bool{"XdpProgram": true, "TcxProgram": true}}, node: "a"},
		"this node":       {hints: Hints{Relist: map[string]time.Time{"a": one, "b": two}}, node: "a", at: one, relist: 2},
		"another node":    {hints: Hints{Relist: map[string]time.Time{"b": two}}, node: "a", relist: 1},
		"every node":      {hints: Hints{Relist: map[string]time.Time{EveryNode: two, "a": one}}, node: "a", at: two, every: true, relist: 2},
		"after all nodes": {hints: Hints{Relist: map[string]time.Time{EveryNode: one, "a": two}}, node: "a", at: two, relist: 2},
		"too many nodes":  {hints: Hints{Relist: many}, node: "a", at: time.Unix(MaxNodes, 0), every: true, relist: 1},
	} {
		t.Run(name, func(t *testing.T) {
			parsed := Parse(test.hints.Data())
			at, every := parsed.For(test.node)
			if !at.Equal(test.at) || every != test.every || len(parsed.Relist) != test.relist || !maps.Equal(parsed.Kinds, orEmpty(test.hints.Kinds)) {
				t.Errorf("%v at %v, for every node %v", parsed, at, every)
			}
			if again := parsed.Data(); !maps.Equal(again, Parse(again).Data()) {
				t.Errorf("%v isn't stable", again)
			}
		})
	}
}

func orEmpty(m map[string]bool) map[string]bool {
	if m == nil {
		return map[string]bool{}
	}
	return m
}

// For any content, the result only contains known kinds, and times.
func FuzzParse(f *testing.F) {
	f.Add("XdpProgram\nNoKind", "a 2026-11-22T10:00:00Z\nb\n 3\n* never")
	f.Fuzz(func(t *testing.T, kinds, relist string) {
		parsed := Parse(map[string]string{keyKinds: kinds, keyRelist: relist})
		for kind := range parsed.Kinds {
			if Parse(map[string]string{keyKinds: kind}).Kinds[kind] != true {
				t.Errorf("%q is no kind", kind)
			}
		}
		again := Parse(parsed.Data())
		if len(parsed.Relist) <= MaxNodes && len(again.Relist) != len(parsed.Relist) {
			t.Errorf("%v became %v", parsed.Relist, again.Relist)
		}
	})
}
