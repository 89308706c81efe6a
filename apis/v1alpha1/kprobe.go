// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KprobeProgramInfo has the fields of a kprobe program, as a separate object or
// as a member of an application.
type KprobeProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// func_name is the kernel function to attach the program to. For example:
	// `try_to_wake_up`.
	// +required
	FunctionName string `json:"func_name"`

	// offset is added to the address of the function, in bytes. A kretprobe can't
	// have an offset. For example: `0`.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=0
	Offset uint64 `json:"offset,omitempty"`

	// retprobe says whether the program runs when the function returns, instead of
	// when it is called. The bytecode's section (kprobe or kretprobe) decides, so
	// this field must match it. It has no effect in a kretprobe member of an
	// application. For example: `false`.
	// +optional
	// +default=false
	RetProbe bool `json:"retprobe,omitempty"`
}

// ProgramType implements ProgramInfo.
func (i *KprobeProgramInfo) ProgramType() EBPFProgType { return ProgTypeKprobe }

// NamedHooks implements ProgramInfo.
func (i *KprobeProgramInfo) NamedHooks() NamedHooks {
	if i.FunctionName == "" {
		return NamedHooks{}
	}
	return NamedHooks{Function: &KernelFunction{Name: i.FunctionName, Offset: i.Offset}}
}

// KprobeProgramSpec is the desired state of KprobeProgram objects.
// +kubebuilder:validation:XValidation:rule="!self.retprobe || self.offset == 0",message="offset cannot be set for kretprobes"
type KprobeProgramSpec struct {
	KprobeProgramInfo `json:",inline"`
	BpfAppCommon      `json:",inline"`
}

// KprobeProgramStatus summarizes the state of the program on all nodes.
type KprobeProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// KprobeProgram loads a kprobe program on each selected node, and attaches it
// to a kernel function.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=kprobeprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="FunctionName",type=string,JSONPath=`.spec.func_name`,priority=1
// +kubebuilder:printcolumn:name="Offset",type=integer,JSONPath=`.spec.offset`,priority=1
// +kubebuilder:printcolumn:name="RetProbe",type=boolean,JSONPath=`.spec.retprobe`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type KprobeProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec KprobeProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status KprobeProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *KprobeProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *KprobeProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *KprobeProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *KprobeProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeKprobe, Kprobe: &o.Spec.KprobeProgramInfo}}, false
}

// KprobeProgramList is a list of KprobePrograms.
//
// +kubebuilder:object:root=true
type KprobeProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KprobeProgram `json:"items"`
}
