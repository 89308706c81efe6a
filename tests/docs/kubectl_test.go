// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"io"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// kubectlCommand finds a command of kubectl at the start of a line of code, of a substitution, or between backticks.
// What follows in the shell isn't part of it. The plugin has a test of its own.
var kubectlCommand = regexp.MustCompile("(?m)(?:^[ \\t]*(?:[$] )?|`|[$][(])kubectl ((?:'[^'\\n]*'|\"[^\"\\n]*\"|[^'\"`\\n|;&<>)])+)")

// TestKubectlCommands checks the commands of kubectl in the documentation, the charts, and the manifests: their kinds exist,
// and so do the labels and fields of bpfman's kinds that they select and print, and the conditions that they wait for.
func TestKubectlCommands(t *testing.T) {
	c := newCluster(t)
	for path, commands := range documentedKubectl(t) {
		for _, words := range commands {
			if err := c.check(words); err != nil {
				t.Errorf("%s: kubectl %s: %v", path, strings.Join(words, " "), err)
			}
		}
	}
	for command, want := range map[string]string{
		"get tcxprogramms":                                                            "kind",
		"describe bpfprogram/a nodes/b":                                               "",
		"get tcxprogram x -o jsonpath='{.status.rollouts.state}'":                     "rollouts",
		"get bpfprograms -o custom-columns=A:.status.nodes":                           "nodes",
		"get bpfprograms -o jsonpath='{range .items[*]}{.status.node}: {.nope}{end}'": "nope",
		"get bpfprograms -o jsonpath='{.items[*].status.programid}'":                  "",
		"get bpfprograms --sort-by=.status.nope":                                      "nope",
		"get bpfprograms -l bpfman.io/ownedBy=x":                                      "label",
		"wait tcxprogram/x --for=condition=Loadedd":                                   "condition",
		"explain tcxprogram.spec.nope":                                                "nope",
	} {
		err := c.check(shellWords(command))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("kubectl %s: %v, want an error about %q", command, err, want)
		}
	}
}

// TestKubectlFlags has kubectl parse the verbs and flags of these commands. With --help, it does nothing else.
func TestKubectlFlags(t *testing.T) {
	kubectl, err := exec.LookPath(filepath.Join(root, "bin", "kubectl"))
	if err != nil {
		kubectl, err = exec.LookPath("kubectl")
	}
	if err != nil {
		prerequisite.Missing(t, err.Error(), prerequisite.Kubectl)
	}
	parse := func(words []string) error {
		if at := slices.Index(words, "--"); at >= 0 {
			words = words[:at]
		}
		if valueFlags.Has(words[len(words)-1]) { // a sentence names the flag without a value
			words = append(slices.Clone(words), "VALUE")
		}
		command := exec.CommandContext(t.Context(), kubectl, append(slices.Clone(words), "--help")...)
		command.Env = []string{"HOME=" + t.TempDir()}
		output, err := command.CombinedOutput()
		// For a verb that doesn't exist, it prints its own help.
		if err == nil && strings.HasPrefix(string(output), "kubectl controls the Kubernetes cluster manager") {
			err = errors.New("there is no such verb")
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	}
	for _, bad := range []string{"frob pods", "get pods --everything"} {
		if parse(shellWords(bad)) == nil {
			t.Errorf("kubectl %s is parsed", bad)
		}
	}
	seen := sets.New[string]()
	documented := documentedKubectl(t)
	for _, path := range slices.Sorted(maps.Keys(documented)) {
		for _, words := range documented[path] {
			arguments, options := parseCommand(words)
			if len(arguments) == 0 || arguments[0] == "krew" { // krew is a plugin
				continue
			}
			key := arguments[0]
			for _, option := range options {
				key += " " + option[0]
			}
			if seen.Has(key) {
				continue
			}
			seen.Insert(key)
			if err := parse(words); err != nil {
				t.Errorf("%s: kubectl %s: %v", path, strings.Join(words, " "), err)
			}
		}
	}
}

// documentedKubectl returns the commands of kubectl in each file for users.
func documentedKubectl(t *testing.T) map[string][][]string {
	t.Helper()
	commands := map[string][][]string{}
	found := 0
	for path, content := range filesForUsers(t) {
		content = strings.ReplaceAll(content, "{{ .Release.Namespace }}", "bpfman") // a template of Helm
		for _, match := range kubectlCommand.FindAllStringSubmatch(strings.ReplaceAll(content, "\\\n", " "), -1) {
			// A sentence can begin with kubectl.
			if words := shellWords(match[1]); len(words) > 0 && words[0] != "bpfman" && !strings.HasSuffix(strings.TrimSpace(match[1]), ".") {
				commands[path] = append(commands[path], words)
				found++
			}
		}
	}
	if found < 100 {
		t.Errorf("found only %d commands", found)
	}
	return commands
}

// filesForUsers returns the pages, manifests, and notes with commands for users, by path.
func filesForUsers(t *testing.T) map[string]string {
	t.Helper()
	contents := map[string]string{}
	for _, top := range []string{"README.md", "CONTRIBUTING.md", "docs", "charts", "config", "examples", "hack/cluster", "tests/README.md"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, _ fs.DirEntry, err error) error {
			if slices.Contains([]string{".md", ".yaml", ".txt"}, filepath.Ext(path)) {
				contents[path] = string(must.Read(t, path))
			}
			return err
		})
		must.Succeed(t, err)
	}
	return contents
}

var shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)

var quoted = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)

// shellWords splits a command like a shell, without what follows a comment sign.
func shellWords(command string) []string {
	var words []string
	for _, word := range shellWord.FindAllString(command, -1) {
		if strings.HasPrefix(word, "#") {
			break
		}
		words = append(words, quoted.ReplaceAllString(word, "$1$2"))
	}
	return words
}

// cluster knows what a cluster with bpfman has.
type cluster struct {
	kinds    sets.Set[string]          // each name of each kind
	examples map[string]map[string]any // an object of each of bpfman's kinds with all fields, by the kind's names
	texts    sets.Set[string]          // the constants of the API: types of conditions, names of labels
}

// foreignKinds are kinds that the pages name and that others define: the Operator Lifecycle Manager, upstream before and
// after its releases with this API, the operators of NetObserv and Ingress Node Firewall, and Kubernetes' aggregation layer.
var foreignKinds = []string{
	"operators.operators.coreos.com", "subscription", "installplan", "clusterserviceversions", "csv",
	"clusterbpfapplications", "bpfapplicationstates", "clusterbpfapplicationstates", "configs.bpfman.io",
	"flowcollector", "ingressnodefirewall", "ingressnodefirewallconfig",
	"crd", "crds", "ns", "pod", "svc", "cm", "ds", "deploy",
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{kinds: sets.New(foreignKinds...), examples: map[string]map[string]any{}, texts: sets.New[string]()}
	for kind := range scheme.Scheme.AllKnownTypes() {
		plural, singular := meta.UnsafeGuessKindToResource(kind)
		c.kinds.Insert(plural.Resource, singular.Resource)
	}
	c.kinds.Insert("customresourcedefinition", "customresourcedefinitions", "endpoints")
	files, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	must.Succeed(t, err)
	for _, file := range files {
		var definition apiextensionsv1.CustomResourceDefinition
		must.Succeed(t, yaml.UnmarshalStrict(must.Read(t, file), &definition))
		example, _ := exampleOf(*definition.Spec.Versions[0].Schema.OpenAPIV3Schema).(map[string]any)
		example["metadata"] = map[string]any{"name": "", "namespace": "", "labels": map[string]any{"kubernetes.io/hostname": ""}}
		names := definition.Spec.Names
		for _, name := range append([]string{names.Plural, names.Singular, names.Plural + "." + definition.Spec.Group}, names.ShortNames...) {
			c.kinds.Insert(name)
			c.examples[name] = example
		}
		c.kinds.Insert(names.Categories...)
	}
	eachFile(t, []string{"apis"}, func(_ string, file *ast.File) {
		for spec := range constantsOf(file) {
			if text, ok := textOf(t, spec.Values[0]); ok {
				c.texts.Insert(text)
			}
		}
	})
	return c
}

// exampleOf returns a value that has every field of a schema, and one item in each list.
func exampleOf(schema apiextensionsv1.JSONSchemaProps) any {
	switch schema.Type {
	case "array":
		return []any{exampleOf(*schema.Items.Schema)}
	case "object":
		object := map[string]any{}
		for name, field := range schema.Properties {
			object[name] = exampleOf(field)
		}
		return object
	default:
		return schema.Type
	}
}

// verbs are those whose arguments are a kind and names.
var verbs = sets.New("annotate", "delete", "describe", "edit", "explain", "get", "label", "patch", "scale", "wait")

// valueFlags are flags whose value can be the next word.
var valueFlags = sets.New(
	"-c", "-f", "-k", "-L", "-l", "-n", "-o", "-p", "--container", "--context", "--field-selector", "--filename", "--for", "--kubeconfig",
	"--namespace", "--output", "--patch", "--raw", "--request-timeout", "--selector", "--sort-by", "--timeout", "--type",
)

// check returns an error if a cluster with bpfman doesn't know something of a command.
func (c cluster) check(words []string) error {
	arguments, options := parseCommand(words)
	if len(arguments) < 2 || !verbs.Has(arguments[0]) || strings.HasPrefix(arguments[1], "$") {
		return nil
	}
	if arguments[0] == "explain" {
		kind, path, _ := strings.Cut(arguments[1], ".")
		return c.printed(kind, false, "."+path)
	}
	for _, argument := range arguments[1:] {
		if strings.Contains(argument, "=") || strings.HasSuffix(argument, "-") {
			continue // a label or annotation
		}
		kinds, name, isPair := strings.Cut(argument, "/")
		for kind := range strings.SplitSeq(kinds, ",") {
			if !c.kinds.Has(strings.ToLower(kind)) {
				return fmt.Errorf("there is no kind %q", kind)
			}
			one := isPair && name != "" || len(arguments) > 2
			if err := c.options(strings.ToLower(kind), one, options); err != nil {
				return err
			}
		}
		if !isPair {
			break // names follow
		}
	}
	return nil
}

// parseCommand separates flags with their values from arguments.
func parseCommand(words []string) (arguments []string, options [][2]string) {
	for i := 0; i < len(words) && words[i] != "--"; i++ {
		if !strings.HasPrefix(words[i], "-") || words[i] == "-" {
			arguments = append(arguments, words[i])
			continue
		}
		flag, value, joined := strings.Cut(words[i], "=")
		if valueFlags.Has(flag) && !joined && i+1 < len(words) {
			i++
			value = words[i]
		}
		options = append(options, [2]string{flag, value})
	}
	return arguments, options
}

// options checks what is printed or awaited of a kind, and by which labels it is selected.
func (c cluster) options(kind string, one bool, options [][2]string) error {
	if c.examples[kind] == nil {
		return nil
	}
	for _, option := range options {
		var err error
		format, path, _ := strings.Cut(option[1], "=")
		switch option[0] + " " + format {
		case "-o jsonpath", "--output jsonpath":
			err = c.printed(kind, !one, path)
		case "-o custom-columns", "--output custom-columns":
			for column := range strings.SplitSeq(path, ",") {
				_, field, _ := strings.Cut(column, ":")
				if err = c.printed(kind, false, field); err != nil {
					return err
				}
			}
		case "--for condition":
			if condition, _, _ := strings.Cut(path, "="); !c.texts.Has(condition) {
				err = fmt.Errorf("there is no condition %q", condition)
			}
		case "--for jsonpath":
			field, _, _ := strings.Cut(path, "}=")
			err = c.printed(kind, false, strings.TrimSuffix(field, "}")+"}")
		}
		switch option[0] {
		case "--sort-by":
			err = c.printed(kind, false, option[1])
		case "-l", "--selector":
			if label := format; strings.HasPrefix(label, "bpfman.io/") && !c.texts.Has(label) {
				err = fmt.Errorf("there is no label %q", label)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printed evaluates a path on an object with all fields, or on a list of it.
func (c cluster) printed(kind string, list bool, path string) error {
	example := c.examples[kind]
	if example == nil && c.kinds.Has(kind) {
		return nil
	}
	if example == nil {
		return fmt.Errorf("there is no kind %q", kind)
	}
	if !strings.HasPrefix(path, "{") {
		path = "{" + path + "}"
	}
	evaluator := jsonpath.New(kind)
	if err := evaluator.Parse(path); err != nil {
		return err
	}
	if list {
		return evaluator.Execute(io.Discard, map[string]any{"items": []any{example}})
	}
	return evaluator.Execute(io.Discard, example)
}
