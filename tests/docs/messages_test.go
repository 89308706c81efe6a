// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestMessagesOfVolumesAreExplained checks that the page about volumes' errors explains all errors
// of the CSI plugin that a user of a pod can see.
func TestMessagesOfVolumesAreExplained(t *testing.T) {
	page := must.Read(t, filepath.Join(root, "docs/volume-errors.md"))
	messages := 0
	for _, part := range []string{"driver", "program", "access", "maps"} {
		paths, err := filepath.Glob(filepath.Join(root, "csi", part, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("sources of %s: %q, %v", part, paths, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") || slices.Contains(inLog, filepath.Base(path)) {
				continue
			}
			for _, message := range messagesIn(t, path) {
				if slices.ContainsFunc(atStart, func(start string) bool { return strings.HasPrefix(message, start) }) {
					continue
				}
				messages++
				for _, words := range fixedWords(message) {
					if !strings.Contains(string(page), words) {
						t.Errorf("%s: %q of the message %q is not in docs/volume-errors.md", path, words, message)
					}
				}
			}
		}
	}
	if messages < 50 {
		t.Errorf("found %d messages only", messages)
	}
}

// Errors that users don't see: sources whose errors are only in the plugin's log, and
// errors that prevent it from starting.
var (
	inLog   = []string{"watch.go", "mounts.go"}
	atStart = []string{"dial daemon at", "register access reviews", "client for access reviews"}
)

// messagesIn returns the texts of errors: of errors.New, fmt.Errorf, os.PathError, and of
// other functions that create errors.
func messagesIn(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	add := func(e ast.Expr) {
		if text, ok := textOf(t, e); ok {
			messages = append(messages, text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			selected, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, _ := selected.X.(*ast.Ident)
			switch {
			case of == nil || len(n.Args) == 0:
			case of.Name+"."+selected.Sel.Name == "errors.New", of.Name+"."+selected.Sel.Name == "fmt.Errorf":
				add(n.Args[0])
			case of.Name+"."+selected.Sel.Name == "status.Error":
				if text, ok := n.Args[1].(*ast.CallExpr); ok && len(text.Args) > 0 {
					add(text.Args[0])
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Op" {
				add(n.Value)
			}
		}
		return true
	})
	return messages
}

var verb = regexp.MustCompile(`%[a-z]`)

// fixedWords returns the constant parts of a message.
func fixedWords(message string) []string {
	var out []string
	for _, part := range verb.Split(message, -1) {
		if part = strings.Trim(part, " :,;…\"/."); len(part) > 2 {
			out = append(out, part)
		}
	}
	return out
}
