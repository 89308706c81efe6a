// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"go/ast"
	"go/token"
	"go/types"
	"iter"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// reasonAt is the position of the reason in the arguments of the functions that emit Events.
var reasonAt = map[string]int{"Emit": 3, "tellNode": 2, "emit": 2}

// TestEventReasons checks that the page about Events has the reasons of all Events in the code, and no others.
func TestEventReasons(t *testing.T) {
	page := must.Read(t, filepath.Join(root, "docs/reference/events.md"))
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+) \| (?:Normal|Warning) \|`).FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = true
	}

	components := []string{"agent", "apis", "csi", "inspector", "operator"}
	constants := map[string]string{} // by name
	computed := map[string][]string{ // by the expression that the reason comes from
		"reason": nil, // the argument of tellNode and emit
	}
	eachFile(t, components, func(_ string, file *ast.File) {
		for spec := range constantsOf(file) {
			value, ok := textOf(t, spec.Values[0])
			if !ok {
				continue
			}
			constants[spec.Names[0].Name] = value
			switch kind, _ := spec.Type.(*ast.Ident); {
			case kind == nil:
			case kind.Name == "ProgramConditionType":
				reason := v1alpha1.ProgramConditionType(value).Condition("").Reason
				computed["c.Reason"] = append(computed["c.Reason"], reason)
				computed["want.Conditions[0].Reason"] = append(computed["want.Conditions[0].Reason"], reason)
			case kind.Name == "BpfProgramConditionType" && v1alpha1.BpfProgramConditionType(value).Failed():
				computed["is.Type"] = append(computed["is.Type"], value)
			}
		}
	})
	// Programs recover to these conditions.
	computed["is.Type"] = append(computed["is.Type"], string(v1alpha1.BpfProgCondLoaded), string(v1alpha1.BpfProgCondNoContainersOnNode), string(v1alpha1.BpfProgCondNoInterfacesOnNode))

	emitted := map[string]bool{}
	eachFile(t, components, func(path string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, reason := range reasonsOf(t, path, call, constants, computed) {
				emitted[reason] = true
			}
			return true
		})
	})

	if !maps.Equal(emitted, documented) || len(emitted) < 20 {
		t.Errorf("the components emit Events with the reasons %q\nthe page has %q",
			slices.Sorted(maps.Keys(emitted)), slices.Sorted(maps.Keys(documented)))
	}
}

// reasonsOf returns the reasons of the Events that a call emits.
func reasonsOf(t *testing.T, path string, call *ast.CallExpr, constants map[string]string, computed map[string][]string) []string {
	t.Helper()
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	// A conflict of an object gets an Event, with its type as the reason.
	if types.ExprString(function) == "f.add" && strings.HasPrefix(path, filepath.Join(root, "inspector/conflict")) {
		if types.ExprString(call.Args[2]) == "nil" {
			return nil
		}
		return []string{constants[nameOf(call.Args[0])]}
	}
	if function.Sel.Name == "Eventf" && !strings.HasPrefix(path, filepath.Join(root, "apis/event")) {
		t.Errorf("%s: an Event that isn't emitted by event.Emit", path)
	}
	at, ok := reasonAt[function.Sel.Name]
	if !ok || at >= len(call.Args) {
		return nil
	}
	if text, ok := textOf(t, call.Args[at]); ok {
		return []string{text}
	}
	expression := types.ExprString(call.Args[at])
	if reasons, ok := computed[expression]; ok {
		return reasons
	}
	reason, ok := constants[nameOf(call.Args[at])]
	if !ok {
		t.Errorf("%s: an Event has the reason %s, whose values this test doesn't know", path, expression)
	}
	return []string{reason}
}

// nameOf returns the name of a constant, without its package.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// constantsOf yields the constants of a file that are declared with a value each.
func constantsOf(file *ast.File) iter.Seq[*ast.ValueSpec] {
	return func(yield func(*ast.ValueSpec) bool) {
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok || general.Tok != token.CONST {
				continue
			}
			for _, spec := range general.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok && len(value.Values) == 1 && !yield(value) {
					return
				}
			}
		}
	}
}
