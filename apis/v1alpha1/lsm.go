// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LsmProgramInfo has the fields of an LSM program, as a separate object or
// as a member of an application.
type LsmProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// hook_name is the hook of Linux's security modules (LSM), without the prefix
	// bpf_lsm_ of its kernel function. The program runs before the operation that
	// the hook is about, and denies the operation if it returns a negative error
	// number. For example: `file_open`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9_]*$`
	HookName string `json:"hook_name"`
}

// ProgramType implements ProgramInfo.
func (i *LsmProgramInfo) ProgramType() EBPFProgType { return ProgTypeLSM }

// LSMFunctionPrefix is the prefix of the kernel function of a hook of LSM.
const LSMFunctionPrefix = "bpf_lsm_"

// NamedHooks implements ProgramInfo. The kernel attaches the program to a function
// that is there for this only, so policies limit it as one.
func (i *LsmProgramInfo) NamedHooks() NamedHooks {
	return NamedHooks{Function: &KernelFunction{Name: LSMFunctionPrefix + i.HookName}}
}

// LsmProgramSpec is the desired state of LsmProgram objects.
type LsmProgramSpec struct {
	LsmProgramInfo `json:",inline"`
	BpfAppCommon   `json:",inline"`
}

// LsmProgramStatus summarizes the state of the program on all nodes.
type LsmProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// LsmProgram loads an LSM program on each selected node, and attaches it to a
// hook of Linux's security modules, where it can deny operations. It needs the
// bpfman daemon in Go, and nodes with bpf among their security modules.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=lsmprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="HookName",type=string,JSONPath=`.spec.hook_name`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type LsmProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec LsmProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status LsmProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *LsmProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *LsmProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *LsmProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *LsmProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeLSM, LSM: &o.Spec.LsmProgramInfo}}, false
}

// LsmProgramList is a list of LsmPrograms.
//
// +kubebuilder:object:root=true
type LsmProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LsmProgram `json:"items"`
}
