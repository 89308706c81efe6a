// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// TestSignatures checks that the daemon never verifies signatures, and that what the user wanted isn't lost.
func TestSignatures(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want Signatures
	}{
		"nothing":             {"[database]\nmax_retries = 1\n", SignaturesDefault},
		"empty table":         {"[signing]\n", SignaturesDefault},
		"off":                 {"[signing]\nverify_enabled = false\n", SignaturesDefault},
		"on":                  {"[signing]\nverify_enabled = true\n", SignaturesVerified},
		"unsigned allowed":    {"[signing]\nallow_unsigned = true\n", SignaturesDefault},
		"unsigned refused":    {"[signing]\nallow_unsigned = false\n", SignaturesRequired},
		"off, allowed":        {"[signing]\nverify_enabled = false\nallow_unsigned = true\n", SignaturesDefault},
		"off, refused":        {"[signing]\nverify_enabled = false\nallow_unsigned = false\n", SignaturesDefault},
		"on, allowed":         {"[signing]\nverify_enabled = true\nallow_unsigned = true\n", SignaturesVerified},
		"on, refused":         {"[signing]\nverify_enabled = true\nallow_unsigned = false\n", SignaturesRequired},
		"inline":              {"signing = {verify_enabled = true, allow_unsigned = false}\n", SignaturesRequired},
		"dotted":              {"signing.allow_unsigned = false\n", SignaturesRequired},
		"other capital":       {"[signing]\nAllow_Unsigned = false\n", SignaturesDefault}, // the daemon doesn't know the name
		"table in other case": {"[Signing]\nallow_unsigned = false\n", SignaturesDefault},
	} {
		t.Run(name, func(t *testing.T) {
			config := mustParse(t, map[string]string{KeyDaemonTOML: c.file})
			if config.Daemon.Signatures != c.want {
				t.Errorf("signatures are %d, want %d", config.Daemon.Signatures, c.want)
			}
			before, after := map[string]any{}, map[string]any{}
			for text, tables := range map[string]map[string]any{c.file: before, config.Daemon.TOML: after} {
				if _, err := toml.Decode(text, &tables); err != nil {
					t.Fatal(err)
				}
			}
			signing, ok := after["signing"].(map[string]any)
			if !ok || signing["verify_enabled"] != false {
				t.Errorf("the daemon verifies signatures:\n%s", config.Daemon.TOML)
			}
			if was, ok := before["signing"].(map[string]any); ok && was["allow_unsigned"] != signing["allow_unsigned"] {
				t.Errorf("allow_unsigned was %v and is %v", was["allow_unsigned"], signing["allow_unsigned"])
			}
			agent := containers(daemonSet(t, map[string]string{KeyDaemonTOML: c.file}))["bpfman-agent"]
			if required := slices.Contains(agent.Args, "--require-policy"); required != (c.want == SignaturesRequired) {
				t.Errorf("the agent has %q", agent.Args)
			}
			warning := config.Daemon.Signatures.warning()
			if (warning == "") != (c.want == SignaturesDefault) || (warning != "" && !strings.Contains(warning, "docs/signed-bytecode.md")) {
				t.Errorf("the user reads %q", warning)
			}
		})
	}
}

// TestOtherTablesAreKept checks that the rest of the file is the same for the daemon, including tables that only
// another version of the daemon knows.
func TestOtherTablesAreKept(t *testing.T) {
	const file = `# Quotes and templates: {{ .Nothing }} "quoted" 'too' \ é
[interfaces.eth0]
xdp_mode = "drv"
[interfaces."a.b"]
xdp_mode = "skb"
[database]
max_retries = 0x1E
millisec_delay = 4_000_000_000
[signing]
verify_enabled = true
other = "{{ .Nothing }} \"quoted\" \\ é\n"
[new]
floats = [1.0, -0.5, 1e6]
mixed = [1, "a", {b = 1}]
tables = [{a = 1}, {a = 2}]
empty = {}
at = 2026-01-02T03:04:05Z
day = 2026-01-02
text = '''
two
lines'''
`
	got := mustParse(t, map[string]string{KeyDaemonTOML: file}).Daemon.TOML
	before, after := map[string]any{}, map[string]any{}
	for text, tables := range map[string]map[string]any{file: before, got: after} {
		if _, err := toml.Decode(text, &tables); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
	signing, ok := before["signing"].(map[string]any)
	if !ok {
		t.Fatalf("the file has no signing: %v", before)
	}
	signing["verify_enabled"] = false
	// The text of a table doesn't show how the file writes it: inline or not.
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("got %v, want %v, from:\n%s", after, before, got)
	}
	if annotation := daemonSet(t, map[string]string{KeyDaemonTOML: file}).Spec.Template.Annotations["bpfman.io/bpfman.toml"]; annotation != got {
		t.Errorf("the pods have %q, not %q", annotation, got)
	}
}

// TestFileIsStable checks that the same file doesn't replace pods: maps have no order.
func TestFileIsStable(t *testing.T) {
	changes := map[string]string{KeyDaemonTOML: "[interfaces]\na = {xdp_mode = \"skb\"}\nb = {xdp_mode = \"drv\"}\nc = {xdp_mode = \"hw\"}\n"}
	first := mustParse(t, changes).Daemon.TOML
	for range 20 {
		if again := mustParse(t, changes).Daemon.TOML; again != first {
			t.Fatalf("got\n%s\nand\n%s", first, again)
		}
	}
}
