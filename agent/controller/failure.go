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
	headA, tailA, cutA := shorten.Parts(volatile.ReplaceAllString(a, ""))
	headB, tailB, cutB := shorten.Parts(volatile.ReplaceAllString(b, ""))
	if !cutA && !cutB {
		return slices.Equal(sortedWords(headA), sortedWords(headB))
	}
	// Where the middle was cut out depends on the length of what is volatile.
	return cutA && cutB && (strings.HasPrefix(headA, headB) || strings.HasPrefix(headB, headA)) &&
		(strings.HasSuffix(tailA, tailB) || strings.HasSuffix(tailB, tailA))
}

func sortedWords(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	slices.Sort(words)
	return words
}
