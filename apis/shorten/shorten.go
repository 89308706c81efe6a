// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package shorten makes texts fit where their length is limited. The operator and the agent use it for conditions and
// Events.
package shorten

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Middle shortens text to at most limit bytes, which must be at least 128. It leaves out the middle and says in its
// place how many bytes that are: an error begins with what was attempted and ends, behind the kernel's log, with the
// verdict. What was shortened before can be shortened again: the count is then of the original.
//
// It cuts between words or lines, unless one is as long as half of what is kept on its side, and never within a
// character.
func Middle(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	keep := limit - len(mark(maxLeft))
	// The end gets more: behind the verdict are the verifier's statistics.
	end := headEnd(text, keep*2/5)
	start := tailStart(text, len(text)-(keep-keep*2/5))
	left := 0
	for _, at := range marked.FindAllStringSubmatchIndex(text, -1) {
		if at[0] >= start || at[1] <= end {
			continue
		}
		end, start = min(end, at[0]), max(start, at[1])
		before, _ := strconv.Atoi(text[at[2]:at[3]]) // the expression takes nothing else
		left += before - (at[1] - at[0])
	}
	return text[:end] + mark(min(left+start-end, maxLeft)) + text[start:]
}

// Parts returns what is left of a text, which Middle may have shortened: the text itself, or what is before and behind
// each mark.
func Parts(text string) []string {
	return marked.Split(text, -1)
}

// maxLeft is the most that a mark says was left out.
const maxLeft = 999_999_999

var marked = regexp.MustCompile(` … \(([0-9]{1,9}) bytes left out\) … `)

func mark(left int) string { return fmt.Sprintf(" … (%d bytes left out) … ", left) }

// headEnd is where the text's head ends, which has at most n bytes.
func headEnd(text string, n int) int {
	if end := strings.LastIndexAny(text[:n], " \n"); end >= n/2 {
		return end
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// tailStart is where the text's tail starts, at byte n or behind it.
func tailStart(text string, n int) int {
	if start := strings.IndexAny(text[n:], " \n"); start >= 0 && start < (len(text)-n)/2 {
		return n + start + 1
	}
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n++
	}
	return n
}
