// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/hack/release/olm"
)

var chartDefinitions = regexp.MustCompile(`(?m)^  artifacthub\.io/crds: \|\n(    .*\n)+`)

// inChart replaces the definitions in Chart.yaml by those in a directory, with the words that OLM's catalog has too.
func inChart(text, dir string) (string, error) {
	if !chartDefinitions.MatchString(text) {
		return "", errors.New("it has no annotation artifacthub.io/crds")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return "", fmt.Errorf("list the definitions in %s: %w", dir, err)
	}
	var block strings.Builder
	block.WriteString("  artifacthub.io/crds: |\n")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read a definition: %w", err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(content, &crd); err != nil {
			return "", fmt.Errorf("decode %s: %w", file, err)
		}
		d, err := olm.Describe(&crd)
		if err != nil {
			return "", fmt.Errorf("describe %s: %w", crd.Name, err)
		}
		fmt.Fprintf(&block, "    - kind: %s\n      version: %s\n      name: %s\n      displayName: %s\n      description: %q\n",
			d.Kind, d.Version, d.Name, d.DisplayName, firstSentence(d.Description))
	}
	return chartDefinitions.ReplaceAllLiteralString(text, block.String()), nil
}

func firstSentence(text string) string {
	first, _, _ := strings.Cut(text, ". ")
	return strings.TrimSuffix(first, ".") + "."
}
