// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package findings

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/bytecode/signature"
)

const (
	// maxReasons is the maximum number of reasons in a message. The others are counted.
	maxReasons = 3
	// maxReason is the maximum length of a reason, in bytes, because it can contain text
	// from an attacker.
	maxReason = 300
)

// reason returns why there is no valid signature.
func (w *wanted) reason(cut bool) string {
	what := "signature"
	if w.predicate != signature.PredicateType {
		what = "attestation"
	}
	found := 0
	for _, n := range w.refused {
		found += n
	}
	var b strings.Builder
	switch {
	case found == 0 && what == "attestation":
		fmt.Fprintf(&b, "no attestation of type %s was found", w.predicate)
	case found == 0:
		b.WriteString("no signature was found")
	case found == 1:
		fmt.Fprintf(&b, "the only %s that was found is ", what)
		b.WriteString(shown(slices.Collect(maps.Keys(w.refused))[0]))
	default:
		fmt.Fprintf(&b, "none of the %d %ss that were found is valid: ", found, what)
		b.WriteString(w.listed())
	}
	if cut {
		fmt.Fprintf(&b, "; only the first %d are checked", maxListed)
	}
	return b.String()
}

// listed returns the reasons, the most frequent first.
func (w *wanted) listed() string {
	reasons := slices.SortedFunc(maps.Keys(w.refused), func(a, b string) int {
		return cmp.Or(cmp.Compare(w.refused[b], w.refused[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, r := range reasons[:min(len(reasons), maxReasons)] {
		parts = append(parts, fmt.Sprintf("%d %s", w.refused[r], shown(r)))
	}
	if more := len(reasons) - maxReasons; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d other reasons", more))
	}
	return strings.Join(parts, ", ")
}

func shown(reason string) string { return plain.Truncate(reason, maxReason) }
