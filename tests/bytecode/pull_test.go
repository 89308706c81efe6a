// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"context"
	"testing"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// TestPull pulls an image in advance, and loads it with a pull policy that never pulls.
func TestPull(t *testing.T) {
	f := setUp(t)
	location := f.image("tcx_test")
	location.GetImage().ImagePullPolicy = 2 // Never
	pass := tcx("tcx_pass", "")
	if _, err := f.load(t.Context(), location, nil, pass); err == nil {
		t.Fatal("an image that isn't there was loaded and not pulled")
	}

	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	if _, err := f.Client.PullBytecode(ctx, &gobpfman.PullBytecodeRequest{Image: f.image("tcx_test").GetImage()}); err != nil {
		t.Fatalf("PullBytecode: %v", err)
	}
	loaded, err := f.load(t.Context(), location, nil, pass)
	if err != nil {
		t.Fatalf("Load of what was pulled: %v", err)
	}
	f.unload(t, loaded.GetPrograms()[0].GetKernelInfo().GetId())
}
