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

// volatile matches the parts of error messages of bpfman v0.6.0 and the kernel that
// differ between retries of the same failure: the verifier's time, the number of a task
// that panicked, kernel addresses, file descriptors, and IDs of kernel objects. If
// several globals don't fit, it also differs which one is reported.
var volatile = regexp.MustCompile(strings.Join([]string{
	`verification time [0-9]+ usec`,
	`task [0-9]+ panicked`,
	`\b(0x)?ffff[0-9a-f]{12}\b`,
	`\b(fd|(prog|program|map|link|btf)[ _]id)[ =:]+[0-9]+`,
	`symbol with name .* not found in the symbols table`,
	"symbol .* has size `[0-9]+`, but provided data is of size `[0-9]+`",
}, "|"))

// sameFailure reports whether two messages, possibly shortened, are about the same
// failure. That is so if they only differ in volatile parts and in the order of words,
// because the daemon lists names in random order.
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

// sameAtCut compares parts of two shortened texts that were cut at their start, their
// end, or both. The position of a cut depends on the length of volatile parts, and a
// cut can be inside one.
func sameAtCut(a, b string, cutStart, cutEnd bool) bool {
	const most = 3 // words of a volatile part
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
