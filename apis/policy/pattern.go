// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"regexp"
	"slices"
	"strings"
)

// glob compiles a pattern in which each of the wildcards stands for what its
// expression matches, the earlier wildcard first, and all else for itself.
func glob(pattern string, wildcards ...wildcard) *regexp.Regexp {
	var out strings.Builder
	out.WriteString(`(?s)\A`)
	for pattern != "" {
		i := slices.IndexFunc(wildcards, func(w wildcard) bool { return strings.HasPrefix(pattern, w.text) })
		if i >= 0 {
			out.WriteString(wildcards[i].expression)
			pattern = pattern[len(wildcards[i].text):]
			continue
		}
		plain := len(pattern)
		if next := strings.IndexByte(pattern, '*'); next >= 0 {
			plain = next
		}
		out.WriteString(regexp.QuoteMeta(pattern[:plain]))
		pattern = pattern[plain:]
	}
	out.WriteString(`\z`)
	// Quoted text and these expressions always compile.
	return regexp.MustCompile(out.String())
}

type wildcard struct{ text, expression string }

var (
	anything = wildcard{"*", ".*"}
	segment  = wildcard{"*", "[^/]*"}
	segments = wildcard{"**", ".*"}
)

// names are patterns of names, in which "*" stands for any characters.
type names []*regexp.Regexp

func compileNames(patterns []string) names {
	out := make(names, 0, len(patterns))
	for _, p := range patterns {
		out = append(out, glob(p, anything))
	}
	return out
}

func (n names) match(name string) bool {
	return slices.ContainsFunc(n, func(e *regexp.Regexp) bool { return e.MatchString(name) })
}

// everything is the pattern of all images and all files.
const everything = "**"

// imagePattern is a pattern of images, or of files.
type imagePattern struct {
	text        string
	repository  *regexp.Regexp
	tag, digest *regexp.Regexp // nil where the pattern has none
}

// compileImage reads a pattern. What is behind an "@" is for the digest, what is
// behind a ":" in the last part of the path for the tag. A file's path is taken
// as it is.
func compileImage(pattern string) imagePattern {
	p := imagePattern{text: pattern}
	if !strings.HasPrefix(pattern, filePrefix) {
		if name, digest, found := strings.Cut(pattern, "@"); found {
			pattern, p.digest = name, glob(digest, segment)
		}
		if colon := strings.LastIndexByte(pattern, ':'); colon > strings.LastIndexByte(pattern, '/') {
			p.tag = glob(pattern[colon+1:], segment)
			pattern = pattern[:colon]
		}
	}
	p.repository = glob(pattern, segments, segment)
	return p
}

func (p imagePattern) match(i Image) bool {
	if p.text == everything {
		return true
	}
	return i.IsFile() == strings.HasPrefix(p.text, filePrefix) && p.repository.MatchString(i.Repository) &&
		(p.tag == nil || p.tag.MatchString(i.Tag) && i.Tag != "") &&
		(p.digest == nil || p.digest.MatchString(i.Digest) && i.Digest != "")
}
