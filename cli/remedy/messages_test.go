// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package remedy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources are the files with the messages that objects show.
var sources = []string{
	"agent/bytecode/*.go",
	"agent/confirm/*.go",
	"agent/controller/*.go",
	"agent/daemon/*.go",
	"agent/gate/*.go",
	"agent/load/*.go",
	"agent/node/*.go",
	"agent/pins/*.go",
	"agent/plan/*.go",
	"agent/program/*.go",
	"bytecode/findings/*.go",
	"bytecode/image/*.go",
	"bytecode/object/*.go",
	"bytecode/registry/*.go",
	"bytecode/signature/*.go",
	"agent/report/*.go",
	"internal/cri/*.go",
	"internal/policy/*.go",
	"internal/reader/*.go",
	"internal/variable/*.go",
	"operator/nodes/problems.go",
	"operator/rollout/*.go",
	"operator/status/*.go",
}

// unseen are files without messages that objects show.
var unseen = map[string]string{
	"agent/confirm/ask.go":           "logged",
	"agent/controller/assignment.go": "logged: without a plan, nothing is reported",
	"agent/controller/controller.go": "Events, and what is logged",
	"agent/controller/plan.go":       "logged: without a plan, nothing is reported",
	"agent/controller/v05.go":        "Events of the node",
	"agent/node/events.go":           "logged: pods are also read when they change",
	"agent/node/interfaces.go":       "logged: without a plan, nothing is reported",
	"agent/node/share.go":            "logged at the start",
	"bytecode/object/loader.go":      "notes of kubectl bpfman image inspect",
	"bytecode/object/needs.go":       "output of kubectl bpfman image inspect",
	"bytecode/object/variable.go":    "names of types",
	"operator/rollout/history.go":    "logged",
	"operator/status/controller.go":  "logged",
	"operator/status/leftovers.go":   "logged",
}

// partial are texts that are parts of messages. What to do depends on the other parts.
var partial = slices.Concat(
	// Details after a cause.
	[]string{
		"nothing runs instead", "generation %d runs again", "generation %d runs again where it was confirmed", "what was confirmed before stays attached", "the rest of %s", "this node tries %s again when the API server responds", ", and got one after the rollback",
		"this node doesn't try %s again until the object or its annotation bpfman.io/restartedAt changes", " (the previously loaded program %d keeps running)",
		"type %s, %d-byte keys, and %d-byte values", "; its primary interface is %s", "; only the first %d are checked", "and %d other reasons",
		"%s; it accepts requests again at %s", "revision %d runs again", "%d of %d nodes with revision %d aren't healthy (%s)", "revision %d, step %d of %d on %d of %d nodes", "Attached on %d of %s",
		"the name of an interface has 1 to 15 bytes of UTF-8, without whitespace, slashes, and colons", "a tracepoint has the form category/event",
		"the name of a kernel function has 1 to 511 bytes, without whitespace and control characters",
		"a target is the name of a library, or an absolute path, with 1 to 4095 bytes and without control characters", "it hasn't been read",
		"it isn't a public key in PEM format", "it has a PEM block of type %q instead of PUBLIC KEY", "read public key: %w",
	},
	// Beginnings before a cause.
	[]string{
		"%s: %s; the daemon reports: %s", "load %d functions, of which %s %s, from %s", "list interfaces of pods: the container runtime", "interfaces of pod %s/%s: %w", "%s is in section %s", "list containers: the container runtime", "list network interfaces: the kernel", "%w; and %d more containers", "list all programs", "list what refers to %s", "policies can't be evaluated: %s",
		"image %s can't be verified: %s", "the policy is invalid, and denies everything that it matches: %s",
		"exit code 0: the kubelet ends it, because it doesn't answer its liveness probe",
		"it uses the external %s: %w", "function %s can't be loaded: %s", "function %s can't be loaded: %w", "%s, when loading from image %s", "%w, when loading from image %s", "%w (%s): to set a value instead of bytes, write globals: {%s: %s}", "the kernel refuses the program: %s", "the kernel refuses the program: $1", ", and %d more refusals", " (did you mean %s?)", "container %s with image %s", "Failed to unload on %s: %s",
	},
	// Beginnings of which the call names the problem, and what the agent recognizes in the daemon's answers.
	[]string{
		"the global data of all objects on this node would take", "the global data of the namespace on this node would take", "and %d more started before",
		"Failed to acquire database lock", `does not exist in tree "link_%d"`,
	},
	// Ends behind one.
	[]string{
		"which isn't defined in the object's types: declare it without static, and compile it with clang -g",
		"a map of maps, which bpfman's daemon v0.6 can't create: leave the function out, or load it without bpfman",
	},
	// Entries of layers.
	[]string{
		"a global pax header", "a GNU long name", "a GNU long link name", "a GNU directory listing", "a GNU multi-volume file", "a GNU volume name",
		"two pax headers for one entry", "an old pax header", "an entry of the unknown type %s",
	},
	// Signatures that don't count, and how many were found.
	[]string{
		"no attestation of type %s was found", "no signature was found", "the only %s that was found is ", "none of the %d %ss that were found is valid: ",
		"made with a certificate, not with a key", "made with a key, not with a certificate", "not made with the authority's keys", "of another image",
		"made by an unknown signer", "made by another signer: %w", "not a Sigstore bundle that can be read", "not an envelope that can be read",
		"with a log entry that can't be read", "of an unknown kind, %q", "with a certificate that is not PEM", "with a timestamp that can't be read",
		"does not match any digest in statement", "does not match digests in statement", "artifact does not match digest", "failed to verify signature",
		"failed to verify log inclusion", "not in a transparency log of the trusted root", "failed to verify timestamps", "without proof of when it was made",
		"failed to verify leaf certificate", "with a certificate that no authority of the trusted root issued, or that wasn't valid when it was used",
		"failed to verify signed certificate timestamp", "with a certificate that isn't in a certificate transparency log of the trusted root",
		"it exceeds the size limit", "it has unexpected content", "%w: the referrers tag has no index", "%w: the list of referrers isn't an index",
	},
	// Errors that the agent handles, waits for, or logs.
	[]string{
		"make other calls wait",
		"generation %d is rolled back", "the version wasn't confirmed there", "a change is rolled back", "wait for a rollback: %w",
		"no process of the pod is running",
		"images are being read, or a change isn't confirmed", "too many images are being read from slow registries", "the API server can't be reached", "Program %d does not exist", "the registry doesn't have it",
		"read the boot ID: %w", "open the directory: %w", "read the record of a change: %w", "remove a damaged record: %w", "remove the record of %s: %w",
		"write a section header: %w", "write the ELF header: %w",
		"%s has no list of objects: %w", "a list has an item of %T", "%s; then it failed to unload function %s: %s", "function %s is named twice",
		"record what the daemon has loaded: %w", "read what the former daemon has loaded: %w", "open a pinned link: %w", "read a pinned link: %w",
		"look for the former daemon's database: %w", "remove the former daemon's database: %w",
	},
	// What runs on nodes that fail, within the message about these.
	[]string{"%s, where the previous revision keeps running", "%s, on %d of which the previous revision keeps running"},
	// Reasons why a node isn't healthy, which are within the message of a rollout.
	[]string{
		"%d deleted, unreachable, or without an agent", "the agent or the daemon terminated at %s", "the inspector hasn't measured run times",
		"the program hasn't run often enough to compare run times", "a run takes %d ns on average, and %d ns in the previous revision",
	},
)

// TestEachMessageNamesItsProblem reads the messages from the sources.
func TestEachMessageNamesItsProblem(t *testing.T) {
	used := map[string]bool{}
	for _, files := range sources {
		paths, err := filepath.Glob(filepath.Join("../..", files))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %q, %v", files, paths, err)
		}
		for _, path := range paths {
			name := strings.TrimPrefix(path, "../../")
			if used[name] = true; strings.HasSuffix(name, "_test.go") || unseen[name] != "" {
				continue
			}
			for _, text := range textsIn(t, path) {
				used[text] = true
				if !slices.Contains(partial, text) {
					t.Errorf("%s: nothing names the problem of %q", name, text)
				}
			}
		}
	}
	for _, name := range slices.Concat(partial, slices.Collect(maps.Keys(unseen))) {
		if !used[name] {
			t.Errorf("there is no unnamed %q anymore", name)
		}
	}
}

var words = regexp.MustCompile(`[a-zA-Z']{2,}`)

var verb = regexp.MustCompile(`%[a-zA-Z]`)

// textsIn returns the texts of a file that have at least three words, except those of log messages, and those whose problem is
// named beside them. Operands that aren't constant become %s.
func textsIn(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field:
			return false
		case *ast.CompositeLit:
			return !slices.ContainsFunc(n.Elts, isReason)
		case *ast.CallExpr:
			if slices.ContainsFunc(n.Args, isReason) {
				return false
			}
			called, ok := n.Fun.(*ast.SelectorExpr)
			return !ok || !slices.Contains([]string{"MustCompile", "Info", "Error", "Emit"}, called.Sel.Name)
		case ast.Expr:
			text, constant := textOf(n)
			if constant && strings.Contains(text, " ") && len(words.FindAllString(verb.ReplaceAllString(text, ""), -1)) > 2 {
				found = append(found, text)
			}
			return !constant
		}
		return true
	})
	return found
}

// isReason reports whether an expression is a problem. What is in a call or list with one has the remedy of this problem.
func isReason(e ast.Expr) bool {
	if pair, is := e.(*ast.KeyValueExpr); is {
		e = pair.Value
	}
	selector, is := e.(*ast.SelectorExpr)
	if !is {
		return false
	}
	of, is := selector.X.(*ast.Ident)
	return is && of.Name == "problem"
}

// textOf returns the text of an expression that is, or contains, a string.
func textOf(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		left, isLeft := textOf(e.X)
		right, isRight := textOf(e.Y)
		if e.Op == token.ADD && (isLeft || isRight) {
			if !isLeft {
				left = "%s"
			}
			if !isRight {
				right = "%s"
			}
			return left + right, true
		}
	}
	return "", false
}
