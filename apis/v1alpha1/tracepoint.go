// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TracepointProgramInfo has the fields of a tracepoint program, as a separate
// object or as a member of an application.
type TracepointProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// names lists the tracepoints to attach the program to, as category/event. For
	// example: `[syscalls/sys_enter_kill]`.
	// +required
	Names []string `json:"names"`
}

// ProgramType implements ProgramInfo.
func (i *TracepointProgramInfo) ProgramType() EBPFProgType { return ProgTypeTracepoint }

// NamedHooks implements ProgramInfo.
func (i *TracepointProgramInfo) NamedHooks() NamedHooks {
	return NamedHooks{Tracepoints: i.Names}
}

// TracepointProgramSpec is the desired state of TracepointProgram objects.
type TracepointProgramSpec struct {
	TracepointProgramInfo `json:",inline"`
	BpfAppCommon          `json:",inline"`
}

// TracepointProgramStatus summarizes the state of the program on all nodes.
type TracepointProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// TracepointProgram loads a tracepoint program on each selected node, and
// attaches it to tracepoints.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tracepointprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="TracePoint",type=string,JSONPath=`.spec.names`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type TracepointProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec TracepointProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status TracepointProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *TracepointProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *TracepointProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *TracepointProgram) GetStatus() *BpfProgramStatusCommon {
	return &o.Status.BpfProgramStatusCommon
}

// Members implements UserObject.
func (o *TracepointProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeTracepoint, Tracepoint: &o.Spec.TracepointProgramInfo}}, false
}

// TracepointProgramList is a list of TracepointPrograms.
//
// +kubebuilder:object:root=true
type TracepointProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TracepointProgram `json:"items"`
}
