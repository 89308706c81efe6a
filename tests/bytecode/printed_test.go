// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// TestPrintedMaps reads a map of each type as a file, without privileges. docs/volumes.md describes the result
// for each type.
func TestPrintedMaps(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		prerequisite.Missing(t, err.Error(), prerequisite.Busybox)
	}
	f := setUp(t)
	types := object{"map_types", nil, []program{tracepoint("map_types", "")}}
	loaded, err := f.load(t.Context(), adapted(t, types.name), nil, types.programs...)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	f.attachAndCount(t, types.programs[0], loaded.Programs[0])
	f.cause(t, gobpfman.BpfmanProgramType_TRACEPOINT)
	maps := f.Path(loaded.Programs[0].Info.MapPinPath)

	// A per-CPU map has a value for each CPU. The program ran on one of them.
	const element = "{11,-1,}"
	for name, want := range map[string][]string{
		"array_map":        {"\n7: " + element + "\n"},
		"hash_map":         {"\n7: " + element + "\n"},
		"lru_hash_map":     {"\n7: " + element + "\n"},
		"percpu_array_map": {"\n7: {\n\tcpu0: {", ": " + element + "\n"},
		"percpu_hash_map":  {"\n7: {\n\tcpu0: {", ": " + element + "\n"},
		"lru_percpu_map":   {"\n7: {\n\tcpu0: {", ": " + element + "\n"},
		"hash_without_btf": {"Input/output error"},
		"hash_of_unions":   {"Input/output error"},
		"lpm_trie_map":     {"Input/output error"},
		"queue_map":        {"Input/output error"},
		"stack_map":        {"Input/output error"},
		"ring_buffer":      {"Input/output error"},
		"perf_event_map":   {"Input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := readAs(t.Context(), nobody, 0o440, maps, busybox, "cat", shownMaps+"/"+name)
			if err != nil {
				t.Fatal(err)
			}
			for _, words := range want {
				if !strings.Contains(out, words) {
					t.Errorf("%q is not in what cat says:\n%s", words, out)
				}
			}
		})
	}
}
