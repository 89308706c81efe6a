// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BpfProgramSpec tells what was loaded.
type BpfProgramSpec struct {
	// type is the type of the program, or "application" for a member of one.
	// +optional
	Type string `json:"type,omitempty"`

	// maps holds, for each map of the program by name, where it is pinned on the
	// node.
	// +optional
	Maps map[string]string `json:"maps,omitempty"`
}

// BpfProgramStatus is the state of one program on one node.
type BpfProgramStatus struct {
	// node is the node's name.
	// +optional
	Node string `json:"node,omitempty"`

	// ownergeneration is the metadata.generation of the owner that this status is
	// about.
	// +optional
	OwnerGeneration int64 `json:"ownergeneration,omitempty"`

	// programid is the kernel's id of the program.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ProgramID uint32 `json:"programid,omitempty"`

	// function is the function in the bytecode that is the program's entry.
	// +optional
	Function string `json:"function,omitempty"`

	// tag is the kernel's hash of the program's instructions.
	// +optional
	Tag string `json:"tag,omitempty"`

	// loadedat tells when the program was loaded, in the daemon's words.
	// +optional
	LoadedAt string `json:"loadedat,omitempty"`

	// mapids are the kernel's ids of the program's maps.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Format=int64
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=4294967295
	MapIDs []uint32 `json:"mapids,omitempty"`

	// mapownerid is the kernel's id of the program whose maps this one shares.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MapOwnerID *uint32 `json:"mapownerid,omitempty"`

	// mapusedby lists the programs that use this program's maps.
	// +optional
	// +listType=atomic
	MapUsedBy []string `json:"mapusedby,omitempty"`

	// bytecode tells which bytecode was loaded, or was to be, and what the policies
	// about it say.
	// +optional
	Bytecode *BpfProgramBytecode `json:"bytecode,omitempty"`

	// links are the points that the program is, or should be, attached to.
	// +optional
	// +listType=map
	// +listMapKey=attachpoint
	Links []BpfProgramLink `json:"links,omitempty"`

	// conditions holds one condition. Its type is Loaded, NotLoaded, NotUnLoaded,
	// MapOwnerNotFound, MapOwnerNotLoaded, BytecodeSelectorError, PolicyDenied,
	// PolicyViolated or NoContainersOnNode; its message has the daemon's own words.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// BpfProgramBytecode is the bytecode of a program.
type BpfProgramBytecode struct {
	// image is the image as the object names it, or file: and the path of a file.
	// +optional
	Image string `json:"image,omitempty"`

	// digest is what the image's reference was resolved to: the digest of the
	// image's manifest or index.
	// +optional
	Digest string `json:"digest,omitempty"`

	// manifest is the digest of the manifest for the node's platform, where digest
	// is that of an index.
	// +optional
	Manifest string `json:"manifest,omitempty"`

	// signers are who has signed the image, of those that policies ask for.
	// +optional
	// +listType=atomic
	Signers []string `json:"signers,omitempty"`

	// policies are the BytecodePolicies that match the program, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Policies []BpfProgramPolicy `json:"policies,omitempty"`
}

// BpfProgramPolicy is what a BytecodePolicy says about a program.
type BpfProgramPolicy struct {
	// name of the BytecodePolicy.
	// +required
	Name string `json:"name"`

	// generation is the metadata.generation of the policy that the verdict is of.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// verdict is Allowed, Denied (or to be denied, where the program was loaded
	// before and stays), Warned (loaded, and mode enforce would refuse it), or
	// Unknown where the policy couldn't be evaluated.
	// +required
	Verdict PolicyVerdict `json:"verdict"`

	// message tells why, unless it is allowed.
	// +optional
	Message string `json:"message,omitempty"`
}

// PolicyVerdict is what a policy says about a program.
// +kubebuilder:validation:Enum=Allowed;Denied;Warned;Unknown
type PolicyVerdict string

// What a policy says about a program.
const (
	VerdictAllowed PolicyVerdict = "Allowed"
	VerdictDenied  PolicyVerdict = "Denied"
	VerdictWarned  PolicyVerdict = "Warned"
	VerdictUnknown PolicyVerdict = "Unknown"
)

// BpfProgramLink is one point that a program is, or should be, attached to.
type BpfProgramLink struct {
	// attachpoint tells where: interface and direction, function, tracepoint, and
	// the container.
	// +required
	AttachPoint string `json:"attachpoint"`

	// digest is a hash of how the program is attached: another value means that it
	// must be attached anew.
	// +optional
	Digest string `json:"digest,omitempty"`

	// linkid is the daemon's id of the link.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LinkID uint32 `json:"linkid,omitempty"`

	// state tells whether the program is attached there.
	// +required
	State LinkState `json:"state"`

	// error tells why it isn't, in the daemon's own words.
	// +optional
	Error string `json:"error,omitempty"`
}

// LinkState tells whether a program is attached to a point.
// +kubebuilder:validation:Enum=Attached;NotAttached
type LinkState string

// The states of a link.
const (
	LinkAttached    LinkState = "Attached"
	LinkNotAttached LinkState = "NotAttached"
)

// BpfProgram is one program on one node, as its agent reports it. It is written
// by the agent only.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=bpfprog,categories=bpfman
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`,priority=1
// +kubebuilder:printcolumn:name="ProgramId",type=integer,JSONPath=`.status.programid`,priority=1
type BpfProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what was loaded.
	// +required
	Spec BpfProgramSpec `json:"spec"`

	// status is what the node reports.
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

// BpfNsProgram is one program of a namespace on one node, as its agent reports it. It is written
// by the agent only.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=bpfnsprog,categories=bpfman
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`,priority=1
// +kubebuilder:printcolumn:name="ProgramId",type=integer,JSONPath=`.status.programid`,priority=1
type BpfNsProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what was loaded.
	// +required
	Spec BpfProgramSpec `json:"spec"`

	// status is what the node reports.
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
