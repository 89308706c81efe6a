// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// YAML returns a value as YAML in which all characters that aren't printable are escaped, except for line breaks and tabs. The
// encoder escapes few of them, and not those that change the direction of text.
func YAML(value any) ([]byte, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", value, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(plain))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return nil, fmt.Errorf("encode %T: %w", value, err)
	}
	if plain, err = json.Marshal(marked(content)); err != nil {
		return nil, fmt.Errorf("encode %T: %w", value, err)
	}
	text, err := yaml.JSONToYAML(plain)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", value, err)
	}
	return marks.ReplaceAllFunc(text, func(mark []byte) []byte {
		code := mark[len(`\x01`) : len(mark)-len(`\x01`)]
		if len(code) > len("ffff") {
			return fmt.Appendf(nil, `\U%08s`, code)
		}
		return fmt.Appendf(nil, `\u%04s`, code)
	}), nil
}

// marks are the marks of mark in YAML. The encoder escapes their first and last characters, so the string is in double quotes,
// where escapes have a meaning.
var marks = regexp.MustCompile(`\\x01[0-9a-f]+\\x01`)

// marked marks the characters to escape.
func marked(content any) any {
	switch content := content.(type) {
	case string:
		return mark(content)
	case []any:
		for i := range content {
			content[i] = marked(content[i])
		}
	case map[string]any:
		all := make(map[string]any, len(content))
		for key, value := range content {
			all[mark(key)] = marked(value)
		}
		return all
	}
	return content
}

// mark replaces characters with their codes between two control characters. In a text that has such an escape itself, these are
// also backslashes.
func mark(s string) string {
	escapes := strings.Contains(s, `\x01`)
	if terminal.Text(s) == s && !escapes {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if c := string(r); terminal.Text(c) == c && (!escapes || r != '\\') {
			b.WriteString(c)
		} else {
			b.WriteString("\x01" + strconv.FormatInt(int64(r), 16) + "\x01")
		}
	}
	return b.String()
}
