// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// XdpProceedOnValue is a result of an XDP program.
// +kubebuilder:validation:Enum=aborted;drop;pass;tx;redirect;dispatcher_return
type XdpProceedOnValue string

// XdpProgramInfo is what is particular to an XDP program,
// alone or in an application.
type XdpProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// interfaceselector selects the network interfaces to attach to.
	// +required
	InterfaceSelector InterfaceSelector `json:"interfaceselector"`

	// containers selects the pods in whose network namespaces the interfaces are
	// looked up, each namespace once; absent means the host's.
	// +optional
	Containers *ContainerSelector `json:"containers,omitempty"`

	// priority orders the programs of an interface: lower runs first. Unset means
	// 1000, the last.
	// +optional
	// +default=1000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority"`

	// proceedon lists the results of this program after which the next program of
	// the interface runs. A result given twice counts once.
	// +optional
	// +kubebuilder:validation:MaxItems=6
	// +default=["pass","dispatcher_return"]
	ProceedOn []XdpProceedOnValue `json:"proceedon,omitzero"`
}

// XdpProgramSpec is the desired state of XdpProgram objects.
type XdpProgramSpec struct {
	XdpProgramInfo `json:",inline"`
	BpfAppCommon   `json:",inline"`
}

// XdpProgramStatus is what the nodes report.
type XdpProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// XdpProgram loads an XDP program on each selected node and attaches
// it to network interfaces.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=xdpprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="ProceedOn",type=string,JSONPath=`.spec.proceedon`,priority=1
type XdpProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +required
	Spec XdpProgramSpec `json:"spec"`

	// status is what the nodes report.
	// +optional
	Status XdpProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *XdpProgram) GetAppCommon() *BpfAppCommon { return &o.Spec.BpfAppCommon }

// GetStatus implements UserObject.
func (o *XdpProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// XdpProgramList is a list of XdpPrograms.
//
// +kubebuilder:object:root=true
type XdpProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []XdpProgram `json:"items"`
}

// XdpNsProgramInfo is what is particular to an XDP program of a namespace, alone or in an
// application.
type XdpNsProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// interfaceselector selects the network interfaces to attach to.
	// +required
	InterfaceSelector InterfaceSelector `json:"interfaceselector"`

	// containers selects the pods in whose network namespaces the interfaces are
	// looked up, each namespace once.
	// +required
	Containers *ContainerNsSelector `json:"containers"`

	// priority orders the programs of an interface: lower runs first. Unset means
	// 1000, the last.
	// +optional
	// +default=1000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority"`

	// proceedon lists the results of this program after which the next program of
	// the interface runs. A result given twice counts once.
	// +optional
	// +kubebuilder:validation:MaxItems=6
	// +default=["pass","dispatcher_return"]
	ProceedOn []XdpProceedOnValue `json:"proceedon,omitzero"`
}

// XdpNsProgramSpec is the desired state of XdpNsProgram objects.
type XdpNsProgramSpec struct {
	XdpNsProgramInfo `json:",inline"`
	BpfAppCommon     `json:",inline"`
}

// XdpNsProgram loads an XDP program on each selected node and attaches it in
// containers of its own namespace only.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=xdpnsprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="ProceedOn",type=string,JSONPath=`.spec.proceedon`,priority=1
type XdpNsProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +required
	Spec XdpNsProgramSpec `json:"spec"`

	// status is what the nodes report.
	// +optional
	Status XdpProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *XdpNsProgram) GetAppCommon() *BpfAppCommon { return &o.Spec.BpfAppCommon }

// GetStatus implements UserObject.
func (o *XdpNsProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// XdpNsProgramList is a list of XdpNsPrograms.
//
// +kubebuilder:object:root=true
type XdpNsProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []XdpNsProgram `json:"items"`
}
