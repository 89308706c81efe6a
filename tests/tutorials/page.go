// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package tutorials runs the tutorials of the documentation. The commands, the files, and the expected output come
// from the page itself.
//
// A page is Markdown. Its fenced blocks are its steps:
//
//   - A block of language sh is run. All blocks run in the order of the page, in one bash with errexit, nounset, and
//     pipefail, in an empty directory, without input. The next block sees what a block sets, changes, or starts in
//     the background.
//   - A block with a title, such as yaml title="packets.yaml", is a file that the reader saves in that directory.
//   - A block with the title Output, after a block of sh, is what that block prints to standard output and standard
//     error.
//   - Any other block, such as one of language console, is only shown.
//
// Output is compared line by line. In a line, a run of digits matches any digits, a duration such as 2m5s any
// duration, a run of blanks any blanks, and an IP address any address. "…" matches any text. A line with only "…"
// matches any number of lines. Blanks at the end of a line, and empty lines at both ends, don't matter. Everything
// else is literal.
//
// The comment <!-- requires: linux-6.6 clang --> lists what a page needs in addition to a cluster with bpfman: a
// version of Linux on all nodes, "nri" for nodes whose container runtime enables NRI by default, commands, and "registry"
// for a registry at $REGISTRY that the reader can push to.
//
// The section Clean up runs even if an earlier step failed. Afterwards, the API must not contain objects that
// weren't there before.
package tutorials

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// The names of blocks and headings of a page.
const (
	shell       = "sh"
	outputTitle = "Output"
	cleanUp     = "Clean up"
)

// sections are the sections that each tutorial has, in addition to its own.
var sections = []string{"What you need", "If it doesn't work", cleanUp, "What's next"}

// Page is a tutorial.
type Page struct {
	// Requires lists what the reader's machine and cluster need.
	Requires []string
	Steps    []Step
}

// Step is a step for the reader: it either runs Script, or saves Content as File.
type Step struct {
	// Line is the line of the block on the page. Section is the heading above it.
	Line    int
	Section string

	Script string
	// Output is the output of the script, if the page contains it.
	Output *string

	File, Content string
}

// CleansUp reports whether the step is for after the tutorial.
func (s Step) CleansUp() bool { return s.Section == cleanUp }

var (
	titlePattern    = regexp.MustCompile(`\btitle="([^"]*)"`)
	requiresPattern = regexp.MustCompile(`<!-- requires: (.*) -->`)
)

// Parse parses a page. The error lists what every tutorial needs and this one lacks.
func Parse(content []byte) (Page, error) {
	page, headings, err := parse(content)
	errs := []error{err}
	for _, section := range sections {
		if !slices.Contains(headings, section) {
			errs = append(errs, fmt.Errorf("there is no section %q", section))
		}
	}
	return page, errors.Join(append(errs, page.check())...)
}

// Steps returns the steps in a section of a page that isn't a tutorial.
func Steps(content []byte, section string) ([]Step, error) {
	page, _, err := parse(content)
	steps := slices.DeleteFunc(page.Steps, func(s Step) bool { return s.Section != section })
	if err == nil && len(steps) == 0 {
		err = fmt.Errorf("there is no step in a section %q", section)
	}
	return steps, err
}

// parse returns the page, and its headings.
func parse(content []byte) (page Page, headings []string, err error) {
	var errs []error
	document := goldmark.DefaultParser().Parse(text.NewReader(content))
	err = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Heading:
			headings = append(headings, string(node.Lines().Value(content)))
		case *ast.HTMLBlock:
			if requires := requiresPattern.FindSubmatch(node.Lines().Value(content)); requires != nil {
				page.Requires = strings.Fields(string(requires[1]))
			}
		case *ast.FencedCodeBlock:
			section := ""
			if len(headings) > 0 {
				section = headings[len(headings)-1]
			}
			errs = append(errs, page.add(block(node, content), section))
		}
		return ast.WalkContinue, nil
	})
	return page, headings, errors.Join(append(errs, err)...)
}

// fenced is a block of a page.
type fenced struct {
	line                     int
	language, title, content string
}

func block(node *ast.FencedCodeBlock, source []byte) fenced {
	b := fenced{language: string(node.Language(source)), content: string(node.Lines().Value(source))}
	if node.Info != nil {
		b.line = 1 + strings.Count(string(source[:node.Info.Segment.Start]), "\n")
		if title := titlePattern.FindSubmatch(node.Info.Segment.Value(source)); title != nil {
			b.title = string(title[1])
		}
	}
	return b
}

// add adds a block as a step, or as the output of the previous step.
func (p *Page) add(b fenced, section string) error {
	switch {
	case b.title == outputTitle:
		if len(p.Steps) == 0 || p.Steps[len(p.Steps)-1].Script == "" || p.Steps[len(p.Steps)-1].Output != nil {
			return fmt.Errorf("line %d: output without a command before it", b.line)
		}
		p.Steps[len(p.Steps)-1].Output = &b.content
	case b.title != "":
		if !filepath.IsLocal(b.title) {
			return fmt.Errorf("line %d: %q is not a file of the tutorial's directory", b.line, b.title)
		}
		p.Steps = append(p.Steps, Step{Line: b.line, Section: section, File: b.title, Content: b.content})
	case b.language == shell:
		p.Steps = append(p.Steps, Step{Line: b.line, Section: section, Script: b.content})
	}
	return nil
}

// check checks that the page runs something, shows the output, and cleans up.
func (p *Page) check() error {
	var errs []error
	if !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Output != nil && !s.CleansUp() }) {
		errs = append(errs, errors.New("no command's output is shown"))
	}
	last := len(p.Steps) - 1
	if last < 0 || !p.Steps[last].CleansUp() || p.Steps[last].Script == "" {
		errs = append(errs, fmt.Errorf("the last command isn't in the section %q", cleanUp))
	}
	return errors.Join(errs...)
}
