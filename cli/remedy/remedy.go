// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package remedy provides the solutions for the problems that bpfman reports. They come from the tables of internal/problem.
package remedy

import (
	"cmp"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// For returns the solution for the problem that a status names, or else for the reason of its condition, or for a type of
// conflict. It returns an empty string if no solution is known: earlier versions of bpfman name no problem, and later ones can
// name one that this version doesn't know.
func For(named, reason string) string {
	return cmp.Or(problem.ToDo(problem.Reason(named)), ofCondition(reason), ofConflict(reason))
}
