// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package status

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// A node is selected if a selector of Kubernetes selects it.
func TestSelectorIsThatOfKubernetes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(of ...string) string { return of[random.IntN(len(of))] }
	selected := 0
	for range 20000 {
		of := metav1.LabelSelector{}
		if random.IntN(2) == 0 {
			of.MatchLabels = map[string]string{word("a", "b"): word("1", "2")}
		}
		for range random.IntN(4) {
			e := metav1.LabelSelectorRequirement{Key: word("a", "b", "c"), Operator: metav1.LabelSelectorOperator(word("In", "NotIn", "Exists", "DoesNotExist"))}
			if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
				for range 1 + random.IntN(3) {
					e.Values = append(e.Values, word("1", "2", "3", ""))
				}
			}
			of.MatchExpressions = append(of.MatchExpressions, e)
		}
		node := labels.Set{}
		for range random.IntN(4) {
			node[word("a", "b", "c", "d")] = word("1", "2", "")
		}
		theirs, err := metav1.LabelSelectorAsSelector(&of)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := newSelector(&of)
		if err != nil {
			t.Fatal(err)
		}
		if want := theirs.Matches(node); ours.matches(node) != want {
			t.Fatalf("%s selects %v: %v", theirs, node, !want)
		} else if want {
			selected++
		}
	}
	if selected < 2000 {
		t.Errorf("only %d nodes are selected", selected)
	}
}

// What a node costs doesn't depend on what a user writes.
func TestSelectorWithManyRequirements(t *testing.T) {
	fastest := func(values int) time.Duration {
		e := metav1.LabelSelectorRequirement{Key: "os", Operator: metav1.LabelSelectorOpNotIn}
		of := metav1.LabelSelector{}
		for i := range values {
			e.Values = append(e.Values, fmt.Sprint(i))
			of.MatchExpressions = append(of.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprint("k", i), Operator: metav1.LabelSelectorOpDoesNotExist})
		}
		of.MatchExpressions = append(of.MatchExpressions, e)
		s, err := newSelector(&of)
		if err != nil {
			t.Fatal(err)
		}
		best := time.Hour
		for range 50 {
			began := time.Now()
			for range 100 {
				if !s.matches(labels.Set{"os": "linux", "arch": "amd64"}) {
					t.Fatal("it isn't selected")
				}
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	// A labels.Selector takes ten thousand times as long.
	if few, many := fastest(1), fastest(20_000); many > 100*few {
		t.Errorf("a node takes %s, and %s with few requirements", many/100, few/100)
	}
}

// An object's selector is compiled once for a generation, and not for each event.
func TestSelectorIsCompiledOnce(t *testing.T) {
	o := &v1alpha1.XdpNsProgram{}
	o.Generation = 1
	before := ownerOf("XdpNsProgram", o, Owner{})
	if after := ownerOf("XdpNsProgram", o, before); before.Selector == nil || after.Selector != before.Selector {
		t.Error("it is compiled again")
	}
	o.Generation = 2
	if after := ownerOf("XdpNsProgram", o, before); after.Selector == nil || after.Selector == before.Selector {
		t.Error("it is that of the former generation")
	}
	o.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}
	invalid := ownerOf("XdpNsProgram", o, Owner{})
	if again := ownerOf("XdpNsProgram", o, invalid); invalid.Invalid == "" || again.Invalid != invalid.Invalid || again.Selector != nil {
		t.Errorf("%q, and then %q", invalid.Invalid, again.Invalid)
	}
	// What was known while the object couldn't be decoded says nothing.
	if after := ownerOf("XdpNsProgram", &v1alpha1.XdpNsProgram{ObjectMeta: metav1.ObjectMeta{Generation: 1}}, Owner{Generation: 1, Undecodable: "x"}); after.Selector == nil {
		t.Error("no selector")
	}
}
