// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// figures count what the tests notice.
type figures struct {
	killed, survived, unexecuted, equivalent, invalid, running int
}

func (f *figures) count(v verdict) {
	switch v {
	case killed:
		f.killed++
	case survived:
		f.survived++
	case unexecuted:
		f.unexecuted++
	case equivalent:
		f.equivalent++
	case invalid:
		f.invalid++
	}
}

func (f *figures) add(g figures) {
	f.killed += g.killed
	f.survived += g.survived
	f.unexecuted += g.unexecuted
	f.equivalent += g.equivalent
	f.invalid += g.invalid
}

// judged is the number of changes that the tests could have noticed.
func (f *figures) judged() int { return f.killed + f.survived + f.unexecuted }

func (f *figures) line(name string) string {
	percent := 100
	if f.judged() > 0 {
		percent = 100 * f.killed / f.judged()
	}
	return fmt.Sprintf("%s: %d of %d changes noticed (%d%%), %d survived, %d of them not executed; not counted: %d equivalent, %d that don't compile",
		name, f.killed, f.judged(), percent, f.survived+f.unexecuted, f.unexecuted, f.equivalent, f.invalid)
}

// lines returns the line where a change begins, before and after the change.
func lines(m *mutant, source []byte) (before, after string) {
	start := bytes.LastIndexByte(source[:m.start], '\n') + 1
	first := func(text []byte) string {
		line, _, _ := bytes.Cut(text, []byte("\n"))
		return strings.TrimSpace(string(line))
	}
	return first(source[start:]), first(m.apply(source)[start:])
}

// describe returns a change as in equivalent.txt.
func describe(m *mutant, source []byte, v verdict) string {
	before, after := lines(m, source)
	return fmt.Sprintf("%s:%d\n-%s\n+%s\n%s\n", m.file, m.line, before, after, v)
}

// equivalents are changes that make no difference. They have no line numbers, so other changes of the file don't
// concern them.
type equivalents map[change]bool

type change struct{ file, before, after string }

func (c change) String() string {
	return fmt.Sprintf("%s\n-%s\n+%s", c.file, c.before, c.after)
}

// readEquivalents reads a file of paragraphs, each with a file, the line before, the line after, and the reason.
func readEquivalents(path string) (equivalents, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	known := equivalents{}
	for paragraph := range strings.SplitSeq(string(content), "\n\n") {
		paragraph = strings.TrimSpace(paragraph)
		if paragraph == "" || strings.HasPrefix(paragraph, "#") {
			continue
		}
		rows := strings.SplitN(paragraph, "\n", 4)
		if len(rows) < 4 || !strings.HasPrefix(rows[1], "-") || !strings.HasPrefix(rows[2], "+") {
			return nil, fmt.Errorf("%s: a file, a line with -, a line with +, and a reason are required:\n%s", path, paragraph)
		}
		file, _, _ := strings.Cut(rows[0], ":")
		known[change{file, strings.TrimSpace(rows[1][1:]), strings.TrimSpace(rows[2][1:])}] = true
	}
	return known, nil
}

func changeOf(m *mutant, source []byte) change {
	before, after := lines(m, source)
	return change{m.file, before, after}
}

func (e equivalents) has(m *mutant, source []byte) bool { return e[changeOf(m, source)] }

// stale returns those of the given files that aren't possible anymore.
func (e equivalents) stale(mutants []mutant, sources map[string][]byte) []change {
	possible := map[change]bool{}
	for _, m := range mutants {
		possible[changeOf(&m, sources[m.file])] = true
	}
	var stale []change
	for c := range e {
		if _, ok := sources[c.file]; ok && !possible[c] {
			stale = append(stale, c)
		}
	}
	return stale
}
