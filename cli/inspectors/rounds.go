// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspectors

import "sync"

// Rounds puts the answers of several inspectors together. A round is over when each of them has answered, or has ended.
type Rounds[Answer any] struct {
	// Asked is the number of inspectors.
	Asked int
	// Show gets the last answers of a round, by node, and why inspectors have ended. After all of them have, it gets no
	// answers.
	Show func(answers map[string]Answer, ended map[string]error) error

	mu      sync.Mutex
	answers map[string]Answer
	ended   map[string]error
}

// Answered handles an answer of a node.
func (r *Rounds[Answer]) Answered(node string, answer Answer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil {
		r.answers = map[string]Answer{}
	}
	r.answers[node] = answer
	delete(r.ended, node) // it answers again
	return r.show()
}

// Ended handles the end of a node's answers. The others don't wait for it.
func (r *Rounds[Answer]) Ended(node string, why error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = map[string]error{}
	}
	r.ended[node] = why
	if err := r.show(); err != nil || len(r.ended) < r.Asked {
		return err
	}
	return r.Show(nil, r.ended)
}

func (r *Rounds[Answer]) show() error {
	awaited := r.Asked - len(r.ended)
	for node := range r.answers {
		if _, ended := r.ended[node]; !ended {
			awaited--
		}
	}
	if awaited > 0 || len(r.answers) == 0 {
		return nil
	}
	answers := r.answers
	r.answers = nil
	return r.Show(answers, r.ended)
}
