// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package prerequisite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// ending is a test that records how it ends.
type ending struct {
	testing.TB
	verdict, message string
}

func (e *ending) Helper()      {}
func (e *ending) Name() string { return "TestOfTracepoints" }

func (e *ending) end(verdict, message string) {
	e.verdict, e.message = verdict, message
	runtime.Goexit()
}

func (e *ending) Skipf(format string, args ...any) { e.end("skipped", fmt.Sprintf(format, args...)) }

func (e *ending) Fatalf(format string, args ...any) { e.end("failed", fmt.Sprintf(format, args...)) }
func (e *ending) Fatal(args ...any)                 { e.end("failed", fmt.Sprint(args...)) }

// missing returns how a test ends that lacks the prerequisites.
func missing(reason string, names ...prerequisite.Name) *ending {
	test := &ending{verdict: "went on"}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		prerequisite.Missing(test, reason, names...)
	}()
	<-ended
	return test
}

// A test fails if it lacks a prerequisite that the machine is supposed to have. Any other test is skipped. In both
// cases, the message contains the reason.
func TestMissing(t *testing.T) {
	const reason = "bpf_link_create failed: 64 of 64 places are taken"
	for name, c := range map[string]struct {
		requires string
		lacks    []prerequisite.Name
		verdict  string
	}{
		"nothing is required":        {"", []prerequisite.Name{prerequisite.Tracepoint}, "skipped"},
		"something else is required": {"root,TCX", []prerequisite.Name{prerequisite.Tracepoint}, "skipped"},
		"it is required":             {"TCX,Tracepoint", []prerequisite.Name{prerequisite.Tracepoint}, "failed"},
		"in lower case, with spaces": {"tcx, tracepoint", []prerequisite.Name{prerequisite.Tracepoint}, "failed"},
		"one of several is required": {"TCX", []prerequisite.Name{prerequisite.XDP, prerequisite.TCX}, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(prerequisite.RequiresVariable, c.requires)
			t.Setenv(prerequisite.SkippedVariable, "")
			if got := missing(reason, c.lacks...); got.verdict != c.verdict || !strings.Contains(got.message, reason) {
				t.Errorf("%s: %s, want %s", got.verdict, got.message, c.verdict)
			}
		})
	}
}

// An unknown name would otherwise require nothing, silently.
func TestMissing_OfNoSuchName(t *testing.T) {
	t.Setenv(prerequisite.RequiresVariable, "Tracepiont")
	if got := missing("any", prerequisite.Root); got.verdict != "failed" || !strings.Contains(got.message, `"Tracepiont"`) {
		t.Errorf("%s: %s", got.verdict, got.message)
	}
}

func TestMissing_IsRecorded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skipped")
	t.Setenv(prerequisite.RequiresVariable, "")
	t.Setenv(prerequisite.SkippedVariable, file)
	missing("first line\nsecond line", prerequisite.XDP, prerequisite.TC)
	missing("not root", prerequisite.Root)
	text, err := os.ReadFile(file)
	want := "[XDP TC]\tprerequisite TestOfTracepoints\tfirst line second line\n[root]\tprerequisite TestOfTracepoints\tnot root\n"
	if err != nil || string(text) != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
	if !slices.ContainsFunc(prerequisite.Skipped(), func(s prerequisite.Skip) bool { return s.Reason == "first line second line" }) {
		t.Errorf("skipped are %v", prerequisite.Skipped())
	}
}

func TestRequire(t *testing.T) {
	t.Setenv(prerequisite.RequiresVariable, "cluster")
	if err := prerequisite.Require(prerequisite.Cluster, "KUBECONFIG isn't set"); err == nil || !strings.Contains(err.Error(), "KUBECONFIG") {
		t.Errorf("a missing cluster is %v", err)
	}
	if err := prerequisite.Require(prerequisite.Daemon, "any"); err != nil {
		t.Error(err)
	}
}

func TestOfType(t *testing.T) {
	for name, want := range map[string]prerequisite.Name{"TRACEPOINT": prerequisite.Tracepoint, "Xdp": prerequisite.XDP, "root": ""} {
		if got, err := prerequisite.OfType(name); got != want || (err != nil) != (want == "") {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}
