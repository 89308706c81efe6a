// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspectors

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/client-go/util/exec"

	"github.com/bpfman/bpfman-operator/internal/live"
)

// A sample is spread over the nodes. It is the same each time, so that its figures can be compared.
func TestSample(t *testing.T) {
	found := &Found{byNode: map[string]string{}}
	for i := range 8 {
		found.byNode[fmt.Sprint("n", i)] = "pod"
	}
	for n, want := range map[int][]string{
		3: {"n0", "n2", "n5"}, 8: {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"}, 20: {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"},
	} {
		if got := found.Sample(n); !slices.Equal(got, want) {
			t.Errorf("%d nodes: %q, want %q", n, got, want)
		}
	}
	if found.Count() != 8 {
		t.Errorf("%d nodes", found.Count())
	}
}

// An inspector of an earlier version describes its flags, or the arguments that it doesn't expect.
func TestExplain(t *testing.T) {
	exit := errors.New("command terminated with exit code 1")
	const older = "the inspector is older than this command: update bpfman, or use the kubectl bpfman of its version ("
	for said, want := range map[string]string{
		"": exit.Error(),
		"flag provided but not defined: -every\nUsage of bpfman-inspector dump:\n": older + "flag provided but not defined: -every)",
		`level=ERROR msg=Stopped error="unexpected arguments: [\"top\"]"` + "\n":   older + `level=ERROR msg=Stopped error="unexpected arguments: [\"top\"]")`,
		"open map 7: no such file or directory\n":                                  "open map 7: no such file or directory",
	} {
		if got := explain(exit, said); got.Error() != want {
			t.Errorf("%q: %v, want %q", said, got, want)
		}
	}
	absent := explain(exec.CodeExitError{Err: exit, Code: live.ExitAbsent}, "open map 7: no such file or directory\n")
	if want := "not found: open map 7: no such file or directory"; !errors.Is(absent, ErrAbsent) || absent.Error() != want {
		t.Errorf("of a map that isn't there: %v, want %q", absent, want)
	}
}
