// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package shrink shortens random sequences that break something, for tests that print them.
package shrink

import "slices"

// Sequence returns a part of a sequence that still fails, without any element that isn't needed for that. It tries halves first,
// then ever smaller parts, because each try can take long. fails has to be true for the whole sequence.
func Sequence[T any](sequence []T, fails func([]T) bool) []T {
	size := (len(sequence) + 1) / 2
	for size > 0 {
		less := without(sequence, size, fails)
		if size > 1 || len(less) == len(sequence) {
			size /= 2
		}
		sequence = less
	}
	return sequence
}

// without leaves out parts of a size that aren't needed. It begins at the end, because what is there depends on what is before.
func without[T any](sequence []T, size int, fails func([]T) bool) []T {
	for end := len(sequence); end > 0; end -= size {
		less := slices.Concat(sequence[:max(0, end-size)], sequence[end:])
		if fails(less) {
			sequence = less
		}
	}
	return sequence
}
