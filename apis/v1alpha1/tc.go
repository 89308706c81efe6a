// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TcProceedOnValue is a result of a TC program.
// +kubebuilder:validation:Enum=unspec;ok;reclassify;shot;pipe;stolen;queued;repeat;redirect;trap;dispatcher_return
type TcProceedOnValue string

// TcProgramInfo is what is particular to a TC program,
// alone or in an application.
type TcProgramInfo struct {
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

	// direction is the direction of the packets.
	// +required
	// +kubebuilder:validation:Enum=ingress;egress
	Direction string `json:"direction"`

	// proceedon lists the results of this program after which the next program of
	// the interface runs. A result given twice counts once.
	// +optional
	// +kubebuilder:validation:MaxItems=11
	// +default=["pipe","dispatcher_return"]
	ProceedOn []TcProceedOnValue `json:"proceedon,omitzero"`
}

// TcProgramSpec is the desired state of TcProgram objects.
type TcProgramSpec struct {
	TcProgramInfo `json:",inline"`
	BpfAppCommon  `json:",inline"`
}

// TcProgramStatus is what the nodes report.
type TcProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// TcProgram loads a TC program on each selected node and attaches it
// to network interfaces.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tcprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Direction",type=string,JSONPath=`.spec.direction`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="ProceedOn",type=string,JSONPath=`.spec.proceedon`,priority=1
type TcProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +required
	Spec TcProgramSpec `json:"spec"`

	// status is what the nodes report.
	// +optional
	Status TcProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *TcProgram) GetAppCommon() *BpfAppCommon { return &o.Spec.BpfAppCommon }

// GetStatus implements UserObject.
func (o *TcProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// TcProgramList is a list of TcPrograms.
//
// +kubebuilder:object:root=true
type TcProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TcProgram `json:"items"`
}

// TcNsProgramInfo is what is particular to a TC program of a namespace, alone or in an
// application.
type TcNsProgramInfo struct {
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

	// direction is the direction of the packets.
	// +required
	// +kubebuilder:validation:Enum=ingress;egress
	Direction string `json:"direction"`

	// proceedon lists the results of this program after which the next program of
	// the interface runs. A result given twice counts once.
	// +optional
	// +kubebuilder:validation:MaxItems=11
	// +default=["pipe","dispatcher_return"]
	ProceedOn []TcProceedOnValue `json:"proceedon,omitzero"`
}

// TcNsProgramSpec is the desired state of TcNsProgram objects.
type TcNsProgramSpec struct {
	TcNsProgramInfo `json:",inline"`
	BpfAppCommon    `json:",inline"`
}

// TcNsProgram loads a TC program on each selected node and attaches it in
// containers of its own namespace only.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=tcnsprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Direction",type=string,JSONPath=`.spec.direction`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="ProceedOn",type=string,JSONPath=`.spec.proceedon`,priority=1
type TcNsProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +required
	Spec TcNsProgramSpec `json:"spec"`

	// status is what the nodes report.
	// +optional
	Status TcProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *TcNsProgram) GetAppCommon() *BpfAppCommon { return &o.Spec.BpfAppCommon }

// GetStatus implements UserObject.
func (o *TcNsProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// TcNsProgramList is a list of TcNsPrograms.
//
// +kubebuilder:object:root=true
type TcNsProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TcNsProgram `json:"items"`
}
