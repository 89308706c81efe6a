// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TcxProgramInfo has the fields of a TCX program, as a separate object or as a
// member of an application.
type TcxProgramInfo struct {
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

	// direction is the direction of the packets: `ingress` or `egress`.
	// +required
	// +kubebuilder:validation:Enum=ingress;egress
	Direction string `json:"direction"`

	// priority decides the order of the programs on an interface: a program with a
	// lower priority runs first. The default is 1000, the last. For example: `50`.
	// +optional
	// +default=1000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority"`
}

// ProgramType implements ProgramInfo.
func (i *TcxProgramInfo) ProgramType() EBPFProgType { return ProgTypeTCX }

// NamedHooks implements ProgramInfo.
func (i *TcxProgramInfo) NamedHooks() NamedHooks {
	return NamedHooks{Interfaces: i.InterfaceSelector.named()}
}

// ContainerSelector implements ProgramInfo.
func (i *TcxProgramInfo) ContainerSelector() *ContainerSelector { return i.Containers }

// Chain implements ProgramInfo.
func (i *TcxProgramInfo) Chain() *ChainSettings {
	return i.chain(i.InterfaceSelector, ChainSettings{Priority: i.Priority})
}

// TcxProgramSpec is the desired state of TcxProgram objects.
type TcxProgramSpec struct {
	TcxProgramInfo `json:",inline"`
	BpfAppCommon   `json:",inline"`
}

// TcxProgramStatus summarizes the state of the program on all nodes.
type TcxProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// TcxProgram loads a TCX program on each selected node, and attaches it to
// network interfaces.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tcxprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Direction",type=string,JSONPath=`.spec.direction`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type TcxProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec TcxProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status TcxProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *TcxProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *TcxProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *TcxProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *TcxProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeTCX, TCX: &o.Spec.TcxProgramInfo}}, false
}

// TcxProgramList is a list of TcxPrograms.
//
// +kubebuilder:object:root=true
type TcxProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TcxProgram `json:"items"`
}

// TcxNsProgramInfo has the fields of a TCX program in a namespace, as a
// separate object or as a member of an application.
type TcxNsProgramInfo struct {
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

	// direction is the direction of the packets: `ingress` or `egress`.
	// +required
	// +kubebuilder:validation:Enum=ingress;egress
	Direction string `json:"direction"`

	// priority decides the order of the programs on an interface: a program with a
	// lower priority runs first. The default is 1000, the last. For example: `50`.
	// +optional
	// +default=1000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority"`
}

// within returns the same configuration for a cluster-scoped kind, limited to a namespace.
func (i *TcxNsProgramInfo) within(namespace string) *TcxProgramInfo {
	if i == nil {
		return nil
	}
	return &TcxProgramInfo{
		BpfProgramCommon: i.BpfProgramCommon, InterfaceSelector: i.InterfaceSelector, Containers: i.Containers.within(namespace),
		Priority: i.Priority, Direction: i.Direction,
	}
}

// TcxNsProgramSpec is the desired state of TcxNsProgram objects.
type TcxNsProgramSpec struct {
	TcxNsProgramInfo `json:",inline"`
	BpfAppCommon     `json:",inline"`
}

// TcxNsProgram loads a TCX program on each selected node, and attaches it only
// in containers in its own namespace.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=tcxnsprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Direction",type=string,JSONPath=`.spec.direction`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type TcxNsProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec TcxNsProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status TcxProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *TcxNsProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *TcxNsProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *TcxNsProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *TcxNsProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeTCX, TCX: o.Spec.within(o.Namespace)}}, true
}

// TcxNsProgramList is a list of TcxNsPrograms.
//
// +kubebuilder:object:root=true
type TcxNsProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TcxNsProgram `json:"items"`
}
