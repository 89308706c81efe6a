// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

// ProgramLinkStatus says whether the links of a program are as its application
// describes them.
// +kubebuilder:validation:Enum=Pending;Success;Error;UpdateAttachInfoError
type ProgramLinkStatus string

// The values of ProgramLinkStatus. UpdateAttachInfoError means that it isn't known
// where to attach the program.
const (
	ProgramLinkPending               ProgramLinkStatus = "Pending"
	ProgramLinkSuccess               ProgramLinkStatus = "Success"
	ProgramLinkError                 ProgramLinkStatus = "Error"
	ProgramLinkUpdateAttachInfoError ProgramLinkStatus = "UpdateAttachInfoError"
)

// ApplicationLinkStatus says whether a program is attached at a link.
// +kubebuilder:validation:Enum=Attached;NotAttached;AttachError;DetachError
type ApplicationLinkStatus string

// The values of ApplicationLinkStatus that the operator writes.
const (
	ApplicationLinkAttached    ApplicationLinkStatus = "Attached"
	ApplicationLinkNotAttached ApplicationLinkStatus = "NotAttached"
	ApplicationLinkAttachError ApplicationLinkStatus = "AttachError"
)

// ApplicationLinkState has the fields of the links of all types.
type ApplicationLinkState struct {
	// shouldAttach is true if the application has the program attached here. For
	// example: `true`.
	// +required
	ShouldAttach bool `json:"shouldAttach"`

	// uuid identifies the link in the application on the node.
	// +required
	UUID string `json:"uuid"`

	// linkId is the daemon's id of the link, if the program is attached. For
	// example: `2113538415`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LinkID *uint32 `json:"linkId,omitempty"`

	// linkStatus says whether the program is attached: `Attached`, `NotAttached`,
	// `AttachError`, or `DetachError`.
	// +required
	LinkStatus ApplicationLinkStatus `json:"linkStatus"`
}

// NetworkLinkState has the fields of the links of XDP, TC, and TCX programs.
type NetworkLinkState struct {
	ApplicationLinkState `json:",inline"`

	// interfaceName is the network interface. For example: `eth0`.
	// +required
	InterfaceName string `json:"interfaceName"`

	// netnsPath is the path of the network namespace with the interface, if it
	// isn't that of the node. For example: `/run/netns/cni-1234`.
	// +optional
	NetnsPath string `json:"netnsPath,omitempty"`

	// priority is the place in the order of the programs on the interface. For
	// example: `50`.
	// +required
	Priority int32 `json:"priority"`
}

// XdpLinkStates are the links of an XDP program on a node.
type XdpLinkStates struct {
	// links are the points where the program is attached, or should be.
	// +optional
	// +listType=atomic
	Links []XdpLinkState `json:"links,omitempty"`
}

// XdpLinkState is a link of an XDP program on a node.
type XdpLinkState struct {
	NetworkLinkState `json:",inline"`

	// proceedOn lists the results after which the next program on the interface
	// runs. For example: `[Pass, DispatcherReturn]`.
	// +required
	ProceedOn []XdpLinkResult `json:"proceedOn"`
}

// TcLinkStates are the links of a TC program on a node.
type TcLinkStates struct {
	// links are the points where the program is attached, or should be.
	// +optional
	// +listType=atomic
	Links []TcLinkState `json:"links,omitempty"`
}

// TcLinkState is a link of a TC program on a node.
type TcLinkState struct {
	NetworkLinkState `json:",inline"`

	// direction is the direction of the packets: `Ingress` or `Egress`.
	// +required
	Direction LinkDirection `json:"direction"`

	// proceedOn lists the results after which the next program on the interface
	// runs. For example: `[Pipe, DispatcherReturn]`.
	// +required
	ProceedOn []TcLinkResult `json:"proceedOn"`
}

// TcxLinkStates are the links of a TCX program on a node.
type TcxLinkStates struct {
	// links are the points where the program is attached, or should be.
	// +optional
	// +listType=atomic
	Links []TcxLinkState `json:"links,omitempty"`
}

// TcxLinkState is a link of a TCX program on a node.
type TcxLinkState struct {
	NetworkLinkState `json:",inline"`

	// direction is the direction of the packets: `Ingress` or `Egress`.
	// +required
	Direction LinkDirection `json:"direction"`
}

// KprobeLinkStates are the links of a kprobe program on a node.
type KprobeLinkStates struct {
	// links are the points where the program is attached, or should be.
	// +optional
	// +listType=atomic
	Links []KprobeLinkState `json:"links,omitempty"`
}

// KprobeLinkState is a link of a kprobe program on a node.
type KprobeLinkState struct {
	ApplicationLinkState `json:",inline"`

	// function is the kernel function. For example: `try_to_wake_up`.
	// +required
	Function string `json:"function"`

	// offset is added to the address of the function, in bytes. For example: `0`.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Offset uint64 `json:"offset,omitempty"`
}

// KretprobeLinkStates are the links of a kretprobe program on a node.
type KretprobeLinkStates struct {
	// links are the points where the program is attached, or should be.
	// +optional
	// +listType=atomic
	Links []KretprobeLinkState `json:"links,omitempty"`
}

// KretprobeLinkState is a link of a kretprobe program on a node.
type KretprobeLinkState struct {
	ApplicationLinkState `json:",inline"`

	// function is the kernel function. For example: `try_to_wake_up`.
	// +required
	Function string `json:"function"`
}

// UprobeLinkStates are the links of a uprobe or uretprobe program on a node.
type UprobeLinkStates struct {
	// links are the points where the program is attached, or should be.
	// +optional
	// +listType=atomic
	Links []UprobeLinkState `json:"links,omitempty"`
}

// UprobeLinkState is a link of a uprobe or uretprobe program on a node.
type UprobeLinkState struct {
	ApplicationLinkState `json:",inline"`

	// function is the function in target. For example: `malloc`.
	// +optional
	Function string `json:"function,omitempty"`

	// offset is added to the address of the function, in bytes. For example: `0`.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Offset uint64 `json:"offset,omitempty"`

	// target is the library or executable. For example: `libc`.
	// +required
	Target string `json:"target"`

	// pid is the id of the process in the application. For example: `1234`.
	// +optional
	Pid *int32 `json:"pid,omitempty"`

	// containerPid is the id of a process of the container that has target. For
	// example: `1234`.
	// +optional
	ContainerPid *int32 `json:"containerPid,omitempty"`
}

// TracepointLinkStates are the links of a tracepoint program on a node.
type TracepointLinkStates struct {
	// links are the points where the program is attached, or should be.
	// +optional
	// +listType=atomic
	Links []TracepointLinkState `json:"links,omitempty"`
}

// TracepointLinkState is a link of a tracepoint program on a node.
type TracepointLinkState struct {
	ApplicationLinkState `json:",inline"`

	// name is the tracepoint. For example: `syscalls/sys_enter_kill`.
	// +required
	Name string `json:"name"`
}

// FunctionLinkStates are the function and the links of a fentry or fexit program on a
// node.
type FunctionLinkStates struct {
	// function is the kernel function. For example: `do_unlinkat`.
	// +required
	Function string `json:"function"`

	// links has one item if the program is attached, or should be.
	// +optional
	// +listType=atomic
	Links []ApplicationLinkState `json:"links,omitempty"`
}
