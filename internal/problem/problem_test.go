// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Each problem has a name of its own, and something to do, and its links are in what to do.
func TestRows(t *testing.T) {
	named := map[problem.Reason]bool{}
	for _, section := range problem.Table() {
		for _, row := range section.Rows {
			if named[row.Reason] || row.Reason == "" || row.ToDo == "" {
				t.Errorf("%+v", row)
			}
			named[row.Reason] = true
			for _, link := range row.Links {
				if !strings.Contains(row.ToDo, link.Text) || link.Page == "" {
					t.Errorf("%s: %+v", row.Reason, link)
				}
			}
		}
	}
}

// An error has the first problem that one in its tree names.
func TestOf(t *testing.T) {
	t.Parallel()
	full := problem.Errorf(problem.InterfaceFull, "no room: %w", errors.New("cause"))
	for want, err := range map[problem.Reason]error{
		"":                      errors.Join(nil, errors.New("nobody knows")),
		problem.InterfaceFull:   fmt.Errorf("attach to lo: %w", errors.Join(errors.New("nobody knows"), full, problem.Errorf(problem.PodGone, "later"))),
		problem.PinNotTheCause:  problem.Errorf(problem.PinNotTheCause, "around: %w", full),
		problem.NoSuchInterface: fmt.Errorf("%w: %w", &problem.Error{Err: errors.New("unnamed")}, problem.Errorf(problem.NoSuchInterface, "beside")),
	} {
		if got := problem.Of(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if err := fmt.Errorf("attach to lo: %w", full); err.Error() != "attach to lo: no room: cause" {
		t.Errorf("the text is %q", err)
	}
	if problem.Of(nil) != "" {
		t.Error("no error has a problem")
	}
}

// A problem that only a newer version knows has no remedy.
func TestToDo(t *testing.T) {
	t.Parallel()
	if problem.ToDo(problem.BeingDeleted) == "" || problem.ToDo("OfTheFuture") != "" || problem.ToDo("") != "" {
		t.Error("what to do isn't that of the table")
	}
}

// Only names of the table are read, because they reach the status of objects.
func TestUnmarshal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]problem.Reason{`"NotSigned"`: problem.NotSigned, `"OfTheFuture"`: "", `""`: ""} {
		got := problem.NotSigned
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	if content, err := json.Marshal(problem.NotSigned); err != nil || string(content) != `"NotSigned"` {
		t.Errorf("%s, %v", content, err)
	}
}
