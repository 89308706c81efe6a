// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package hints

import "time"

// named are the kinds to name: those that are used, those that were until a while ago,
// and, of those that couldn't be read, which used doesn't tell of, the ones that are
// named already. Gone keeps when the ones in between were first seen without objects.
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

// adds tells whether a kind is named that wasn't.
func adds(want, published map[string]bool) bool {
	for kind := range want {
		if !published[kind] {
			return true
		}
	}
	return false
}

// next is when something that is named has been long enough, 0 for never.
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
