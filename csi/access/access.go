// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package access decides which pods may mount the maps of a program. The
// lookup has by then kept to the pod's namespace and cluster-scoped programs.
package access

import (
	"context"
	"errors"

	"github.com/bpfman/bpfman-operator/csi/program"
)

// ErrDenied is in the chain when the pod lacks a right.
var ErrDenied = errors.New("not allowed")

// Pod is the pod that a volume is for.
type Pod struct {
	Namespace, Name, ServiceAccount string
}

// Policy decides. An error without [ErrDenied] means that it couldn't.
type Policy interface {
	Check(ctx context.Context, pod Pod, program program.Program) error
}

// All lets every pod mount what the lookup found.
type All struct{}

// Check implements [Policy].
func (All) Check(context.Context, Pod, program.Program) error { return nil }
