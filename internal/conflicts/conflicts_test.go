// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package conflicts

import (
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// conflictsOf returns a conflict for each word, which has its type, the namespace of its object, and a number. The fourth part is
// the number of the program.
func conflictsOf(words string) []v1alpha1.BpfNodeConflict {
	var all []v1alpha1.BpfNodeConflict
	for word := range strings.FieldsSeq(words) {
		parts := strings.Split(word, "/")
		c := v1alpha1.BpfNodeConflict{Type: parts[0], Message: word}
		if parts[1] != "" {
			c.Owner = &v1alpha1.BpfNodeOwner{Namespace: parts[1]}
		}
		if len(parts) > 3 {
			c.Owner, c.ProgramID = &v1alpha1.BpfNodeOwner{Name: "cluster's"}, uint32(parts[3][0]-'0')
		}
		all = append(all, c)
	}
	return all
}

func TestFirst(t *testing.T) {
	programs := []v1alpha1.BpfNodeProgram{
		{ID: 1, Owner: &v1alpha1.BpfNodeOwner{Namespace: "a"}},
		{ID: 2, Owner: &v1alpha1.BpfNodeOwner{Namespace: "a"}},
		{ID: 3, Owner: &v1alpha1.BpfNodeOwner{Namespace: "b"}},
		{ID: 4},
	}
	for name, c := range map[string]struct {
		all  string
		n    int
		want string
	}{
		"all":                         {"A/a/1 A/a/2 B//1", 3, "A/a/1 A/a/2 B//1"},
		"one type":                    {"A/a/1 A/a/2 A/a/3", 2, "A/a/1 A/a/2"},
		"types take turns":            {"A/a/1 A/a/2 A/a/3 A/a/4 B//1 B//2 C//1", 4, "A/a/1 A/a/2 B//1 C//1"},
		"namespaces take turns":       {"A/a/1 A/a/2 A/a/3 A/a/4 A/b/1 A/b/2 A/b/3", 4, "A/a/1 A/a/2 A/b/1 A/b/2"},
		"many namespaces of one type": {"A/a/1 A/b/1 A/c/1 A/d/1 A/e/1 B/a/1 B/a/2", 4, "A/a/1 A/b/1 B/a/1 B/a/2"},
		"tenants before cluster's":    {"A//1/1 A//2/1 A//3/2 A//4/2 A//5/3 A//6/4", 3, "A//1/1 A//5/3 A//6/4"},
		"cluster-scoped objects":      {"A//1 A//2 A/a/1 A/a/2", 2, "A//1 A/a/1"},
	} {
		var got []string
		for _, conflict := range First(conflictsOf(c.all), c.n, programs) {
			got = append(got, conflict.Message)
		}
		if want := strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
