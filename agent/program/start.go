// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"context"
	"slices"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Starts is told by the container runtime which pods and containers are about to start, and which have ended. Its functions
// can be called concurrently.
type Starts struct {
	// Starting is called for a pod's sandbox, after it has its network and before it has a container, and for a container
	// before its first process runs. What the runtime reports is still missing in its lists then. The start waits for the
	// call, until the deadline of ctx. An error refuses the start.
	Starting func(ctx context.Context, of Container) error
	// Ended is called with the ID of a sandbox or container that has ended, even if its start was refused.
	Ended func(ctx context.Context, id string)
	// Existing is called with the IDs of all sandboxes and containers, when the runtime begins to report starts.
	Existing func(ctx context.Context, ids []string)
	// Connected is called with nil when the runtime begins to report starts, and with the reason while it doesn't.
	Connected func(ctx context.Context, err error)
}

// Precedes reports whether the program is to be attached before the start of a container or, if it is the entry of a sandbox,
// of a pod. Required means that it doesn't start without the program.
func (m Member) Precedes(c Container) (precedes, required bool) {
	of, can := m.Spec.(interface {
		precedes(c Container) *containerSelector
	})
	if !can {
		return false, false
	}
	s := of.precedes(c)
	if s == nil || s.Attachment != v1alpha1.AttachBeforeStart || !s.named(c) || !s.selectsPod(c.Namespace, c.PodLabels) {
		return false, false
	}
	return true, s.FailurePolicy == v1alpha1.StartFail
}

// Precedes reports whether one of the owner's programs is to be attached before the start of a container or pod, and whether
// one of these is required.
func (o Owner) Precedes(c Container) (precedes, required bool) {
	if o.Namespace != "" && o.Namespace != c.Namespace {
		return false, false
	}
	for _, m := range o.Members {
		does, needs := m.Precedes(c)
		precedes, required = precedes || does, required || needs
	}
	return precedes, required
}

// PrecedesAny reports whether the owner has a program that is to be attached before the start of containers or pods.
func (o Owner) PrecedesAny() bool {
	return slices.ContainsFunc(o.Members, Member.PrecedesAny)
}

// PrecedesAny reports whether the program is to be attached before the start of containers or pods.
func (m Member) PrecedesAny() bool {
	in, can := m.Spec.(interface{ selector() *containerSelector })
	return can && in.selector() != nil && in.selector().Attachment == v1alpha1.AttachBeforeStart
}

// precedes returns the selector of pods. A network program is attached once for a pod: before its first container, or if
// containers are selected by name, before the first one of these. A pod with the network of the node has no other network.
func (o onNetwork) precedes(c Container) *containerSelector {
	names := o.containers != nil && o.containers.ContainerNames != nil && len(*o.containers.ContainerNames) > 0
	if c.HostNetwork || names != (c.ID != "") {
		return nil
	}
	return o.containers
}

// precedes returns the selector of containers.
func (u uprobe) precedes(c Container) *containerSelector {
	if c.ID == "" {
		return nil
	}
	return u.containers
}

// PointInEach reports whether the program has an attach point in each pod or container whose start it precedes. If it discovers
// interfaces, a pod can have none of them.
func (m Member) PointInEach() bool {
	in, can := m.Spec.(interface{ pointInEach() bool })
	return can && in.pointInEach()
}

func (o onNetwork) pointInEach() bool {
	named := o.interfaces.Interfaces
	return o.interfaces.PrimaryNodeInterface != nil || named != nil && len(*named) > 0
}

func (uprobe) pointInEach() bool { return true }

// Subject names a container, or the pod of a sandbox, for users.
func (c Container) Subject() string {
	if c.ID == "" {
		return "pod " + c.pod()
	}
	return "container " + c.path()
}
