// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package access decides which pods can mount the maps of a program. The lookup has
// already limited the programs to cluster-scoped ones and those in the pod's namespace.
package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/bpfman/bpfman-operator/csi/program"
)

// ErrDenied is in the error chain if the pod lacks a permission.
var ErrDenied = errors.New("not allowed")

// Pod is the pod that a volume is for.
type Pod struct {
	Namespace, Name, ServiceAccount string
}

// Use describes how a pod uses the maps of a program.
type Use struct {
	Pod     Pod
	Program program.Program
	// ReadOnly means that the kernel never lets the pod write to the maps.
	ReadOnly bool
}

// Policy decides whether a use is allowed. An error without [ErrDenied] means that it
// couldn't decide.
type Policy interface {
	Check(ctx context.Context, use Use) error
}

// All allows every pod to mount the maps that the lookup finds.
type All struct{}

// Check implements [Policy].
func (All) Check(context.Context, Use) error { return nil }

// Read allows every pod to read maps. Writers decides which pods can write to them.
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
