// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/verifierlog"
)

// A log arrives whole, in lines of limited length that never end within a character.
func TestLog(t *testing.T) {
	t.Parallel()
	store, owner := verifierlog.Store{Dir: t.TempDir()}, verifierlog.Owner{Kind: "TcxProgram", Name: "counter"}
	want := map[string]bool{"": true, "x" + strings.Repeat("é", maxPart): true, strings.Repeat("y", maxPart): true, "one line": true}
	for text := range want {
		if err := store.Put(owner, text, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Put(owner, "damaged", "\xff"); err != nil {
		t.Fatal(err)
	}
	want["\uFFFD"] = true
	if err := store.Put(verifierlog.Owner{Kind: "TcxProgram", Name: "other"}, "", "of another object"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Log(store, owner, &out); err != nil {
		t.Fatal(err)
	}
	text := ""
	for lines := json.NewDecoder(&out); ; {
		var line live.LogLine
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(line.Text) > maxPart || strings.ContainsRune(line.Text, '\uFFFD') && line.Text != "\uFFFD" {
			t.Errorf("a line with %d bytes", len(line.Text))
		}
		if text += line.Text; line.End {
			if !want[text] {
				t.Errorf("a text of %d bytes that nobody wrote: %.20q", len(text), text)
			}
			delete(want, text)
			text = ""
		}
	}
	if len(want) > 0 || text != "" {
		t.Errorf("%d texts are missing, and %.20q has no end", len(want), text)
	}
}
