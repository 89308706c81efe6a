// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TcProceedOnValue is a result of a TC program.
// +kubebuilder:validation:Enum=unspec;ok;reclassify;shot;pipe;stolen;queued;repeat;redirect;trap;dispatcher_return
type TcProceedOnValue string

// TcProgramInfo has the fields of a TC program, as a separate object or as a
// member of an application.
type TcProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// interfaceselector selects the network interfaces to attach the program to.
	// For example: `{primarynodeinterface: true}`.
	// +required
	InterfaceSelector InterfaceSelector `json:"interfaceselector"`

	// containers selects pods. The program is attached to the selected interfaces
	// in the network namespace of each pod, once in each namespace. If it is
	// absent, the program is attached to interfaces of the host. For example:
	// `{namespace: default, pods: {matchLabels: {app: web}}}`.
	// +optional
	Containers *ContainerSelector `json:"containers,omitempty"`

	// priority decides the order of the programs on an interface: a program with a
	// lower priority runs first. The default is 1000, the last. For example: `50`.
	// +optional
	// +default=1000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority"`

	// direction is the direction of the packets: `ingress` or `egress`.
	// +required
	// +kubebuilder:validation:Enum=ingress;egress
	Direction string `json:"direction"`

	// proceedon lists results of this program. The next program on the interface
	// runs only if the result is in the list. Duplicates are ignored. For example:
	// `[ok, pipe, dispatcher_return]`.
	// +optional
	// +kubebuilder:validation:MaxItems=11
	// +default=["pipe","dispatcher_return"]
	ProceedOn []TcProceedOnValue `json:"proceedon,omitzero"`
}

// ProgramType implements ProgramInfo.
func (i *TcProgramInfo) ProgramType() EBPFProgType { return ProgTypeTC }

// NamedHooks implements ProgramInfo.
func (i *TcProgramInfo) NamedHooks() NamedHooks {
	return NamedHooks{Interfaces: i.InterfaceSelector.named()}
}

// ContainerSelector implements ProgramInfo.
func (i *TcProgramInfo) ContainerSelector() *ContainerSelector { return i.Containers }

// Chain implements ProgramInfo.
func (i *TcProgramInfo) Chain() *ChainSettings {
	return i.chain(i.InterfaceSelector, ChainSettings{Priority: i.Priority, ProceedOn: texts(i.ProceedOn)})
}

// TcProgramSpec is the desired state of TcProgram objects.
type TcProgramSpec struct {
	TcProgramInfo `json:",inline"`
	BpfAppCommon  `json:",inline"`
}

// TcProgramStatus summarizes the state of the program on all nodes.
type TcProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// TcProgram loads a TC program on each selected node, and attaches it to
// network interfaces.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tcprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Direction",type=string,JSONPath=`.spec.direction`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="ProceedOn",type=string,JSONPath=`.spec.proceedon`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type TcProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec TcProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status TcProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *TcProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *TcProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *TcProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *TcProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeTC, TC: &o.Spec.TcProgramInfo}}, false
}

// TcProgramList is a list of TcPrograms.
//
// +kubebuilder:object:root=true
type TcProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TcProgram `json:"items"`
}

// TcNsProgramInfo has the fields of a TC program in a namespace, as a separate
// object or as a member of an application.
type TcNsProgramInfo struct {
	BpfProgramCommon `json:",inline"`

	// interfaceselector selects the network interfaces to attach the program to.
	// For example: `{primarynodeinterface: true}`.
	// +required
	InterfaceSelector InterfaceSelector `json:"interfaceselector"`

	// containers selects pods. The program is attached to the selected interfaces
	// in the network namespace of each pod, once in each namespace. For example:
	// `{pods: {matchLabels: {app: web}}}`.
	// +required
	Containers *ContainerNsSelector `json:"containers"`

	// priority decides the order of the programs on an interface: a program with a
	// lower priority runs first. The default is 1000, the last. For example: `50`.
	// +optional
	// +default=1000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority"`

	// direction is the direction of the packets: `ingress` or `egress`.
	// +required
	// +kubebuilder:validation:Enum=ingress;egress
	Direction string `json:"direction"`

	// proceedon lists results of this program. The next program on the interface
	// runs only if the result is in the list. Duplicates are ignored. For example:
	// `[ok, pipe, dispatcher_return]`.
	// +optional
	// +kubebuilder:validation:MaxItems=11
	// +default=["pipe","dispatcher_return"]
	ProceedOn []TcProceedOnValue `json:"proceedon,omitzero"`
}

// within returns the same configuration for a cluster-scoped kind, limited to a namespace.
func (i *TcNsProgramInfo) within(namespace string) *TcProgramInfo {
	if i == nil {
		return nil
	}
	return &TcProgramInfo{
		BpfProgramCommon: i.BpfProgramCommon, InterfaceSelector: i.InterfaceSelector, Containers: i.Containers.within(namespace),
		Priority: i.Priority, Direction: i.Direction, ProceedOn: i.ProceedOn,
	}
}

// TcNsProgramSpec is the desired state of TcNsProgram objects.
type TcNsProgramSpec struct {
	TcNsProgramInfo `json:",inline"`
	BpfAppCommon    `json:",inline"`
}

// TcNsProgram loads a TC program on each selected node, and attaches it only in
// containers in its own namespace.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=tcnsprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Direction",type=string,JSONPath=`.spec.direction`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="ProceedOn",type=string,JSONPath=`.spec.proceedon`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type TcNsProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec TcNsProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status TcProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *TcNsProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *TcNsProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *TcNsProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *TcNsProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeTC, TC: o.Spec.within(o.Namespace)}}, true
}

// TcNsProgramList is a list of TcNsPrograms.
//
// +kubebuilder:object:root=true
type TcNsProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TcNsProgram `json:"items"`
}
