// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 253)
	for _, test := range []struct{ name, in, want string }{
		{"valid stays", "xdp-pass.all_nodes", "xdp-pass.all_nodes"},
		{"empty stays", "", ""},
		{"63 characters stay", long[:63], long[:63]},
		{"longer is cut", long, long[:54] + "-32859a3a"},
		{"C++ symbol", "std::vector<int>::push_back", "std--vector-int---push_back-9ff2a592"},
		{"Go symbol", "main.(*Server).Serve", "main.--Server-.Serve-e98b14ee"},
		{"nothing readable", "<>", "24295a9c"},
		{"not ASCII", "épée", "p-e-ff83fc0c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := LabelValue(test.in); got != test.want {
				t.Errorf("LabelValue(%q) = %q, want %q", test.in, got, test.want)
			}
		})
	}
}

func TestNodeOfLabel(t *testing.T) {
	for _, test := range []struct{ node, want string }{
		{"", ""}, {"worker-1", "worker-1"}, {strings.Repeat("a", 50), strings.Repeat("a", 50)}, {strings.Repeat("a", 253), ""}, {strings.Repeat("a", 60), ""},
	} {
		if got := NodeOfLabel(LabelValue(test.node)); got != test.want {
			t.Errorf("the label of %q is that of %q, not %q", test.node, got, test.want)
		}
	}
}

func FuzzLabelValue(f *testing.F) {
	for _, seed := range []string{"", "a", "-a", "a-", "main.(*T).F", "_ZNSt6vectorIiE9push_backEOi", "\xff\x00", strings.Repeat("é", 200)} {
		f.Add(seed, seed+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		value := LabelValue(a)
		if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
			t.Fatalf("LabelValue(%q) = %q: %v", a, value, errs)
		}
		if value != LabelValue(value) {
			t.Fatalf("LabelValue(%q) = %q is changed by LabelValue", a, value)
		}
		if (a == "") != (value == "") {
			t.Fatalf("LabelValue(%q) = %q: only the empty string may be empty", a, value)
		}
		hashed := value != a && LabelValue(b) != b
		if hashed && a != b && value == LabelValue(b) {
			t.Fatalf("%q and %q both become %q", a, b, value)
		}
	})
}
