// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// TestRefusals loads invalid bytecode. The daemon returns the reason, and keeps serving.
func TestRefusals(t *testing.T) {
	f := setUp(t)
	local := func(name string) *gobpfman.BytecodeLocation { return adapted(t, name) }
	notBytecode, err := filepath.Abs("refusal_test.go")
	if err != nil {
		t.Fatal(err)
	}
	pass := tcx("tcx_pass", "")
	for name, c := range map[string]struct {
		location *gobpfman.BytecodeLocation
		globals  map[string][]byte
		program  program
		want     string
	}{
		"verifier":           {local("rejected"), nil, tcx("rejected", ""), "invalid access to packet"},
		"verifier, long log": {local("rejected_late"), nil, tcx("rejected_late", ""), "value_size=96 off=98"},
		"wrong function":     {local("tcx_test"), nil, tcx("absent", ""), "absent"},
		"wrong type":         {local("tcx_test"), nil, tracepoint("tcx_pass", ""), "UnexpectedProgramType"},
		"absent file":        {file("/absent/tcx_test.o"), nil, pass, "can't open file: No such file"},
		"file no bytecode":   {file(notBytecode), nil, pass, "error parsing BPF object"},
		"unknown global":     {local("tcx_test"), map[string][]byte{"ABSENT": {1}}, pass, "ABSENT"},
		"global's width":     {local("tcx_test"), map[string][]byte{"GLOBAL_u32": {1}}, pass, "GLOBAL_u32"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.load(t.Context(), c.location, c.globals, c.program)
			got := status.Convert(err)
			if got.Code() != codes.Aborted || !strings.Contains(got.Message(), c.want) {
				t.Errorf("Load returned %v, want code Aborted with %q", err, c.want)
			}
		})
	}
	t.Run("serves on", func(t *testing.T) {
		loaded, err := f.load(t.Context(), local("tcx_test"), nil, pass)
		if err != nil {
			t.Fatalf("Load: %v", err)
		}
		f.unload(t, loaded.Programs[0].KernelInfo.Id)
	})
}
