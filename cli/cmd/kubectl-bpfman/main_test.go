// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestDocumentedCommandsExist checks that the pages only name commands that exist, with flags that they have.
func TestDocumentedCommandsExist(t *testing.T) {
	named := regexp.MustCompile("kubectl bpfman ((?:[a-z]+ )*[a-z]+)((?: [^`\n]*)?)")
	flag := regexp.MustCompile(` --([a-z][a-z-]*)`)
	command := root(genericiooptions.NewTestIOStreamsDiscard(), nil)
	found := 0
	err := filepath.WalkDir("../../../docs", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range named.FindAllStringSubmatch(string(page), -1) {
			if found++; match[1] == "wh" {
				continue // what a reader types before the shell completes it
			}
			c, _, err := command.Find(strings.Fields(match[1]))
			if err != nil || c == command {
				t.Errorf("%s: there is no command %q", path, match[0])
				continue
			}
			own, _, _ := strings.Cut(match[2], " | ")
			for _, f := range flag.FindAllStringSubmatch(own, -1) {
				if c.Flags().Lookup(f[1]) == nil && f[1] != "namespace" && f[1] != "context" {
					t.Errorf("%s: %q has no flag --%s", path, match[0], f[1])
				}
			}
		}
		return nil
	})
	if err != nil || found < 100 {
		t.Errorf("found %d commands, error %v", found, err)
	}
}

// TestOutputFormats checks that each command that prints data has it in JSON, too.
func TestOutputFormats(t *testing.T) {
	// These print what they did, or serve a page.
	acts := []string{"push", "pause", "restart", "resume", "ui", "undo"}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			visit(child)
		}
		if !c.HasSubCommands() && slices.Contains(acts, c.Name()) == (c.Flags().Lookup("output") != nil) {
			t.Errorf("%s: has the flag --output, or lacks it", c.CommandPath())
		}
	}
	visit(root(genericiooptions.NewTestIOStreamsDiscard(), nil))

	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	command := root(streams, nil)
	command.SetArgs([]string{"version", "--client", "-o", "jsonpath={.kind} {.version} {.platform}"})
	if err := command.Execute(); err != nil || out.String() != "PluginVersion dev "+runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("version prints %q, error %v", out, err)
	}
}
