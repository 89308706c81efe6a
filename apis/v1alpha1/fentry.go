// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FentryProgramInfo has the fields of a fentry program, as a separate object or
// as a member of an application.
type FentryProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// func_name is the kernel function. The program runs when the function is
	// called. For example: `do_unlinkat`.
	// +required
	FunctionName string `json:"func_name"`
}

// ProgramType implements ProgramInfo.
func (i *FentryProgramInfo) ProgramType() EBPFProgType { return ProgTypeFentry }

// NamedHooks implements ProgramInfo.
func (i *FentryProgramInfo) NamedHooks() NamedHooks {
	return NamedHooks{Function: &KernelFunction{Name: i.FunctionName}}
}

// FentryProgramSpec is the desired state of FentryProgram objects.
type FentryProgramSpec struct {
	FentryProgramInfo `json:",inline"`
	BpfAppCommon      `json:",inline"`
}

// FentryProgramStatus summarizes the state of the program on all nodes.
type FentryProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// FentryProgram loads a fentry program on each selected node, and attaches it
// to a kernel function.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fentryprog,categories=bpfman
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
type FentryProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec FentryProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status FentryProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *FentryProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *FentryProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *FentryProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *FentryProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeFentry, Fentry: &o.Spec.FentryProgramInfo}}, false
}

// FentryProgramList is a list of FentryPrograms.
//
// +kubebuilder:object:root=true
type FentryProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FentryProgram `json:"items"`
}
