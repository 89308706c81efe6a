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

	"github.com/bpfman/bpfman-operator/agent/daemon"
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
		// words is how the agent's message begins.
		words string
	}{
		"verifier":           {local("rejected"), nil, tcx("rejected", ""), "invalid access to packet", "the kernel's verifier refuses the program: R1 offset is outside of the packet (rejected.bpf.c:"},
		"verifier, long log": {local("rejected_late"), nil, tcx("rejected_late", ""), "value_size=96 off=98", "the kernel's verifier refuses the program: R0 min value is outside of the allowed memory range"},
		"wrong function":     {local("tcx_test"), nil, tcx("absent", ""), "absent", "the object has no function absent, when loading"},
		"wrong type":         {local("tcx_test"), nil, tracepoint("tcx_pass", ""), "UnexpectedProgramType", "the section of the function is for another type of program, when loading"},
		"absent file":        {file("/absent/tcx_test.o"), nil, pass, "can't open file: No such file", "can't open file: No such file or directory, when loading"},
		"file no bytecode":   {file(notBytecode), nil, pass, "error parsing BPF object", "error parsing BPF object"},
		"unknown global":     {local("tcx_test"), map[string][]byte{"ABSENT": {1}}, pass, "ABSENT", "error parsing BPF object: symbol with name ABSENT"},
		"global's width":     {local("tcx_test"), map[string][]byte{"GLOBAL_u32": {1}}, pass, "GLOBAL_u32", "error parsing BPF object: symbol GLOBAL_u32"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.load(t.Context(), c.location, c.globals, c.program)
			got := status.Convert(err)
			if got.Code() != codes.Aborted || !strings.Contains(got.Message(), c.want) {
				t.Errorf("Load returned %v, want code Aborted with %q", err, c.want)
			}
			if text := (&daemon.Error{Op: "load it", Cause: err}).Error(); !strings.HasPrefix(text, c.words) {
				t.Errorf("in words, it begins with %.300s, want %s", text, c.words)
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
