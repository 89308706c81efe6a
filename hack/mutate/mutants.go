// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one small change of a file, which the tests are expected to notice.
type mutant struct {
	file       string // as in the report: below the workspace
	line       int
	start, end int // offsets of what is replaced
	from, to   string
}

// apply returns the file's content with the change.
func (m *mutant) apply(source []byte) []byte {
	return slices.Concat(source[:m.start], []byte(m.to), source[m.end:])
}

// isAt reports whether the change is in one of these files, or at one of these lines, as file:line.
func (m *mutant) isAt(places []string) bool {
	return slices.Contains(places, m.file) || slices.Contains(places, fmt.Sprintf("%s:%d", m.file, m.line))
}

// What a binary operator is replaced with. A < or > is replaced by what differs only at the limit, because tests
// miss that most often.
var operators = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

// What tests don't compare: logs, metrics, and the capacity of slices and maps. A call that matches isn't changed.
var untested = regexp.MustCompile(`^(slog|klog|log|logger|.*\.(log|logger|Log))\.|` +
	`\.(Debug|Info|Warn|Error|Infof|Warningf|Errorf|Inc|Observe|WithLabelValues|MustRegister)$|(^|\.)Fprint(f|ln)?$|^fmt\.Errorf$|^errors\.New$|^panic$|^make$`)

// mutantsOf returns what can be changed in a file, in its order. The errors are those of the parser.
func mutantsOf(name string, source []byte) ([]mutant, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	f := &finder{name: name, source: source, file: set.File(file.Pos())}
	f.visit(file, nil)
	slices.SortStableFunc(f.found, func(a, b mutant) int { return a.start - b.start })
	return f.found, nil
}

// A finder collects the mutants of one file.
type finder struct {
	name   string
	source []byte
	file   *token.File
	found  []mutant
}

// visit adds the mutants of a node, which is in a function of the given type or in none.
func (f *finder) visit(root ast.Node, function *ast.FuncType) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil && n.Name.Name != "String" && n.Name.Name != "Error" {
				f.visit(n.Body, n.Type)
			}
			return false
		case *ast.FuncLit:
			f.visit(n.Body, n.Type)
			return false
		case *ast.GenDecl: // constants are chosen, and types have nothing to change
			return n.Tok == token.VAR
		case *ast.CallExpr:
			if untested.MatchString(f.text(n.Fun)) {
				return false
			}
		case *ast.ReturnStmt:
			return !f.returnsError(n, function)
		case ast.Stmt:
			return f.statement(n)
		case ast.Expr:
			return f.expression(n)
		}
		return true
	})
}

// statement adds the mutants of a statement, and says whether those of its parts count, too.
func (f *finder) statement(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.IfStmt:
		f.negate(s.Cond)
	case *ast.ForStmt:
		return true
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && untested.MatchString(f.text(call.Fun)) {
			return false
		}
		f.replace(s, "")
	case *ast.DeferStmt, *ast.BranchStmt, *ast.SendStmt:
		f.replace(s, "")
	case *ast.AssignStmt:
		if s.Tok != token.DEFINE {
			f.replace(s, "")
		}
		f.swap(s.TokPos, s.Tok)
	case *ast.IncDecStmt:
		f.replace(s, "")
		f.swap(s.TokPos, s.Tok)
	case *ast.CaseClause:
		for _, condition := range s.List {
			if isCondition(condition) {
				f.negate(condition)
			}
		}
	}
	return true
}

// expression adds the mutants of an expression, and says whether those of its parts count, too.
func (f *finder) expression(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if isDuration(f.text(e)) {
			return false
		}
		if !isText(e.X) && !isText(e.Y) {
			f.swap(e.OpPos, e.Op)
		}
	case *ast.BasicLit:
		if n, err := strconv.ParseInt(e.Value, 0, 32); err == nil && e.Kind == token.INT {
			f.replace(e, strconv.FormatInt(n+1, 10))
		}
	case *ast.Ident:
		switch e.Name {
		case "true":
			f.replace(e, "false")
		case "false":
			f.replace(e, "true")
		}
	}
	return true
}

// returnsError adds a return statement that returns no error, and says whether it returned one. Nobody uses the other
// results then.
func (f *finder) returnsError(s *ast.ReturnStmt, function *ast.FuncType) bool {
	if len(s.Results) == 0 || function == nil || function.Results == nil || len(s.Results) != function.Results.NumFields() {
		return false
	}
	results := function.Results.List
	last := s.Results[len(s.Results)-1]
	if f.text(results[len(results)-1].Type) != "error" || f.text(last) == "nil" {
		return false
	}
	f.replace(last, "nil")
	// An err can be nil, and a call can have arguments that matter.
	call, ok := last.(*ast.CallExpr)
	return ok && untested.MatchString(f.text(call.Fun))
}

// negate adds the opposite of a condition. Of a comparison, that is another mutant already.
func (f *finder) negate(condition ast.Expr) {
	if binary, ok := condition.(*ast.BinaryExpr); ok && (binary.Op == token.EQL || binary.Op == token.NEQ) {
		return
	}
	f.replace(condition, "!("+f.text(condition)+")")
}

// swap adds another operator.
func (f *finder) swap(position token.Pos, operator token.Token) {
	if other, ok := operators[operator]; ok {
		f.add(f.file.Offset(position), len(operator.String()), other.String())
	}
}

func (f *finder) replace(n ast.Node, with string) {
	start := f.file.Offset(n.Pos())
	f.add(start, f.file.Offset(n.End())-start, with)
}

func (f *finder) add(start, length int, to string) {
	f.found = append(f.found, mutant{
		file: f.name, line: f.file.Line(f.file.Pos(start)),
		start: start, end: start + length, from: string(f.source[start : start+length]), to: to,
	})
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.file.Offset(n.Pos()):f.file.Offset(n.End())])
}

// isCondition tells the conditions of a switch without a value from the values of others.
func isCondition(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return slices.Contains([]token.Token{token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ, token.LAND, token.LOR}, e.Op)
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	}
	return false
}

// isDuration says whether an expression is a constant duration, such as 10 * time.Second: one that is slightly
// longer is as good.
func isDuration(text string) bool {
	return strings.Contains(text, "* time.")
}

func isText(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Kind == token.STRING
}
