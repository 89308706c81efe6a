// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BpfProgramSpec describes what was loaded.
type BpfProgramSpec struct {
	// type is the type of the program, or `application` for a member of an
	// application. For example: `tcx`.
	// +optional
	Type string `json:"type,omitempty"`

	// maps contains, for each map of the program, the path of its pin on the node.
	// For example: `{tcx_stats_map: /run/bpfman/fs/maps/61/tcx_stats_map}`.
	// +optional
	Maps map[string]string `json:"maps,omitempty"`
}

// BpfProgramStatus is the state of one program on one node.
type BpfProgramStatus struct {
	// node is the name of the node. For example: `worker-1`.
	// +optional
	Node string `json:"node,omitempty"`

	// ownergeneration is the metadata.generation of the owner that this status
	// describes. For example: `2`.
	// +optional
	OwnerGeneration int64 `json:"ownergeneration,omitempty"`

	// programid is the kernel's id of the program. For example: `61`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ProgramID uint32 `json:"programid,omitempty"`

	// function is the function in the bytecode that is the program's entry point.
	// For example: `tcx_stats`.
	// +optional
	Function string `json:"function,omitempty"`

	// programtype is the type of the program. Only the reports of
	// ClusterBpfApplications have it. For example: `tcx`.
	// +optional
	ProgramType string `json:"programtype,omitempty"`

	// previous is true if the program can't be loaded as its owner describes it, and
	// the one that was loaded before still runs. programid, maps, and links are then
	// those of that program.
	// +optional
	Previous bool `json:"previous,omitempty"`

	// tag is the kernel's hash of the program's instructions. For example:
	// `8e3d9a1b2c4f5a60`.
	// +optional
	Tag string `json:"tag,omitempty"`

	// loadedat is the time when the program was loaded, in the daemon's format.
	// +optional
	LoadedAt string `json:"loadedat,omitempty"`

	// mapids are the kernel's ids of the program's maps. For example: `[12, 13]`.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Format=int64
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=4294967295
	MapIDs []uint32 `json:"mapids,omitempty"`

	// mapownerid is the kernel's id of the program whose maps this one uses. For
	// example: `60`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MapOwnerID *uint32 `json:"mapownerid,omitempty"`

	// mapusedby lists the programs that use this program's maps.
	// +optional
	// +listType=atomic
	MapUsedBy []string `json:"mapusedby,omitempty"`

	// bytecode describes the bytecode that was loaded, or was requested, and what
	// policies say about it.
	// +optional
	Bytecode *BpfProgramBytecode `json:"bytecode,omitempty"`

	// links are the attach points where the program is attached, or should be.
	// +optional
	// +listType=map
	// +listMapKey=attachpoint
	Links []BpfProgramLink `json:"links,omitempty"`

	// problem names what the message of the first condition is about, as the tables
	// of docs/status.md do. It is absent if they don't have it. For example:
	// `NoSuchInterface`.
	// +optional
	Problem string `json:"problem,omitempty"`

	// conditions is the state of the program. The type of the first condition is
	// Loaded, NotLoaded, NotUnLoaded, MapOwnerNotFound, MapOwnerNotLoaded,
	// BytecodeSelectorError, PolicyDenied, PolicyViolated, RolledBack, NoContainersOnNode, or
	// NoInterfacesOnNode. Its message quotes the daemon's error. The condition Ready
	// follows and, if it is False, either Reconciling or Stalled.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// BpfProgramBytecode is the bytecode of a program.
type BpfProgramBytecode struct {
	// image is the reference of the image in the object, or `file:` and the path
	// of a file. For example: `quay.io/bpfman-bytecode/xdp_pass:latest`.
	// +optional
	Image string `json:"image,omitempty"`

	// digest is the digest that the image's reference was resolved to: that of the
	// image's manifest or index.
	// +optional
	Digest string `json:"digest,omitempty"`

	// manifest is the digest of the manifest for the node's platform, if digest is
	// that of an index.
	// +optional
	Manifest string `json:"manifest,omitempty"`

	// signers lists who signed the image, among the signers that policies require.
	// +optional
	// +listType=atomic
	Signers []string `json:"signers,omitempty"`

	// policies are the BytecodePolicies that match the program, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Policies []BpfProgramPolicy `json:"policies,omitempty"`
}

// BpfProgramPolicy is the verdict of a BytecodePolicy on a program.
type BpfProgramPolicy struct {
	// name is the name of the BytecodePolicy. For example: `signed`.
	// +required
	Name string `json:"name"`

	// generation is the metadata.generation of the policy that the verdict is
	// based on. For example: `1`.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// verdict is the policy's decision. Allowed: the program satisfies the policy.
	// Denied: the program violates the policy, and isn't loaded, or stays loaded
	// if it was loaded before. Warned: the program is loaded, but mode `enforce`
	// would refuse it. Unknown: the policy couldn't be evaluated.
	// +required
	Verdict PolicyVerdict `json:"verdict"`

	// message is the reason, unless the verdict is Allowed.
	// +optional
	Message string `json:"message,omitempty"`

	// problem names what message is about, as the tables of docs/status.md do. It is
	// absent if they don't have it. For example: `NotSigned`.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// PolicyVerdict is the verdict of a policy on a program.
// +kubebuilder:validation:Enum=Allowed;Denied;Warned;Unknown
type PolicyVerdict string

// What a policy says about a program.
const (
	VerdictAllowed PolicyVerdict = "Allowed"
	VerdictDenied  PolicyVerdict = "Denied"
	VerdictWarned  PolicyVerdict = "Warned"
	VerdictUnknown PolicyVerdict = "Unknown"
)

// BpfProgramLink is one attach point where a program is attached, or should be.
type BpfProgramLink struct {
	// attachpoint describes the attach point: interface and direction, function,
	// or tracepoint, and the container. For example: `eth0 ingress`.
	// +required
	AttachPoint string `json:"attachpoint"`

	// digest is a hash of how the program is attached. If it changes, the program
	// is reattached.
	// +optional
	Digest string `json:"digest,omitempty"`

	// linkid is the daemon's id of the link. For example: `2113538415`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LinkID uint32 `json:"linkid,omitempty"`

	// state says whether the program is attached at this point: `Attached` or
	// `NotAttached`.
	// +required
	State LinkState `json:"state"`

	// error is the daemon's error, if the program isn't attached.
	// +optional
	Error string `json:"error,omitempty"`

	// problem names what error is about, as the tables of docs/status.md do. It is
	// absent if they don't have it. For example: `NoSuchInterface`.
	// +optional
	Problem string `json:"problem,omitempty"`

	// hook has the parts of the attach point in fields. Only the reports of
	// ClusterBpfApplications have it. It is absent for an attach point that the owner
	// doesn't select anymore.
	// +optional
	Hook *BpfProgramHook `json:"hook,omitempty"`
}

// BpfProgramHook is where and how a program is attached, or should be. It has the
// fields that programs of its type have.
type BpfProgramHook struct {
	// interface is the network interface. For example: `eth0`.
	// +optional
	Interface string `json:"interface,omitempty"`

	// netns is the path on the node of the network namespace with the interface, if
	// it isn't that of the node. For example: `/run/netns/cni-1234`.
	// +optional
	NetNS string `json:"netns,omitempty"`

	// direction is the direction of the packets: `ingress` or `egress`.
	// +optional
	Direction string `json:"direction,omitempty"`

	// priority is the place in the order of the programs on an interface. For
	// example: `50`.
	// +optional
	Priority *int32 `json:"priority,omitempty"`

	// proceedon lists the results after which the next program on the interface
	// runs. For example: `[pass, dispatcher_return]`.
	// +optional
	// +listType=atomic
	ProceedOn []string `json:"proceedon,omitempty"`

	// tracepoint is the tracepoint, as category/event. For example:
	// `syscalls/sys_enter_kill`.
	// +optional
	Tracepoint string `json:"tracepoint,omitempty"`

	// function is the function of the kernel or of target. For example: `malloc`.
	// +optional
	Function string `json:"function,omitempty"`

	// offset is the distance from the start of function, or of target without a
	// function, in bytes. For example: `8`.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Offset uint64 `json:"offset,omitempty"`

	// target is the library or executable that has the function. For example:
	// `libc`.
	// +optional
	Target string `json:"target,omitempty"`

	// pid is the id of the process that the program is limited to. For example:
	// `1234`.
	// +optional
	PID *int32 `json:"pid,omitempty"`

	// containerpid is the id of a process of the container that has target. For
	// example: `1234`.
	// +optional
	ContainerPID *int32 `json:"containerpid,omitempty"`
}

// LinkState says whether a program is attached at an attach point.
// +kubebuilder:validation:Enum=Attached;NotAttached
type LinkState string

// The states of a link.
const (
	LinkAttached    LinkState = "Attached"
	LinkNotAttached LinkState = "NotAttached"
)

// BpfProgram reports one program on one node. Only the node's agent writes it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=bpfprog,categories=bpfman
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ProgramId",type=integer,JSONPath=`.status.programid`,priority=1
type BpfProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes what was loaded.
	// +required
	Spec BpfProgramSpec `json:"spec"`

	// status is the state of the program on the node.
	// +optional
	Status BpfProgramStatus `json:"status,omitzero"`
}

// GetSpec implements ProgramObject.
func (o *BpfProgram) GetSpec() *BpfProgramSpec { return &o.Spec }

// GetStatus implements ProgramObject.
func (o *BpfProgram) GetStatus() *BpfProgramStatus { return &o.Status }

// BpfProgramList is a list of BpfPrograms.
//
// +kubebuilder:object:root=true
type BpfProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BpfProgram `json:"items"`
}

// BpfNsProgram reports one program of a namespace on one node. Only the node's
// agent writes it.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=bpfnsprog,categories=bpfman
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ProgramId",type=integer,JSONPath=`.status.programid`,priority=1
type BpfNsProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes what was loaded.
	// +required
	Spec BpfProgramSpec `json:"spec"`

	// status is the state of the program on the node.
	// +optional
	Status BpfProgramStatus `json:"status,omitzero"`
}

// GetSpec implements ProgramObject.
func (o *BpfNsProgram) GetSpec() *BpfProgramSpec { return &o.Spec }

// GetStatus implements ProgramObject.
func (o *BpfNsProgram) GetStatus() *BpfProgramStatus { return &o.Status }

// BpfNsProgramList is a list of BpfNsPrograms.
//
// +kubebuilder:object:root=true
type BpfNsProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BpfNsProgram `json:"items"`
}
