// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package why

import (
	"fmt"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// keepsRunning is what a message about a failed Load says if the program of the previous revision still runs. Older agents don't
// report status.previous.
const keepsRunning = "the previously loaded program "

// summary says which revision of an object runs on how many nodes, and why it doesn't run on others.
func summary(f Facts, page Page) string {
	newest := "the newest revision"
	if r := f.Object.GetStatus().Revision; r != nil {
		newest = fmt.Sprintf("revision %d", r.Number)
	}
	count, kept, failure := map[State]int{}, 0, ""
	for i := range page.Nodes {
		n := &page.Nodes[i]
		count[n.State]++
		if n.State != Failed {
			continue
		}
		if failure == "" {
			failure, _, _ = strings.Cut(n.Reason(), " ("+keepsRunning) // which is said for all nodes
		}
		for _, p := range n.Programs {
			if p.Previous {
				kept++
				break
			}
		}
	}
	nodes := len(page.Nodes) - count[Left]
	var parts []string
	say := func(n int, format string, args ...any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	say(count[Attached], "%s runs on %d of %s", newest, count[Attached], counted(nodes, "node"))
	say(kept, "the previous revision runs on %s", counted(kept, "node"))
	say(count[Failed], "%s fails on %d of %s: %s", newest, count[Failed], counted(nodes, "node"), failure)
	r := f.Object.GetStatus().Rollout
	if r == nil || page.Object.Stale {
		r = &v1alpha1.RolloutStatus{} // it is about an earlier change
	}
	if r.Previous != nil {
		say(count[RollingOut], "revision %d runs on %d of %s, held back by the rollout", r.Previous.Revision, count[RollingOut], counted(nodes, "node"))
	} else {
		say(count[RollingOut], "%s held back by the rollout", are(count[RollingOut]))
	}
	if r.State.Stalled() {
		parts = append(parts, fmt.Sprintf("the rollout of revision %d %s: %s", r.Revision, howItGoes[r.State], shortly(r.Message, failure)))
	}
	say(count[NotReported], "%s not reported yet", have(count[NotReported]))
	say(count[NoAgent], "%s without an agent", are(count[NoAgent]))
	say(count[Outdated], "%s not processed the last change yet", have(count[Outdated]))
	say(count[Idle], "%s has nothing to attach to on %s", newest, counted(count[Idle], "node"))
	if len(parts) == 0 {
		return "It runs nowhere: no node is selected"
	}
	text := strings.Join(parts, "; ")
	return strings.ToUpper(text[:1]) + text[1:]
}

// shortly returns what explains a rollout, without a failure that is said already.
func shortly(message, failure string) string {
	if failure != "" {
		message = strings.ReplaceAll(message, failure, "see above")
	}
	return message
}

// are and have begin a sentence about nodes.
func are(n int) string {
	if n == 1 {
		return "1 node is"
	}
	return fmt.Sprintf("%d nodes are", n)
}

func have(n int) string {
	if n == 1 {
		return "1 node has"
	}
	return fmt.Sprintf("%d nodes have", n)
}

// todo returns the first thing to do: what concerns the worst nodes, and what the page says otherwise.
func todo(page Page) string {
	for i := range page.Nodes {
		if n := &page.Nodes[i]; len(n.Remedies) > 0 {
			return n.Remedies[0]
		}
	}
	if (len(page.Nodes) == 0 || page.Object.State == Failed) && page.Object.Message != "" {
		return solution(page.Object.Problem, page.Object.Status, page.Object.Message)
	}
	return ""
}

// firstLine returns the first line of a message, which has the cause.
func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
