// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command reference splits the API reference that crd-ref-docs generates into a page for each kind, with every type that
// the kind uses, and an index. Its arguments are the file, and the output directory, whose content it replaces.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: reference FILE DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(file, directory string) error {
	text, err := os.ReadFile(file) //nolint:gosec // the Makefile names the file and the directory
	if err != nil {
		return fmt.Errorf("read the reference: %w", err)
	}
	if err := os.RemoveAll(directory); err != nil { //nolint:gosec // see above
		return fmt.Errorf("remove the old pages: %w", err)
	}
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // pages are public
		return fmt.Errorf("create the directory of pages: %w", err)
	}
	for name, page := range pages(string(text)) {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(page), 0o644); err != nil { //nolint:gosec // see above
			return fmt.Errorf("write a page: %w", err)
		}
	}
	return nil
}

// section is the section of a type.
type section struct {
	name, text string
	// uses are the anchors of the types of its fields.
	uses []string
}

var (
	kind = regexp.MustCompile(`(?m)^- \[(\w+)\]\(#(\w+)\)$`)
	link = regexp.MustCompile(`\]\(#(\w+)\)`)
	// blanks are more blank lines than Markdown needs.
	blanks = regexp.MustCompile(`\n{3,}`)
	// appearsIn is the list of types that have a field of a type. Some of them are on other pages.
	appearsIn = regexp.MustCompile(`(?s)_Appears in:_\n\n.*?\n\n`)
)

// pages returns the pages by name.
func pages(reference string) map[string]string {
	parts := strings.Split(reference, "\n#### ")
	sections := map[string]section{}
	for _, part := range parts[1:] {
		name, text, _ := strings.Cut(part, "\n")
		text = blanks.ReplaceAllString(appearsIn.ReplaceAllString(text, ""), "\n\n")
		s := section{name: name, text: strings.TrimSpace(text)}
		for _, found := range link.FindAllStringSubmatch(s.text, -1) {
			s.uses = append(s.uses, found[1])
		}
		sections[strings.ToLower(name)] = s
	}
	_, resources, _ := strings.Cut(parts[0], "### Resource Types")
	out := map[string]string{}
	var index strings.Builder
	index.WriteString("# API reference\n\nEach page describes the fields of one kind of bpfman.io/v1alpha1. `kubectl explain` shows the same texts.\n\n| Kind | Description |\n|---|---|\n")
	for _, found := range kind.FindAllStringSubmatch(resources, -1) {
		name, anchor := found[1], found[2]
		fmt.Fprintf(&index, "| [%s](%s.md) | %s |\n", name, anchor, firstSentence(sections[anchor].text))
		out[anchor+".md"] = page(anchor, sections)
	}
	out["index.md"] = index.String()
	return out
}

// page returns the page of a kind: its section, and those of the types that it uses, each before the types of its own fields.
func page(anchor string, sections map[string]section) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\n%s\n", sections[anchor].name, sections[anchor].text)
	next, seen := slices.Clone(sections[anchor].uses), map[string]bool{anchor: true}
	for len(next) > 0 {
		s, known := sections[next[0]]
		if known && !seen[next[0]] {
			fmt.Fprintf(&text, "\n## %s\n\n%s\n", s.name, s.text)
			next = append(next, s.uses...)
		}
		seen[next[0]] = true
		next = next[1:]
	}
	return text.String()
}

// firstSentence returns the first sentence of a section on one line.
func firstSentence(text string) string {
	paragraph, _, _ := strings.Cut(text, "\n\n")
	sentence, _, more := strings.Cut(strings.Join(strings.Fields(paragraph), " "), ". ")
	if more {
		sentence += "."
	}
	return sentence
}
