// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FexitProgramInfo has the fields of a fexit program, as a separate object or
// as a member of an application.
type FexitProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// func_name is the kernel function. The program runs when the function
	// returns. For example: `do_unlinkat`.
	// +required
	FunctionName string `json:"func_name"`
}

// ProgramType implements ProgramInfo.
func (i *FexitProgramInfo) ProgramType() EBPFProgType { return ProgTypeFexit }

// NamedHooks implements ProgramInfo.
func (i *FexitProgramInfo) NamedHooks() NamedHooks {
	return NamedHooks{Function: &KernelFunction{Name: i.FunctionName}}
}

// FexitProgramSpec is the desired state of FexitProgram objects.
type FexitProgramSpec struct {
	FexitProgramInfo `json:",inline"`
	BpfAppCommon     `json:",inline"`
}

// FexitProgramStatus summarizes the state of the program on all nodes.
type FexitProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// FexitProgram loads a fexit program on each selected node, and attaches it to
// a kernel function.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fexitprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="FunctionName",type=string,JSONPath=`.spec.func_name`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type FexitProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec FexitProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status FexitProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *FexitProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *FexitProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *FexitProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *FexitProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeFexit, Fexit: &o.Spec.FexitProgramInfo}}, false
}

// FexitProgramList is a list of FexitPrograms.
//
// +kubebuilder:object:root=true
type FexitProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FexitProgram `json:"items"`
}
