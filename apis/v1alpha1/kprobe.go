// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KprobeProgramInfo is what is particular to a kprobe program,
// alone or in an application.
type KprobeProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// func_name is the kernel function to attach to.
	// +required
	FunctionName string `json:"func_name"`

	// offset is added to the function's address. A kretprobe can't have one. An
	// object with a negative one is stored, and reported as unreadable.
	// +optional
	// +default=0
	Offset uint64 `json:"offset,omitempty"`

	// retprobe tells that the program runs when the function returns. The section
	// of the bytecode (kprobe or kretprobe) decides, and this must agree. In a
	// kretprobe member of an application it means nothing.
	// +optional
	// +default=false
	RetProbe bool `json:"retprobe,omitempty"`
}

// KprobeProgramSpec is the desired state of KprobeProgram objects.
// +kubebuilder:validation:XValidation:rule="!self.retprobe || self.offset == 0",message="offset cannot be set for kretprobes"
type KprobeProgramSpec struct {
	KprobeProgramInfo `json:",inline"`
	BpfAppCommon      `json:",inline"`
}

// KprobeProgramStatus is what the nodes report.
type KprobeProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// KprobeProgram loads a kprobe program on each selected node and
// attaches it to a kernel function.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=kprobeprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="FunctionName",type=string,JSONPath=`.spec.func_name`,priority=1
// +kubebuilder:printcolumn:name="Offset",type=integer,JSONPath=`.spec.offset`,priority=1
// +kubebuilder:printcolumn:name="RetProbe",type=boolean,JSONPath=`.spec.retprobe`,priority=1
type KprobeProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +required
	Spec KprobeProgramSpec `json:"spec"`

	// status is what the nodes report.
	// +optional
	Status KprobeProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *KprobeProgram) GetAppCommon() *BpfAppCommon { return &o.Spec.BpfAppCommon }

// GetStatus implements UserObject.
func (o *KprobeProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// KprobeProgramList is a list of KprobePrograms.
//
// +kubebuilder:object:root=true
type KprobeProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KprobeProgram `json:"items"`
}
