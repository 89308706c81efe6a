// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspectors

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Nobody waits for an inspector that has ended, and its last answer isn't lost.
func TestRounds(t *testing.T) {
	why := errors.New("the node is gone")
	for name, c := range map[string]struct {
		events []string // a node that answers, or with a minus sign, that ends
		want   []string
	}{
		"all answer once":        {[]string{"a", "b", "c", "-a", "-b", "-c"}, []string{"map[a:0 b:1 c:2] 0", "map[] 3"}},
		"each ends at once":      {[]string{"a", "-a", "b", "-b", "c", "-c"}, []string{"map[a:0 b:2 c:4] 2", "map[] 3"}},
		"one never answers":      {[]string{"a", "b", "-c", "a", "b"}, []string{"map[a:0 b:1] 1", "map[a:3 b:4] 1"}},
		"one ends later":         {[]string{"a", "b", "c", "a", "-b", "c", "a", "c"}, []string{"map[a:0 b:1 c:2] 0", "map[a:3 c:5] 1", "map[a:6 c:7] 1"}},
		"one answers repeatedly": {[]string{"a", "a", "b", "c"}, []string{"map[a:1 b:2 c:3] 0"}},
		"one answers again":      {[]string{"a", "b", "c", "-c", "a", "b", "c", "a", "b", "c"}, []string{"map[a:0 b:1 c:2] 0", "map[a:4 b:5] 1", "map[a:7 b:8 c:6] 0"}},
		"none answers":           {[]string{"-a", "-b", "-c"}, []string{"map[] 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			var errs []error
			rounds := Rounds[int]{Asked: 3, Show: func(answers map[string]int, ended map[string]error) error {
				got = append(got, fmt.Sprint(answers, " ", len(ended)))
				return nil
			}}
			for n, event := range c.events {
				if node, ends := strings.CutPrefix(event, "-"); ends {
					errs = append(errs, rounds.Ended(node, why))
				} else {
					errs = append(errs, rounds.Answered(node, n))
				}
			}
			if err := errors.Join(errs...); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("rounds %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
