// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package shorten makes texts fit into fields with a length limit. The operator and the agent use it for
// conditions and Events.
package shorten

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Middle shortens text to at most limit bytes. limit must be at least 128. Middle replaces the middle of the text
// with the number of omitted bytes, because an error begins with what was attempted and ends, after the kernel's
// log, with the verdict. It can shorten a text that was shortened before: the number then counts the bytes of the
// original.
//
// It cuts between words or lines, unless a word is at least half as long as the part that it keeps. It never cuts
// within a character.
func Middle(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	keep := limit - len(mark(maxLeft))
	// The end gets more space, because the verifier's statistics follow the verdict.
	end := headEnd(text, keep*2/5)
	start := tailStart(text, len(text)-(keep-keep*2/5))
	left := 0
	for _, at := range marked.FindAllStringSubmatchIndex(text, -1) {
		if at[0] >= start || at[1] <= end {
			continue
		}
		end, start = min(end, at[0]), max(start, at[1])
		before, _ := strconv.Atoi(text[at[2]:at[3]]) // the expression matches only digits
		left += before - (at[1] - at[0])
	}
	return text[:end] + mark(min(left+start-end, maxLeft)) + text[start:]
}

// maxLeft is the largest number of omitted bytes that a mark can show.
const maxLeft = 999_999_999

var marked = regexp.MustCompile(` … \(([0-9]{1,9}) bytes left out\) … `)

// Shortened reports whether a text was shortened.
func Shortened(text string) bool { return marked.MatchString(text) }

func mark(left int) string { return fmt.Sprintf(" … (%d bytes left out) … ", left) }

// headEnd returns the index where the head of the text ends, which has at most n bytes.
func headEnd(text string, n int) int {
	if end := strings.LastIndexAny(text[:n], " \n"); end >= n/2 {
		return end
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// tailStart returns the index where the tail of the text starts, which is n or greater.
func tailStart(text string, n int) int {
	if start := strings.IndexAny(text[n:], " \n"); start >= 0 && start < (len(text)-n)/2 {
		return n + start + 1
	}
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n++
	}
	return n
}
