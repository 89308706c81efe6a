// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package access decides which pods may mount the maps of a program. The
// lookup has by then kept to the pod's namespace and cluster-scoped programs.
package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/bpfman/bpfman-operator/csi/program"
)

// ErrDenied is in the chain when the pod lacks a right.
var ErrDenied = errors.New("not allowed")

// Pod is the pod that a volume is for.
type Pod struct {
	Namespace, Name, ServiceAccount string
}

// Use is what a pod does with the maps of a program.
type Use struct {
	Pod     Pod
	Program program.Program
	// ReadOnly says that the kernel keeps the pod from writing to the maps at any time.
	ReadOnly bool
}

// Policy decides. An error without [ErrDenied] means that it couldn't.
type Policy interface {
	Check(ctx context.Context, use Use) error
}

// All lets every pod mount what the lookup found.
type All struct{}

// Check implements [Policy].
func (All) Check(context.Context, Use) error { return nil }

// Read lets every pod read, and those write that Writers lets.
type Read struct{ Writers Policy }

// Check implements [Policy].
func (r Read) Check(ctx context.Context, use Use) error {
	if use.ReadOnly {
		return nil
	}
	if err := r.Writers.Check(ctx, use); err != nil {
		return fmt.Errorf("write access: %w", err)
	}
	return nil
}
