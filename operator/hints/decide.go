// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package hints

import "time"

// named returns the kinds to publish. These are the kinds that are in use, and those
// that were in use recently. If a kind couldn't be read, it has no key in used, and is
// published if it already was. gone contains the time since when a published kind has no
// objects.
func named(used, published map[string]bool, gone map[string]time.Time, now time.Time) map[string]bool {
	named := map[string]bool{}
	for kind := range published {
		if _, read := used[kind]; !read {
			named[kind] = true
		}
	}
	for kind, isUsed := range used {
		since, waits := gone[kind]
		switch {
		case isUsed:
			named[kind] = true
			delete(gone, kind)
		case !published[kind]:
			delete(gone, kind)
		case !waits:
			named[kind] = true
			gone[kind] = now
		case now.Sub(since) < unusedAfter:
			named[kind] = true
		}
	}
	return named
}

// adds reports whether want contains a kind that isn't published.
func adds(want, published map[string]bool) bool {
	for kind := range want {
		if !published[kind] {
			return true
		}
	}
	return false
}

// next returns the time until something published expires, or 0 if nothing does.
func next(gone, relist map[string]time.Time, now time.Time) time.Duration {
	first := time.Duration(0)
	due := func(at time.Time) {
		if wait := max(at.Sub(now), time.Second); first == 0 || wait < first {
			first = wait
		}
	}
	for _, since := range gone {
		due(since.Add(unusedAfter))
	}
	for _, since := range relist {
		due(since.Add(relistFor))
	}
	return first
}
