// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/bpfman/bpfman-operator/apis/shorten"
)

// volatile is what the words of bpfman v0.6.0 and of the kernel for one failure
// have of their own at each try: how long the verifier took, the number of a task
// that panicked, addresses in the kernel, file descriptors, ids of objects in the
// kernel; and which of several globals that don't fit is found first.
var volatile = regexp.MustCompile(strings.Join([]string{
	`verification time [0-9]+ usec`,
	`task [0-9]+ panicked`,
	`\b(0x)?ffff[0-9a-f]{12}\b`,
	`\b(fd|(prog|program|map|link|btf)[ _]id)[ =:]+[0-9]+`,
	`symbol with name .* not found in the symbols table`,
	"symbol .* has size `[0-9]+`, but provided data is of size `[0-9]+`",
}, "|"))

// sameFailure tells whether two texts, shortened perhaps, tell of the same failure:
// they are alike but for what is volatile and for the order of their words, as the
// daemon lists names in any.
func sameFailure(a, b string) bool {
	if a == b {
		return true
	}
	partsA, partsB := shorten.Parts(volatile.ReplaceAllString(a, "")), shorten.Parts(volatile.ReplaceAllString(b, ""))
	if len(partsA) != len(partsB) {
		return false
	}
	last := len(partsA) - 1
	if last == 0 {
		return slices.Equal(sortedWords(partsA[0]), sortedWords(partsB[0]))
	}
	for n := range partsA {
		if !sameAtCut(partsA[n], partsB[n], n > 0, n < last) {
			return false
		}
	}
	return true
}

// sameAtCut compares parts of two shortened texts, of which the start, the end or
// both are where something was left out. Where that is depends on the length of
// what is volatile, of which some words may be left out as well.
func sameAtCut(a, b string, cutStart, cutEnd bool) bool {
	const most = 3 // words of anything volatile
	shorter, longer := strings.Fields(a), strings.Fields(b)
	if len(shorter) > len(longer) {
		shorter, longer = longer, shorter
	}
	if cutStart {
		shorter = shorter[min(most, len(shorter)):]
	}
	if cutEnd {
		shorter = shorter[:max(0, len(shorter)-most)]
	}
	part, whole := strings.Join(shorter, " "), strings.Join(longer, " ")
	switch {
	case cutStart && cutEnd:
		return strings.Contains(whole, part)
	case cutStart:
		return strings.HasSuffix(whole, part)
	default:
		return strings.HasPrefix(whole, part)
	}
}

func sortedWords(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	slices.Sort(words)
	return words
}
