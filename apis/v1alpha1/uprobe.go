// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UprobeProgramInfo is what is particular to a uprobe program,
// alone or in an application.
type UprobeProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// func_name is the function to attach to; without it, offset is from the
	// start of target.
	// +optional
	FunctionName string `json:"func_name,omitempty"`

	// offset is added to the function's address. An object with
	// a negative one is stored, and reported as unreadable.
	// +optional
	// +default=0
	Offset uint64 `json:"offset,omitempty"`

	// target is a library by name, or a library or program by absolute path.
	// +required
	Target string `json:"target"`

	// retprobe tells that the program runs when the function returns. The section
	// of the bytecode (uprobe or uretprobe) decides, and this must agree. In a
	// uretprobe member of an application it means nothing.
	// +optional
	// +default=false
	RetProbe bool `json:"retprobe,omitempty"`

	// pid limits the program to one process; absent or 0 means all of them.
	// +optional
	Pid int32 `json:"pid,omitempty"`

	// containers selects the containers in which target is looked up, attaching in
	// each; absent means the daemon's own container.
	// +optional
	Containers *ContainerSelector `json:"containers,omitempty"`
}

// UprobeProgramSpec is the desired state of UprobeProgram objects.
type UprobeProgramSpec struct {
	UprobeProgramInfo `json:",inline"`
	BpfAppCommon      `json:",inline"`
}

// UprobeProgramStatus is what the nodes report.
type UprobeProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// UprobeProgram loads a uprobe program on each selected node and
// attaches it to functions of user space.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=uprobeprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="FunctionName",type=string,JSONPath=`.spec.func_name`,priority=1
// +kubebuilder:printcolumn:name="Offset",type=integer,JSONPath=`.spec.offset`,priority=1
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target`,priority=1
// +kubebuilder:printcolumn:name="RetProbe",type=boolean,JSONPath=`.spec.retprobe`,priority=1
// +kubebuilder:printcolumn:name="Pid",type=integer,JSONPath=`.spec.pid`,priority=1
type UprobeProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +required
	Spec UprobeProgramSpec `json:"spec"`

	// status is what the nodes report.
	// +optional
	Status UprobeProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *UprobeProgram) GetAppCommon() *BpfAppCommon { return &o.Spec.BpfAppCommon }

// GetStatus implements UserObject.
func (o *UprobeProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// UprobeProgramList is a list of UprobePrograms.
//
// +kubebuilder:object:root=true
type UprobeProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UprobeProgram `json:"items"`
}

// UprobeNsProgramInfo is what is particular to a uprobe program of a namespace, alone or in an
// application.
type UprobeNsProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// func_name is the function to attach to; without it, offset is from the
	// start of target.
	// +optional
	FunctionName string `json:"func_name,omitempty"`

	// offset is added to the function's address. An object with
	// a negative one is stored, and reported as unreadable.
	// +optional
	// +default=0
	Offset uint64 `json:"offset,omitempty"`

	// target is a library by name, or a library or program by absolute path.
	// +required
	Target string `json:"target"`

	// retprobe tells that the program runs when the function returns. The section
	// of the bytecode (uprobe or uretprobe) decides, and this must agree. In a
	// uretprobe member of an application it means nothing.
	// +optional
	// +default=false
	RetProbe bool `json:"retprobe,omitempty"`

	// pid limits the program to one process; absent or 0 means all of them.
	// +optional
	Pid int32 `json:"pid,omitempty"`

	// containers selects the containers in which target is looked up, attaching in
	// each.
	// +required
	Containers *ContainerNsSelector `json:"containers"`
}

// UprobeNsProgramSpec is the desired state of UprobeNsProgram objects.
type UprobeNsProgramSpec struct {
	UprobeNsProgramInfo `json:",inline"`
	BpfAppCommon        `json:",inline"`
}

// UprobeNsProgram loads a uprobe program on each selected node and attaches it in
// containers of its own namespace only.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=uprobensprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="FunctionName",type=string,JSONPath=`.spec.func_name`,priority=1
// +kubebuilder:printcolumn:name="Offset",type=integer,JSONPath=`.spec.offset`,priority=1
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target`,priority=1
// +kubebuilder:printcolumn:name="RetProbe",type=boolean,JSONPath=`.spec.retprobe`,priority=1
// +kubebuilder:printcolumn:name="Pid",type=integer,JSONPath=`.spec.pid`,priority=1
type UprobeNsProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +required
	Spec UprobeNsProgramSpec `json:"spec"`

	// status is what the nodes report.
	// +optional
	Status UprobeProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *UprobeNsProgram) GetAppCommon() *BpfAppCommon { return &o.Spec.BpfAppCommon }

// GetStatus implements UserObject.
func (o *UprobeNsProgram) GetStatus() *BpfProgramStatusCommon {
	return &o.Status.BpfProgramStatusCommon
}

// UprobeNsProgramList is a list of UprobeNsPrograms.
//
// +kubebuilder:object:root=true
type UprobeNsProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UprobeNsProgram `json:"items"`
}
