// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// documented finds a command of the plugin: on a line of a page's code, or of a manifest, or between backticks. What
// follows in the shell isn't part of it.
var documented = regexp.MustCompile("(?m)(^[ \\t]*(?:[$] )?|`|')kubectl bpfman ?([^`'\\n|;&<>#]*)")

// TestDocumentedCommands parses each command of the plugin that the documentation, the charts, and the manifests name:
// its subcommands and flags exist, and a whole line of code has as many arguments as the command takes.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	for _, path := range documents(t) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range documented.FindAllStringSubmatch(string(content), -1) {
			if strings.Contains(match[2], "⇥") {
				continue // a shell completes it
			}
			found++
			line := strings.TrimSpace(match[1]) == "" || strings.HasSuffix(match[1], "$ ")
			if err := parse(strings.Fields(match[2]), line); err != nil {
				t.Errorf("%s: kubectl bpfman %s: %v", path, match[2], err)
			}
		}
	}
	if found < 100 {
		t.Errorf("found only %d commands", found)
	}
}

// documents are the files that name commands to users.
func documents(t *testing.T) []string {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	paths := []string{filepath.Join(root, "README.md")}
	for _, dir := range []string{"docs", "charts", "config", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if slices.Contains([]string{".md", ".yaml", ".txt"}, filepath.Ext(path)) {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// parse parses a command without running it. The number of arguments only counts for a whole command.
func parse(arguments []string, whole bool) error {
	flags := genericclioptions.NewConfigFlags(true)
	command := root(genericiooptions.NewTestIOStreamsDiscard(), nil)
	flags.AddFlags(command.PersistentFlags())
	command.InitDefaultHelpFlag()
	at, rest, err := command.Find(arguments)
	if err != nil {
		return err
	}
	at.InitDefaultHelpFlag()
	if err := at.ParseFlags(rest); err != nil {
		return err
	}
	if help := at.Flags().Lookup("help"); !whole || help != nil && help.Changed {
		return nil
	}
	if at.HasSubCommands() && !at.Runnable() {
		return pflag.ErrHelp
	}
	return at.ValidateArgs(at.Flags().Args())
}
