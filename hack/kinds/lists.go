// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// list is a list of names in a file that is written by hand.
type list struct {
	file  string
	names []name
	// item is how the file writes a name: {kind} is the kind, or the type of a program, {resource} the plural name in
	// lower case, {page} the kind in lower case, {bytecode} the field with the bytecode, and {sample} the sample of the kind with
	// the shortest name.
	item string
	// between separates items on the same line. If it is empty, each item has a line.
	between string
}

type name struct{ kind, resource string }

var lists = []list{
	{"config/crd/kustomization.yaml", all(), "- bases/bpfman.io_{resource}.yaml", ""},
	{"config/rbac/bpfman-agent/role.yaml", users(), "- {resource}", ""},
	{"config/rbac/bpfman-operator/role.yaml", users(), "- {resource}", ""},
	{"config/rbac/bpfman-operator/role.yaml", users(), "- {resource}/status", ""},
	{"config/admission/policy.yaml", users(), "- {resource}/status", ""},
	{"config/admission/globaldata.yaml", users(), "- {resource}", ""},
	{"config/admission/bytecodepolicies/policy.yaml", users(), "- {resource}", ""},
	{"config/hardened/kyverno.yaml", users(), "- bpfman.io/v1alpha1/{kind}", ""},
	{"config/hardened/kyverno.yaml", users(), "{kind}: [{path: /spec/{bytecode}/image/url}]", ""},
	{"config/manifests/bases/bpfman-operator.clusterserviceversion.yaml", ofScope(false), "{kind}", ", "},
	{"config/manifests/bases/bpfman-operator.clusterserviceversion.yaml", ofScope(true), "{kind}", ", "},
	{"config/samples/kustomization.yaml", written(), "- {sample}", ""},
	{"apis/v1alpha1/bytecodepolicy.go", users(), "{kind}", ";"},
	{"apis/v1alpha1/bytecodepolicy.go", types(), "{kind}", ";"},
	{"apis/v1alpha1/rolloutpolicy.go", users(), "{kind}", ";"},
	{"apis/v1alpha1/rolloutpolicy.go", types(), "{kind}", ";"},
	{"mkdocs.yml", documented(), "- {kind}: reference/api/{page}.md", ""},
	{"docs/first-day.md", written(), "{resource}", ","},
	{"docs/from-upstream.md", users(), "{resource}", ","},
	{"docs/install.md", ofScope(false), "{resource}", ","},
	{"docs/install.md", ofScope(true), "{resource}", ","},
	{"docs/olm.md", ofScope(false), "{resource}", ","},
	{"docs/olm.md", ofScope(true), "{resource}", ","},
}

// all returns all kinds, in the order of the alphabet.
func all() []name {
	names := choose(func(v1alpha1.Kind[v1alpha1.Object]) bool { return true })
	slices.SortFunc(names, func(a, b name) int { return strings.Compare(a.kind, b.kind) })
	return names
}

// documented returns all kinds, with those whose definitions are optional.
func documented() []name {
	names := all()
	for _, k := range v1alpha1.StateKinds {
		names = append(names, name{k.Name, k.Resource()})
	}
	slices.SortFunc(names, func(a, b name) int { return strings.Compare(a.kind, b.kind) })
	return names
}

// written returns the kinds that users and administrators write.
func written() []name {
	return choose(func(k v1alpha1.Kind[v1alpha1.Object]) bool { return !isReport(k.Name) })
}

// users returns the kinds that load bytecode.
func users() []name {
	return choose(func(k v1alpha1.Kind[v1alpha1.Object]) bool { return loads(k.Name) })
}

func ofScope(namespaced bool) []name {
	return choose(func(k v1alpha1.Kind[v1alpha1.Object]) bool { return loads(k.Name) && k.Namespaced == namespaced })
}

// types returns the types of programs, with their names in policies.
func types() []name {
	found := map[string]bool{}
	for _, k := range v1alpha1.UserKinds {
		members, _ := k.New().Members()
		for _, m := range members {
			found[string(m.Info().ProgramType())] = true
		}
	}
	var names []name
	for _, t := range slices.Sorted(maps.Keys(found)) {
		names = append(names, name{kind: t})
	}
	return names
}

func choose(include func(v1alpha1.Kind[v1alpha1.Object]) bool) []name {
	var names []name
	for _, k := range v1alpha1.AllKinds() {
		if include(k) {
			names = append(names, name{k.Name, k.Resource()})
		}
	}
	return names
}

func loads(kind string) bool {
	return slices.ContainsFunc(v1alpha1.UserKinds, func(k v1alpha1.Kind[v1alpha1.UserObject]) bool { return k.Name == kind })
}

// isReport reports whether the agent or the inspector writes objects of the kind.
func isReport(kind string) bool {
	return kind == v1alpha1.NodeKind.Name ||
		slices.ContainsFunc(v1alpha1.ProgramKinds, func(k v1alpha1.Kind[v1alpha1.ProgramObject]) bool { return k.Name == kind })
}

// rewrite replaces each run of at least two items that starts with one of the list's names. It returns an error if there
// is none.
func (l list) rewrite(text string) (string, error) {
	items := make([]string, len(l.names))
	for i, n := range l.names {
		page := strings.ToLower(n.kind)
		items[i] = strings.NewReplacer("{kind}", n.kind, "{resource}", n.resource, "{page}", page, "{bytecode}", bytecodeField(n.kind)).Replace(l.item)
		if strings.Contains(l.item, "{sample}") {
			sample, err := sampleOf(page)
			if err != nil {
				return "", err
			}
			items[i] = strings.ReplaceAll(l.item, "{sample}", sample)
		}
	}
	found := false
	text = l.runs().ReplaceAllStringFunc(text, func(run string) string {
		first, between := strings.TrimLeft(run, " "), l.between
		indent := run[:len(run)-len(first)]
		if between == "" {
			between = "\n" + indent
		}
		if first, _, _ = strings.Cut(first, between); !slices.Contains(items, first) {
			return run
		}
		found = true
		return indent + strings.Join(items, between)
	})
	if !found {
		return "", fmt.Errorf("it has no list of items such as %q", items[0])
	}
	return text, nil
}

// bytecodeField returns the field of a kind's spec with the bytecode.
func bytecodeField(kind string) string {
	if kind == "ClusterBpfApplication" {
		return "byteCode"
	}
	return "bytecode"
}

func sampleOf(kind string) (string, error) {
	files, err := filepath.Glob("config/samples/bpfman.io_v1alpha1_*.yaml")
	if err != nil {
		return "", fmt.Errorf("list the samples: %w", err)
	}
	sample := ""
	for _, file := range files {
		file = filepath.Base(file)
		of := strings.TrimSuffix(file, ".yaml")
		if strings.HasSuffix(of, "_"+kind) && (sample == "" || len(file) < len(sample)) {
			sample = file
		}
	}
	if sample == "" {
		return "", fmt.Errorf("there is no sample config/samples/bpfman.io_v1alpha1_*_%s.yaml", kind)
	}
	return sample, nil
}

// runs returns an expression for two or more items, one after the other.
func (l list) runs() *regexp.Regexp {
	word := regexp.QuoteMeta(l.item)
	for placeholder, form := range map[string]string{"{kind}": "[A-Z][A-Za-z]+", "{resource}": "[a-z]+", "{page}": "[a-z]+", "{bytecode}": "[a-zA-Z]+", "{sample}": `bpfman\.io_v1alpha1_[a-z_]+\.yaml`} {
		word = strings.ReplaceAll(word, regexp.QuoteMeta(placeholder), form)
	}
	if l.between == "" {
		return regexp.MustCompile(`(?m)^ *` + word + `(\n *` + word + `)+$`)
	}
	return regexp.MustCompile(`\b` + word + `(` + regexp.QuoteMeta(l.between) + word + `)+\b`)
}
