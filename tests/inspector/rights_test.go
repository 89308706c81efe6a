// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/inventory"
	"github.com/bpfman/bpfman-operator/inspector/report"
)

// seenVariable is an environment variable that makes the test's binary print what it
// sees, once.
const seenVariable = "INSPECTOR_TEST_SEE"

// capabilities are the capabilities of the inspector's container.
var capabilities = []string{"sys_admin", "sys_ptrace", "dac_read_search"}

// seen is what a process sees, with the errors that it reports.
type seen struct {
	Status   *v1alpha1.BpfNodeStatus
	Failures map[string]string
}

func printSeen() error {
	found, err := inventory.New("/proc")
	if err != nil {
		return err
	}
	said := seen{Failures: map[string]string{}}
	if _, err := found.Update(inventory.Scope{All: true}, time.Now()); err != nil {
		said.Failures["kernel"] = err.Error()
	}
	for what, err := range found.Failures() {
		said.Failures[what] = err.Error()
	}
	said.Status = report.Status(found.Facts())
	return json.NewEncoder(os.Stdout).Encode(said)
}

// see runs such a process as root with only these capabilities.
func see(t *testing.T, capabilities []string) seen {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bounds := "-all"
	for _, capability := range capabilities {
		bounds += ",+" + capability
	}
	command := exec.CommandContext(t.Context(), "setpriv", "--bounding-set="+bounds, "--inh-caps=-all", self)
	command.Env = append(os.Environ(), seenVariable+"=yes")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("with %s: %v", bounds, err)
	}
	var said seen
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("with %s: %v in %s", bounds, err, out)
	}
	return said
}

// TestCapabilities checks that a process sees the same with the container's capabilities
// as with all capabilities, and that with one fewer, it sees less and reports it.
func TestCapabilities(t *testing.T) {
	makeCgroup(t)
	at := place(t)
	var ids []uint32
	for _, what := range slices.Sorted(maps.Keys(holds)) {
		if what == "many" || what == "xdp link" {
			continue
		}
		h, refusal := try(t, at, what)
		if refusal != "" {
			t.Logf("without %s: %s", what, refusal)
			continue
		}
		ids = append(ids, h.Programs...)
	}
	// Processes of another user, and files that only that user can read.
	if out, err := run(t, at, "chown", "-R", "1000:1000", pinned); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all := inspect(t)
	whole := all.look(true)
	granted := see(t, capabilities)
	same := func(other *v1alpha1.BpfNodeStatus) []uint32 {
		var differ []uint32
		for _, id := range ids {
			a, b := find(whole, id), find(other, id)
			if b == nil || !reflect.DeepEqual(withoutTime(a), withoutTime(b)) {
				differ = append(differ, id)
			}
		}
		return differ
	}
	for what, failure := range granted.Failures {
		if full, ok := all.inventory.Failures()[what]; !ok || full.Error() != failure {
			t.Errorf("%s with %v: %s; with all: %v", what, capabilities, failure, full)
		}
	}
	for _, id := range same(granted.Status) {
		t.Errorf("with %v it is %s; with all %s", capabilities, describe(find(granted.Status, id)), describe(find(whole, id)))
	}
	for _, missing := range capabilities {
		fewer := slices.DeleteFunc(slices.Clone(capabilities), func(c string) bool { return c == missing })
		said := see(t, fewer)
		differ := same(said.Status)
		var failures []string
		for what, failure := range said.Failures {
			if full, ok := all.inventory.Failures()[what]; !ok || full.Error() != failure {
				failures = append(failures, what+": "+failure)
			}
		}
		slices.Sort(failures)
		t.Logf("without %s %d of %d programs differ: %s", missing, len(differ), len(ids), strings.Join(failures, "; "))
		if len(failures) == 0 {
			t.Errorf("without %s nothing is said to be missing", missing)
		}
	}
}

// withoutTime removes what can differ between two reads.
func withoutTime(p *v1alpha1.BpfNodeProgram) *v1alpha1.BpfNodeProgram {
	if p == nil {
		return nil
	}
	other := *p
	other.LoadedAt = nil
	return &other
}
