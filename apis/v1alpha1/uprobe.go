// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UprobeProgramInfo has the fields of a uprobe program, as a separate object or
// as a member of an application.
type UprobeProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// func_name is the function to attach the program to. If it is absent, offset
	// counts from the start of target. For example: `malloc`.
	// +optional
	FunctionName string `json:"func_name,omitempty"`

	// offset is added to the address of the function, in bytes. For example: `0`.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=0
	Offset uint64 `json:"offset,omitempty"`

	// target is the name of a library, or the absolute path of a library or
	// executable. For example: `libc` or `/usr/sbin/nginx`.
	// +required
	Target string `json:"target"`

	// retprobe says whether the program runs when the function returns, instead of
	// when it is called. The bytecode's section (uprobe or uretprobe) decides, so
	// this field must match it. It has no effect in a uretprobe member of an
	// application. For example: `false`.
	// +optional
	// +default=false
	RetProbe bool `json:"retprobe,omitempty"`

	// pid is the id of a process. bpfman v0.6 ignores it, so the program runs for
	// all processes. With containers, a program with a pid isn't attached. If it is
	// absent or 0, the program runs for all processes. For example: `1234`.
	// +optional
	Pid int32 `json:"pid,omitempty"`

	// containers selects the containers in which to look up target. The program is
	// attached in each of them. If it is absent, target is looked up in the
	// daemon's container. For example: `{namespace: default, pods: {matchLabels:
	// {app: web}}}`.
	// +optional
	Containers *ContainerSelector `json:"containers,omitempty"`
}

// ProgramType implements ProgramInfo.
func (i *UprobeProgramInfo) ProgramType() EBPFProgType { return ProgTypeUprobe }

// NamedHooks implements ProgramInfo.
func (i *UprobeProgramInfo) NamedHooks() NamedHooks {
	if i.Target == "" {
		return NamedHooks{}
	}
	return NamedHooks{Target: &i.Target}
}

// ContainerSelector implements ProgramInfo.
func (i *UprobeProgramInfo) ContainerSelector() *ContainerSelector { return i.Containers }

// UprobeProgramSpec is the desired state of UprobeProgram objects.
type UprobeProgramSpec struct {
	UprobeProgramInfo `json:",inline"`
	BpfAppCommon      `json:",inline"`
}

// UprobeProgramStatus summarizes the state of the program on all nodes.
type UprobeProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// UprobeProgram loads a uprobe program on each selected node, and attaches it
// to functions in user space.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=uprobeprog,categories=bpfman
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
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target`,priority=1
// +kubebuilder:printcolumn:name="RetProbe",type=boolean,JSONPath=`.spec.retprobe`,priority=1
// +kubebuilder:printcolumn:name="Pid",type=integer,JSONPath=`.spec.pid`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type UprobeProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec UprobeProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status UprobeProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *UprobeProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *UprobeProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *UprobeProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *UprobeProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeUprobe, Uprobe: &o.Spec.UprobeProgramInfo}}, false
}

// UprobeProgramList is a list of UprobePrograms.
//
// +kubebuilder:object:root=true
type UprobeProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UprobeProgram `json:"items"`
}

// UprobeNsProgramInfo has the fields of a uprobe program in a namespace, as a
// separate object or as a member of an application.
type UprobeNsProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// func_name is the function to attach the program to. If it is absent, offset
	// counts from the start of target. For example: `malloc`.
	// +optional
	FunctionName string `json:"func_name,omitempty"`

	// offset is added to the address of the function, in bytes. For example: `0`.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=0
	Offset uint64 `json:"offset,omitempty"`

	// target is the name of a library, or the absolute path of a library or
	// executable. For example: `libc` or `/usr/sbin/nginx`.
	// +required
	Target string `json:"target"`

	// retprobe says whether the program runs when the function returns, instead of
	// when it is called. The bytecode's section (uprobe or uretprobe) decides, so
	// this field must match it. It has no effect in a uretprobe member of an
	// application. For example: `false`.
	// +optional
	// +default=false
	RetProbe bool `json:"retprobe,omitempty"`

	// pid is the id of a process. bpfman v0.6 ignores it, so the program runs for
	// all processes. With containers, a program with a pid isn't attached. If it is
	// absent or 0, the program runs for all processes. For example: `1234`.
	// +optional
	Pid int32 `json:"pid,omitempty"`

	// containers selects the containers in which to look up target. The program is
	// attached in each of them. For example: `{pods: {matchLabels: {app: web}}}`.
	// +required
	Containers *ContainerNsSelector `json:"containers"`
}

// within returns the same configuration for a cluster-scoped kind, limited to a namespace.
func (i *UprobeNsProgramInfo) within(namespace string) *UprobeProgramInfo {
	if i == nil {
		return nil
	}
	return &UprobeProgramInfo{
		BpfProgramCommon: i.BpfProgramCommon, FunctionName: i.FunctionName, Offset: i.Offset, Target: i.Target,
		RetProbe: i.RetProbe, Pid: i.Pid, Containers: i.Containers.within(namespace),
	}
}

// UprobeNsProgramSpec is the desired state of UprobeNsProgram objects.
type UprobeNsProgramSpec struct {
	UprobeNsProgramInfo `json:",inline"`
	BpfAppCommon        `json:",inline"`
}

// UprobeNsProgram loads a uprobe program on each selected node, and attaches it
// only in containers in its own namespace.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=uprobensprog,categories=bpfman
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
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target`,priority=1
// +kubebuilder:printcolumn:name="RetProbe",type=boolean,JSONPath=`.spec.retprobe`,priority=1
// +kubebuilder:printcolumn:name="Pid",type=integer,JSONPath=`.spec.pid`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type UprobeNsProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec UprobeNsProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status UprobeProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *UprobeNsProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *UprobeNsProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *UprobeNsProgram) GetStatus() *BpfProgramStatusCommon {
	return &o.Status.BpfProgramStatusCommon
}

// Members implements UserObject.
func (o *UprobeNsProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeUprobe, Uprobe: o.Spec.within(o.Namespace)}}, true
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
