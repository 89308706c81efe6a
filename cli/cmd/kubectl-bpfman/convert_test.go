// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const (
	application = `apiVersion: bpfman.io/v1alpha1
kind: BpfApplication
metadata: {name: packets, namespace: acme}
spec:
  nodeSelector: {}
  byteCode: {path: /app.o}
  programs:
  - {name: f, type: UProbe, uprobe: {links: [{target: libc, containers: {pods: {}}}]}}
`
	lossy = application + "  mapOwnerSelector: {matchLabels: {a: b}}\n"

	wantYAML = `apiVersion: bpfman.io/v1alpha1
kind: BpfNsApplication
metadata:
  name: packets
  namespace: acme
spec:
  bytecode:
    path: /app.o
  nodeselector: {}
  programs:
  - type: Uprobe
    uprobe:
      bpffunctionname: f
      containers:
        pods: {}
      target: libc
`
	lostSelector = "lost: BpfApplication acme/packets: spec.mapOwnerSelector: "
)

// run runs the command in a directory with files.
func run(t *testing.T, files map[string]string, stdin string, args ...string) (out, messages string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	command := root(genericiooptions.IOStreams{}, nil)
	var stdout, stderr bytes.Buffer
	command.SetIn(strings.NewReader(stdin))
	command.SetOut(&stdout)
	command.SetErr(&stderr)
	command.SetArgs(append([]string{"convert"}, args...))
	err = command.Execute()
	return stdout.String(), stderr.String(), err
}

func TestConvert(t *testing.T) {
	for name, test := range map[string]struct {
		files         map[string]string
		stdin         string
		args          []string
		out, messages string
		err           string
	}{
		"a file":              {files: map[string]string{"a.yaml": application}, args: []string{"-f", "a.yaml"}, out: wantYAML},
		"standard input":      {stdin: application, args: []string{"-f", "-"}, out: wantYAML},
		"several":             {stdin: application, files: map[string]string{"a": application}, args: []string{"-f", "-", "-f", "a"}, out: wantYAML + "---\n" + wantYAML},
		"a directory":         {files: map[string]string{"b.yml": application, "a.json": "{\"apiVersion\":\"v1\",\"kind\":\"A\"}", "README.md": "#"}, args: []string{"-f", "."}, out: "apiVersion: v1\nkind: A\n---\n" + wantYAML},
		"a loss":              {stdin: lossy, args: []string{"-f", "-"}, out: wantYAML, messages: lostSelector},
		"a loss, strict":      {stdin: lossy, args: []string{"-f", "-", "--strict"}, messages: lostSelector, err: errLoss.Error()},
		"no loss, strict":     {stdin: application, args: []string{"-f", "-", "--strict"}, out: wantYAML},
		"one that can't be":   {stdin: application + "---\n" + strings.ReplaceAll(application, "UProbe", "Uprobe"), args: []string{"-f", "-"}, err: `standard input, document 2: BpfApplication acme/packets: spec.programs[0].type: "Uprobe" isn't a type of program`},
		"no such file":        {args: []string{"-f", "absent.yaml"}, err: "absent.yaml: no such file or directory"},
		"no file":             {err: `required flag(s) "filename" not set`},
		"no such format":      {args: []string{"-f", "-", "-o", "wide"}, err: `output format "wide" is neither yaml nor json`},
		"arguments":           {args: []string{"-f", "-", "more"}, err: "the usage is kubectl bpfman convert"},
		"nothing to convert":  {stdin: "", args: []string{"-f", "-"}},
		"one object, JSON":    {stdin: "apiVersion: v1\nkind: A\n", args: []string{"-f", "-", "-o", "json"}, out: "{\n    \"apiVersion\": \"v1\",\n    \"kind\": \"A\"\n}\n"},
		"no object, JSON":     {stdin: "", args: []string{"-f", "-", "-o", "json"}, out: "{\n    \"apiVersion\": \"v1\",\n    \"items\": [],\n    \"kind\": \"List\"\n}\n"},
		"not an object, JSON": {stdin: "{}", args: []string{"-f", "-", "-o", "json"}, err: "standard input, document 1: not a Kubernetes object"},
	} {
		t.Run(name, func(t *testing.T) {
			out, messages, err := run(t, test.files, test.stdin, test.args...)
			if out != test.out {
				t.Errorf("printed:\n%s\nwant:\n%s", out, test.out)
			}
			if !strings.HasPrefix(messages, test.messages) || (messages == "") != (test.messages == "") {
				t.Errorf("said %q, want %q", messages, test.messages)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if strict := test.err == errLoss.Error(); errors.Is(err, errLoss) != strict {
				t.Errorf("%v is a loss, want %v", err, strict)
			}
		})
	}
}
