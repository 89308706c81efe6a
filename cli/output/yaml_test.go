// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package output

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// Nothing in YAML changes how a terminal shows the rest, such as the direction of the text after it.
func TestYAML(t *testing.T) {
	for value, want := range map[string]string{
		"plain":                   "name: plain\n",
		"two\nlines":              "name: |-\n  two\n  lines\n",
		"a\u202etxt.exe":          `name: "a\u202etxt.exe"` + "\n",
		"a\nb\u202e":              `name: "a\nb\u202e"` + "\n",
		"\x1b[2J\x01\u009b\u2066": `name: "\u001b[2J\u0001\u009b\u2066"` + "\n",
		`\x01202e\x01`:            `name: "\u005cx01202e\u005cx01"` + "\n",
		`C:\bpf`:                  `name: C:\bpf` + "\n",
		"tag \U000e0041":          `name: "tag \U000e0041"` + "\n",
	} {
		if got, err := YAML(map[string]string{"name": value}); err != nil || string(got) != want {
			t.Errorf("%q is %s, %v, want %s", value, got, err, want)
		}
	}
	if got, err := YAML(struct {
		ID int64 `json:"id"`
	}{1 << 60}); err != nil || string(got) != "id: 1152921504606846976\n" {
		t.Errorf("%s, %v", got, err)
	}
}

func FuzzYAML(f *testing.F) {
	for _, s := range []string{"xdp_pass", "\x1b[2J", "\u009b31m", "\xff", "a\u202eb", "\n\t\r", "\U000e0041", "\u2028", `\x01202e\x01`, "\x01202e\x01", "'\u202e: \"", strings.Repeat("long ", 50) + "\u202e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		value := map[string]any{s: []any{s, map[string]any{"k": s}}}
		text, err := YAML(value)
		if err != nil {
			t.Fatal(err)
		}
		if terminal.Text(string(text)) != string(text) {
			t.Errorf("YAML of %q has what isn't printable: %q", s, text)
		}
		var got, want any
		plain, err := json.Marshal(value) // which replaces what isn't valid UTF-8
		if err != nil || json.Unmarshal(plain, &want) != nil || yaml.Unmarshal(text, &got) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("YAML of %q means something else: %s", s, text)
		}
	})
}
