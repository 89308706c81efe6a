// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package why

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Problems returns the problems of the components, with their solutions: an operator that doesn't run, without which
// nothing else is known, and what the operator found about the node components.
func Problems(c cluster.Components) []string {
	var problems []string
	if c.Operators != nil && !runs(c.Operators) {
		problems = append(problems, "no pod of the operator is ready, so the status of objects isn't updated, and neither are the node components. To do: run kubectl -n "+
			c.Namespace+" describe deployment bpfman-operator, and see its replicas, its Events, and those of its pods")
	}
	for line := range strings.Lines(c.Found) {
		found := strings.TrimSpace(line)
		named, rest, _ := strings.Cut(found, ": ")
		if todo := problem.ToDo(problem.Reason(named)); todo != "" {
			found = rest + ". To do: " + todo
		}
		problems = append(problems, found)
	}
	return problems
}

func runs(pods []corev1.Pod) bool {
	for i := range pods {
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
}
