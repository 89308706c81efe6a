// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// messages are those of each problem, with "…" for any text.
type messages map[problem.Reason][]string

// modules are the directories with sources that name problems.
var modules = []string{"agent", "bytecode", "internal", "operator", "reader"}

// inSources returns the messages in the sources below a directory: those in calls and composite literals that name a problem, such as
// problem.Errorf(problem.NoSuchInterface, "the node has no interface %s", name). It returns an error if a problem has none.
func inSources(root string) (messages, error) {
	said := messages{}
	for _, module := range modules {
		err := filepath.WalkDir(filepath.Join(root, module), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path) //nolint:gosec // the project's sources
			if err != nil {
				return fmt.Errorf("read a source: %w", err)
			}
			return said.add(path, content)
		})
		if err != nil {
			return nil, fmt.Errorf("read the sources of %s: %w", module, err)
		}
	}
	for _, section := range problem.Table() {
		for _, row := range section.Rows {
			if len(said[row.Reason]) == 0 {
				return nil, fmt.Errorf("no message names the problem %s", row.Reason)
			}
		}
	}
	return said, nil
}

// add adds the messages of a source.
func (said messages) add(path string, content []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", path, err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		var parts []ast.Expr
		switch n := n.(type) {
		case *ast.CallExpr:
			parts = n.Args
		case *ast.CompositeLit:
			parts = n.Elts
		}
		reason := problem.Reason("")
		for _, part := range parts {
			if reason == "" {
				reason = named(part)
				continue
			}
			for _, text := range textsOf(part) {
				if message := pattern(text); message != "" && !slices.Contains(said[reason], message) {
					said[reason] = append(said[reason], message)
				}
			}
		}
		return true
	})
	return nil
}

// named returns the problem that an expression is, or "".
func named(e ast.Expr) problem.Reason {
	if pair, is := e.(*ast.KeyValueExpr); is {
		e = pair.Value
	}
	selector, is := e.(*ast.SelectorExpr)
	if !is {
		return ""
	}
	if of, is := selector.X.(*ast.Ident); !is || of.Name != "problem" {
		return ""
	}
	return problem.Reason(selector.Sel.Name)
}

// textsOf returns the texts in an expression that is a string, or a list of strings.
func textsOf(e ast.Expr) []string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return []string{text}
		}
	case *ast.BinaryExpr:
		left, right := textsOf(e.X), textsOf(e.Y)
		if len(left) == 0 && len(right) == 0 {
			return nil
		}
		return []string{joined(left) + joined(right)}
	case *ast.KeyValueExpr:
		return textsOf(e.Value)
	case *ast.CallExpr: // fmt.Sprintf, in a composite literal
		if called, is := e.Fun.(*ast.SelectorExpr); is && called.Sel.Name == "Sprintf" {
			return textsOf(e.Args[0])
		}
	case *ast.CompositeLit:
		var all []string
		for _, element := range e.Elts {
			all = append(all, textsOf(element)...)
		}
		return all
	}
	return nil
}

// joined returns the text of an operand, or that of a verb if it isn't constant.
func joined(texts []string) string {
	if len(texts) == 0 {
		return "%s"
	}
	return texts[0]
}

var verb = regexp.MustCompile(`%[+#.0-9]*[a-zA-Z]|\$[0-9]`)

// pattern returns the text of a format, or of a replacement, with "…" for its verbs, without those at the ends.
func pattern(format string) string {
	text := strings.ReplaceAll(verb.ReplaceAllString(format, "…"), "%%", "%")
	for strings.Contains(text, "……") {
		text = strings.ReplaceAll(text, "……", "…")
	}
	return strings.Trim(text, "… :;,")
}
