// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package history plays histories of a simulated cluster: operations of users, which are those of the chaos test, and faults,
// each at an event. It checks invariants at each write of the API server, at each call of a daemon, and at rest. A history that
// breaks an invariant is shortened, and kept as a recording. See docs/development.md.
package history

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/tests/chaos"
)

// Plan is a history to play. The order of goroutines isn't a part of it, so a plan that breaks an invariant may not do so each
// time.
type Plan struct {
	// Story says what the recording is about.
	Story string `json:"story,omitempty"`
	// Seed is the seed of the latencies.
	Seed uint64 `json:"seed"`
	// Nodes and Operators are the numbers of nodes and replicas of the operator.
	Nodes     int `json:"nodes"`
	Operators int `json:"operators"`
	// Alone means that the operators have no leader election, so that all of them work at the same time.
	Alone bool `json:"alone,omitempty"`
	// Images means that objects have their bytecode in images, and not in files.
	Images bool `json:"images,omitempty"`
	// Latency is the longest time that a request takes. The zero value is that of a fast network.
	Latency metav1.Duration `json:"latency,omitzero"`
	Steps   []Step          `json:"steps"`
}

// Step is an operation of a user, a fault, or a rest. The next step doesn't wait for a fault.
type Step struct {
	// Says is the step in words. It is written for readers, and not read.
	Says string `json:"says,omitempty"`
	// Operation is one of the chaos test. If it is Settled, the faults end after a while, and the cluster comes to
	// rest.
	Operation *chaos.Step `json:"operation,omitempty"`
	Fault     *Fault      `json:"fault,omitempty"`
	// At is the event at which the step happens. Without it, the step happens when the one before is done.
	At *Address `json:"at,omitempty"`
}

func (p Plan) String() string {
	lines := []string{fmt.Sprintf("%d nodes, %d operators, alone: %t, latency %s", p.Nodes, p.Operators, p.Alone, p.Latency.Duration)}
	for _, s := range p.Steps {
		lines = append(lines, "  "+s.String())
	}
	return strings.Join(lines, "\n")
}

// has reports whether there is a step with these words.
func (p Plan) has(words string) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return strings.Contains(s.String(), words) })
}

// Fault is a fault of the kind with that name in [Faults].
type Fault struct {
	Kind string `json:"kind"`
	// Target is a component, such as agent/n1, or a node. At an event, it is the one whose event it is.
	Target string `json:"target,omitempty"`
	// For is how long the fault lasts. For a crash, it is the time until the next start.
	For metav1.Duration `json:"for,omitzero"`

	// server means that it is of the API server, with any target.
	server bool
}

// of returns what the fault is of: a node with its agent, an operator, or the API server, which is "".
func (f Fault) of() string {
	if f.server {
		return ""
	}
	return f.Target[strings.LastIndex(f.Target, "/")+1:]
}

func (s Step) String() string {
	var text string
	switch {
	case s.Fault != nil:
		text = s.Fault.Kind
		if s.Fault.Target != "" {
			text += " of " + s.Fault.Target
		}
		if d := s.Fault.For.Duration; d > 0 {
			text += ", for " + d.String()
		}
	case s.Operation.Settled:
		text = "the faults end, and the cluster comes to rest"
		if s.Operation.After > 0 {
			text += " after " + milliseconds(s.Operation.After).String()
		}
	default:
		text = wordsOf(s.Operation)
	}
	if s.At != nil {
		text += ", " + s.At.String()
	}
	return text
}

func wordsOf(s *chaos.Step) string {
	words := []string{"a user: " + s.Do}
	if o := s.Object; o != nil {
		words = append(words, o.Kind, o.Name)
	}
	if s.Pod != nil {
		words = append(words, s.Pod.Name, "on", s.Pod.Node)
	}
	for _, word := range []string{s.Target, s.Value} {
		if word != "" {
			words = append(words, word)
		}
	}
	if s.Node != "" {
		words = append(words, "on", s.Node)
	}
	if s.After > 0 {
		words = append(words, "after", milliseconds(s.After).String())
	}
	return strings.Join(words, " ")
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// Save writes a recording.
func (p Plan) Save(file string) error {
	for i := range p.Steps {
		p.Steps[i].Says = p.Steps[i].String()
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode a plan: %w", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // it is committed
		return fmt.Errorf("write a recording: %w", err)
	}
	return nil
}

// Load reads a recording.
func Load(file string) (p Plan, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return p, fmt.Errorf("read a recording: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		return p, fmt.Errorf("read the recording %s: %w", file, err)
	}
	return p, nil
}
