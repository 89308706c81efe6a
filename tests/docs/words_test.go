// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// speaking are the directories with strings for users: messages, logs, and help.
var speaking = []string{"agent", "apis", "bytecode", "cli", "csi", "inspector", "internal", "operator", "reader", "hack/cluster"}

// TestMessagesAvoidWords checks the strings of the commands for the words that Vale refuses on
// pages (make prose), because Vale doesn't read Go.
func TestMessagesAvoidWords(t *testing.T) {
	avoided := avoidedWords(t)
	for _, bad := range []string{"the program is loaded anew", "nobody is told of it"} {
		if !avoided.MatchString(bad) {
			t.Errorf("%q isn't found by %s", bad, avoided)
		}
	}
	read := 0
	inspect(t, func(path string, n ast.Node) {
		if text, ok := textOf(t, n); ok {
			read++
			if word := avoided.FindString(text); word != "" {
				t.Errorf("%s: %q has %q, see hack/vale/styles/bpfman", path, text, word)
			}
		}
	})
	if read == 0 {
		t.Error("no strings are read")
	}
}

// TestLogMessagesFollowTheRules checks rules in docs/development.md: how messages begin and end, and that a failure isn't
// logged at level info, where it is overlooked.
func TestLogMessagesFollowTheRules(t *testing.T) {
	capital := regexp.MustCompile(`^[A-Z].*[^.:]$`)
	failure := regexp.MustCompile(`^(Failed|Can't|Unable) `)
	read := 0
	inspect(t, func(path string, n ast.Node) {
		if text, ok := logMessage(t, n); ok {
			read++
			if !capital.MatchString(text) {
				t.Errorf("%s: %q doesn't begin with a capital, or ends with punctuation", path, text)
			}
			method := n.(*ast.CallExpr).Fun.(*ast.SelectorExpr).Sel.Name //nolint:errcheck // logMessage has checked both
			if failure.MatchString(text) && method == "Info" {
				t.Errorf("%s: %q is logged at level info", path, text)
			}
		}
	})
	if read == 0 {
		t.Error("no messages are read")
	}
}

// logMessage returns the message of a call of log/slog or logr.
func logMessage(t *testing.T, n ast.Node) (string, bool) {
	t.Helper()
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log"}, method.Sel.Name) {
		return "", false
	}
	if of, ok := method.X.(*ast.Ident); ok && slices.Contains([]string{"http", "status"}, of.Name) {
		return "", false
	}
	if method.Sel.Name == "Log" && len(call.Args) < 3 { // a context, a level, and the message
		return "", false
	}
	for _, argument := range call.Args[:min(len(call.Args), 3)] {
		if text, ok := textOf(t, argument); ok {
			return text, true
		}
	}
	return "", false
}

// inspect calls visit with the nodes of the sources in the speaking directories.
func inspect(t *testing.T, visit func(path string, n ast.Node)) {
	t.Helper()
	eachFile(t, speaking, func(path string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			visit(path, n)
			return true
		})
	})
}

// eachFile calls visit with the sources in the directories, without tests.
func eachFile(t *testing.T, directories []string, visit func(path string, file *ast.File)) {
	t.Helper()
	for _, directory := range directories {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			visit(path, file)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// textOf returns the value of a string literal.
func textOf(t *testing.T, n ast.Node) (string, bool) {
	t.Helper()
	literal, ok := n.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		t.Fatal(err)
	}
	return text, true
}

// avoidedWords matches the words in Vale's rules that only consist of words.
func avoidedWords(t *testing.T) *regexp.Regexp {
	t.Helper()
	var words []string
	for _, rule := range []string{"Avoid", "Plain"} {
		text := must.Read(t, filepath.Join(root, "hack/vale/styles/bpfman", rule+".yml"))
		var style struct {
			Tokens []string          `json:"tokens"`
			Swap   map[string]string `json:"swap"`
		}
		must.Succeed(t, yaml.Unmarshal(text, &style))
		words = append(append(words, style.Tokens...), slices.Sorted(maps.Keys(style.Swap))...)
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)\b`)
}
