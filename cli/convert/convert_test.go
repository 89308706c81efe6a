// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	"sigs.k8s.io/yaml"
)

// text returns a result as users see it: the objects, then the findings.
func text(t *testing.T, r Result, err error) string {
	t.Helper()
	var out strings.Builder
	for _, o := range r.Objects {
		b, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(b))
	}
	for _, f := range r.Findings {
		out.WriteString("# " + f.String() + "\n")
	}
	if err != nil {
		out.WriteString("# error: " + err.Error() + "\n")
	}
	return out.String()
}

func converted(source string, data []byte) (Result, error) {
	objects, err := Read(source, bytes.NewReader(data))
	if err != nil {
		return Result{}, err
	}
	return Convert(objects)
}

func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range inputs {
		if ext := filepath.Ext(input); ext != ".yaml" && ext != ".json" {
			continue
		}
		t.Run(filepath.Base(input), func(t *testing.T) {
			data, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			result, err := converted(filepath.Base(input), data)
			golden.Assert(t, text(t, result, err), filepath.Base(input)+".golden")
		})
	}
}

// Each field of upstream's v0.6.0 matters: if its value changes, the output changes, or
// there is a finding.
func TestEveryFieldIsConvertedOrNamed(t *testing.T) {
	data, err := os.ReadFile("testdata/every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Read("every-field.yaml", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range objects {
		var in map[string]any
		if err := json.Unmarshal(o.JSON, &in); err != nil {
			t.Fatal(err)
		}
		convert := func() (Result, error) {
			b, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			return Convert([]Object{{JSON: b}})
		}
		result, err := convert()
		if err != nil {
			t.Fatal(err)
		}
		before := text(t, result, nil)
		scope := map[any]string{"ClusterBpfApplication": "cluster", kindApplication: "namespaced"}[in["kind"]]
		walk(in, "", "", func(path, field string, value any, set func(any)) {
			if !strings.HasPrefix(path, "spec.") && !strings.HasPrefix(path, "status.") {
				return
			}
			seen[scope+" "+field] = true
			set(another(value))
			changed, err := convert()
			set(value)
			named := slices.ContainsFunc(result.Findings, func(f Finding) bool { return f.Path != "" && strings.HasPrefix(path, f.Path+".") })
			if text(t, changed, err) == before && !named {
				t.Errorf("%s: another value of %s changes nothing, and nothing is said of it", scope, path)
			}
		})
	}
	for _, field := range fields(t) {
		if !seen[field] {
			t.Errorf("no object of the test has the field %s", field)
		}
	}
}

// fields returns the lines of fields.txt, for each scope that has them.
func fields(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		scope, field, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch scope {
		case "both":
			out = append(out, "cluster "+field, "namespaced "+field)
		case "cluster":
			out = append(out, "cluster "+field)
		}
	}
	return out
}

// walk visits the scalar values of an object, with the path, and the field with [] for
// any item and {} for any key.
func walk(value any, path, field string, visit func(path, field string, value any, set func(any))) {
	child := func(value any, path, field string, set func(any)) {
		switch value.(type) {
		case map[string]any, []any:
			walk(value, path, field, visit)
		default:
			visit(path, field, value, set)
		}
	}
	switch v := value.(type) {
	case map[string]any:
		for key, value := range v {
			under := field + "." + key
			if strings.HasSuffix(field, ".matchLabels") || strings.HasSuffix(field, ".globalData") {
				under = field + "{}"
			}
			child(value, strings.TrimPrefix(path+"."+key, "."), strings.TrimPrefix(under, "."), func(to any) { v[key] = to })
		}
	case []any:
		for i, value := range v {
			child(value, fmt.Sprintf("%s[%d]", path, i), field+"[]", func(to any) { v[i] = to })
		}
	}
}

// another returns a different value of the same type. A value in base64 stays valid.
func another(value any) any {
	switch v := value.(type) {
	case string:
		if strings.HasSuffix(v, "=") {
			return "/w=="
		}
		return v + "x"
	case float64:
		return v + 1
	case bool:
		return !v
	}
	return value
}

// If something can't be converted, the error names the field.
func TestUnconvertible(t *testing.T) {
	const head = `{"apiVersion":"bpfman.io/v1alpha1","metadata":{"name":"x"},`
	program := func(programs string) string {
		return head + `"kind":"BpfApplication","spec":{"nodeSelector":{},"byteCode":{"path":"/x"},"programs":[` + programs + `]}}`
	}
	const pods = `,"networkNamespaces":{"pods":{}}`
	for input, want := range map[string]string{
		head + `"kind":"BpfApplication"}`:                                                                                         "spec.programs: at least one is required",
		head + `"kind":"BpfApplication","spec":{"byteCode":{"path":"/x"}}}`:                                                       "spec.nodeSelector: required",
		head + `"kind":"BpfApplication","spec":{"nodeSelector":{},"byteCode":{"path":"/x","image":{"url":"u"}}}}`:                 "spec.byteCode: exactly one of image and path is required",
		program(`{"name":"f","type":"Xdp","xdp":{}}`):                                                                             `spec.programs[0].type: "Xdp" isn't a type of program`,
		program(`{"name":"f","type":"XDP"}`):                                                                                      "spec.programs[0].xdp: required, as the type is XDP",
		program(`{"name":"f","type":"KProbe","kprobe":{}}`):                                                                       `spec.programs[0].type: "KProbe" isn't a type of program that a BpfApplication`,
		program(`{"name":"f","type":"XDP","xdp":{"links":[{"interfaceSelector":{"primaryNodeInterface":true}}]}}`):                "xdp.links[0].networkNamespaces: required",
		program(`{"name":"f","type":"UProbe","uprobe":{"links":[{"target":"libc"}]}}`):                                            "uprobe.links[0].containers: required",
		program(`{"name":"f","type":"XDP","xdp":{"links":[{"networkNamespaces":{"pods":{}}}]}}`):                                  "interfaceSelector: exactly one of",
		program(`{"name":"f","type":"TC","tc":{"links":[{"interfaceSelector":{"interfaces":[]},"direction":"Up"` + pods + `}]}}`): `tc.links[0].direction: "Up" is neither Ingress nor Egress`,
		program(`{"name":"f","type":"UProbe","uprobe":{"links":[{"target":"f","offset":-1}]}}`):                                   "BpfApplication x: spec.programs.uprobe.links.offset: number -1 instead of an unsigned integer of 64 bits",
		program(`"f"`): "spec.programs: string instead of an object",
		program(`{"name":"f","type":"TCX","tcx":{"links":[{"priority":"1"}]}}`):             "spec.programs.tcx.links.priority: string instead of an integer of 32 bits",
		head + `"kind":"BpfApplication","spec":{"nodeSelector":{},"globalData":{"a":"!"}}}`: "spec.globalData: a is neither base64 nor a list of bytes",
		strings.Replace(program(""), "v1alpha1", "v1", 1):                                   "apiVersion bpfman.io/v1 isn't upstream's v0.6",
	} {
		result, err := converted("input", []byte(input))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", input, err, want)
		}
		if len(result.Objects) > 0 {
			t.Errorf("%s: made %v", input, result.Objects)
		}
	}
}

func TestRead(t *testing.T) {
	for input, want := range map[string]string{
		"":                         "0",
		"# nothing\n---\n# more\n": "0",
		"{\"apiVersion\":\"v1\",\"kind\":\"A\"} {\"apiVersion\":\"v1\",\"kind\":\"B\"}": "2",
		"apiVersion: v1\nkind: A\n---\n---\napiVersion: v1\nkind: B\n":                  "2",
		"apiVersion: v1\nkind: List\nitems: []\n":                                       "0",
		"apiVersion: v1\nkind: AllowList\n":                                             "1",
		"apiVersion: v1\nkind: A\nkind: B\n":                                            `key "kind" already set`,
		"kind: A\n":                                                                     "input, document 1: not a Kubernetes object: no apiVersion or kind",
		"apiVersion: v1\nkind: List\nitems: [7]\n":                                      "items[0]: not a Kubernetes object",
		"apiVersion: v1\nkind: List\nitems: [{kind: A}]\n":                              "items[0]: not a Kubernetes object: no apiVersion",
		"apiVersion: v1\nkind: AList\nitems: [null]\n":                                  "items[0]: not a Kubernetes object: null",
		`{"apiVersion":"v1","kind":"A","kind":"B"}`:                                     "input, document 1: the key /kind is there twice",
		`{"apiVersion":"v1","kind":"AList","items":[],"items":[]}`:                      "input, document 1: the key /items is there twice",
		`{"apiVersion":"v1","kind":"AList","items":[{"spec":{},"spec":{}}]}`:            "input, document 1: the key /items/0/spec is there twice",
		`{"apiVersion":"v1","kind":"AList","items":[{"spec":{"a":1,"a":2}}]}`:           "input, document 1: the key /items/0/spec/a is there twice",
		"{":         "input, document 1: unexpected EOF",
		"[1, 2]":    "read input, document 1: not a Kubernetes object: array instead of an object",
		"just text": "read input, document 1: not a Kubernetes object: string instead of an object",
	} {
		objects, err := Read("input", strings.NewReader(input))
		got := fmt.Sprint(len(objects))
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%q: %s, want %s", input, got, want)
		}
	}
}

// For any input, the output is an object that can be read again.
func FuzzConvert(f *testing.F) {
	inputs, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, input := range inputs {
		data, err := os.ReadFile(input)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		result, err := converted("input", data)
		if err != nil {
			return
		}
		for _, o := range result.Objects {
			b, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := converted("output", b); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
		}
	})
}
