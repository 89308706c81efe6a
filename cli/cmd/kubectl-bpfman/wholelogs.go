// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inspectors"
)

// completeLogs replaces the messages of reports that were shortened with the whole ones, which the nodes have. Messages that are
// the same on several nodes come from one of them. It returns what it couldn't replace.
func completeLogs(ctx context.Context, c *cluster.Cluster, namespace string, owner v1alpha1.BpfNodeOwner, reports []v1alpha1.ProgramObject) error {
	nodes := map[string]string{} // by cause
	for _, message := range shortened(reports) {
		if cause := causeOf(*message.text); nodes[cause] == "" || message.node < nodes[cause] {
			nodes[cause] = message.node
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	found, err := inspectors.Find(ctx, c, namespace)
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range slices.Compact(slices.Sorted(maps.Values(nodes))) {
		asked, err := found.On(node)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		texts, err := inspectors.AskLogs(ctx, asked[0], owner)
		errs = append(errs, err)
		for _, text := range texts {
			replaceShortened(reports, text)
		}
	}
	if left := shortened(reports); len(left) > 0 {
		errs = append(errs, fmt.Errorf("node %s doesn't have all of them: the agent writes them when it tries again, and they take 32 MiB of the node's disk at most", left[0].node))
	}
	return errors.Join(errs...)
}

// message is the message of a condition on a node.
type message struct {
	node string
	text *string
}

// shortened returns the messages in reports that were shortened.
func shortened(reports []v1alpha1.ProgramObject) []message {
	var all []message
	for _, report := range reports {
		status := report.GetStatus()
		for i := range status.Conditions {
			if text := &status.Conditions[i].Message; shorten.Shortened(*text) {
				all = append(all, message{status.Node, text})
			}
		}
	}
	return all
}

// replaceShortened replaces the shortened messages that have the same cause as a text. What the message adds to the cause stays.
func replaceShortened(reports []v1alpha1.ProgramObject, text string) {
	cause, log, _ := strings.Cut(text, "\n")
	for _, message := range shortened(reports) {
		if first := causeOf(*message.text); strings.HasPrefix(first, cause) {
			*message.text = first + "\n" + log
		}
	}
}

func causeOf(message string) string {
	cause, _, _ := strings.Cut(message, "\n")
	return cause
}
