// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Each problem has a name of its own, messages, and something to do, and its links are in what to do.
func TestRows(t *testing.T) {
	named := map[problem.Reason]bool{}
	for _, section := range problem.Table() {
		for _, row := range section.Rows {
			if named[row.Reason] || len(row.Messages)+len(row.Daemon) == 0 || row.ToDo == "" || row.Reason.ToDo() != row.ToDo {
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

func TestOf(t *testing.T) {
	plain := errors.New("plain")
	missing := problem.NoSuchInterface.Errorf("the node has no interface %s", "eth7")
	for name, test := range map[string]struct {
		err  error
		want problem.Reason
	}{
		"none":                        {nil, ""},
		"nobody said":                 {fmt.Errorf("attach: %w", plain), ""},
		"wrapped":                     {fmt.Errorf("attach: %w", missing), problem.NoSuchInterface},
		"joined":                      {errors.Join(plain, missing, problem.InterfaceFull.New("full")), problem.NoSuchInterface},
		"who wraps it knows better":   {problem.LoadSlow.Errorf("too slow: %w", missing), problem.LoadSlow},
		"who wraps it knows less":     {problem.StoreUnusable.Unless(fmt.Errorf("read: %w", missing)), problem.NoSuchInterface},
		"nobody but who wraps it":     {problem.StoreUnusable.Unless(plain), problem.StoreUnusable},
		"nothing that somebody wraps": {problem.StoreUnusable.Unless(nil), ""},
	} {
		if got := problem.Of(test.err); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if missing.Error() != "the node has no interface eth7" || !errors.Is(problem.LoadSlow.Errorf("slow: %w", plain), plain) {
		t.Errorf("%q", missing)
	}
}
