// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"regexp"
	"slices"
	"strings"
)

// glob converts a pattern to a regular expression. Each wildcard becomes its expression;
// an earlier wildcard takes precedence. All other characters match themselves.
func glob(pattern string, wildcards ...wildcard) string {
	pattern = strings.ToValidUTF8(pattern, "\uFFFD") // other text doesn't compile
	var out strings.Builder
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
	return out.String()
}

type wildcard struct{ text, expression string }

// whole compiles an expression that matches whole texts. Quoted text and the expressions
// of wildcards always compile.
func whole(expression string) *regexp.Regexp { return regexp.MustCompile(`(?s)\A` + expression + `\z`) }

// names are patterns for names, in which "*" matches any characters.
type names []*regexp.Regexp

func compileNames(patterns []string) names { return compileWith(".*", patterns) }

// compileFunctions compiles patterns for kernel functions, in which "*" doesn't match a colon.
// In module:function, it separates the module, which can begin like an allowed function.
func compileFunctions(patterns []string) names { return compileWith("[^:]*", patterns) }

func compileWith(expression string, patterns []string) names {
	out := make(names, 0, len(patterns))
	for _, p := range patterns {
		out = append(out, whole(glob(p, wildcard{"*", expression})))
	}
	return out
}

func (n names) match(name string) bool {
	return slices.ContainsFunc(n, func(e *regexp.Regexp) bool { return e.MatchString(name) })
}

// everything is the pattern that matches all images and files.
const everything = "**"

// imagePattern is a pattern for images or files.
type imagePattern struct {
	everything, file bool
	reference        *regexp.Regexp
}

// compileImage parses a pattern. If the last part of its path has a tag or a digest, the
// pattern also applies to these. No wildcard matches the "@" before a digest. A pattern
// for files matches the path, and has neither tag nor digest.
func compileImage(pattern string) imagePattern {
	p := imagePattern{everything: pattern == everything, file: strings.HasPrefix(pattern, filePrefix)}
	if p.file {
		p.reference = whole(glob(pattern, wildcard{"**", ".*"}, wildcard{"*", "[^/]*"}))
		return p
	}
	expression := glob(pattern, wildcard{"**", "[^@]*"}, wildcard{"*", "[^/@]*"})
	if !strings.ContainsAny(pattern[strings.LastIndexByte(pattern, '/')+1:], ":@") {
		expression += "(:[^/:@]*|@[^/@]*)"
	}
	p.reference = whole(expression)
	return p
}

func (p imagePattern) match(i Image) bool {
	return p.everything || p.file == i.IsFile() && p.reference.MatchString(i.String())
}
