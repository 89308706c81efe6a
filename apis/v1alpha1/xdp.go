// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// XdpProceedOnValue is a result of an XDP program.
// +kubebuilder:validation:Enum=aborted;drop;pass;tx;redirect;dispatcher_return
type XdpProceedOnValue string

// XdpProgramInfo has the fields of an XDP program, as a separate object or as a
// member of an application.
type XdpProgramInfo struct {
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

	// proceedon lists results of this program. The next program on the interface
	// runs only if the result is in the list. Duplicates are ignored. For example:
	// `[pass, dispatcher_return]`.
	// +optional
	// +kubebuilder:validation:MaxItems=6
	// +default=["pass","dispatcher_return"]
	ProceedOn []XdpProceedOnValue `json:"proceedon,omitzero"`
}

// ProgramType implements ProgramInfo.
func (i *XdpProgramInfo) ProgramType() EBPFProgType { return ProgTypeXDP }

// NamedHooks implements ProgramInfo.
func (i *XdpProgramInfo) NamedHooks() NamedHooks {
	return NamedHooks{Interfaces: i.InterfaceSelector.named()}
}

// ContainerSelector implements ProgramInfo.
func (i *XdpProgramInfo) ContainerSelector() *ContainerSelector { return i.Containers }

// Chain implements ProgramInfo.
func (i *XdpProgramInfo) Chain() *ChainSettings {
	return i.chain(i.InterfaceSelector, ChainSettings{Priority: i.Priority, ProceedOn: texts(i.ProceedOn)})
}

// XdpProgramSpec is the desired state of XdpProgram objects.
type XdpProgramSpec struct {
	XdpProgramInfo `json:",inline"`
	BpfAppCommon   `json:",inline"`
}

// XdpProgramStatus summarizes the state of the program on all nodes.
type XdpProgramStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// XdpProgram loads an XDP program on each selected node, and attaches it to
// network interfaces.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=xdpprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="ProceedOn",type=string,JSONPath=`.spec.proceedon`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type XdpProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec XdpProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status XdpProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *XdpProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *XdpProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *XdpProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *XdpProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeXDP, XDP: &o.Spec.XdpProgramInfo}}, false
}

// XdpProgramList is a list of XdpPrograms.
//
// +kubebuilder:object:root=true
type XdpProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []XdpProgram `json:"items"`
}

// XdpNsProgramInfo has the fields of an XDP program in a namespace, as a
// separate object or as a member of an application.
type XdpNsProgramInfo struct {
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

	// proceedon lists results of this program. The next program on the interface
	// runs only if the result is in the list. Duplicates are ignored. For example:
	// `[pass, dispatcher_return]`.
	// +optional
	// +kubebuilder:validation:MaxItems=6
	// +default=["pass","dispatcher_return"]
	ProceedOn []XdpProceedOnValue `json:"proceedon,omitzero"`
}

// within returns the same configuration for a cluster-scoped kind, limited to a namespace.
func (i *XdpNsProgramInfo) within(namespace string) *XdpProgramInfo {
	if i == nil {
		return nil
	}
	return &XdpProgramInfo{
		BpfProgramCommon: i.BpfProgramCommon, InterfaceSelector: i.InterfaceSelector, Containers: i.Containers.within(namespace),
		Priority: i.Priority, ProceedOn: i.ProceedOn,
	}
}

// XdpNsProgramSpec is the desired state of XdpNsProgram objects.
type XdpNsProgramSpec struct {
	XdpNsProgramInfo `json:",inline"`
	BpfAppCommon     `json:",inline"`
}

// XdpNsProgram loads an XDP program on each selected node, and attaches it only
// in containers in its own namespace.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=xdpnsprog,categories=bpfman
// +kubebuilder:printcolumn:name="BpfFunctionName",type=string,JSONPath=`.spec.bpffunctionname`
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="InterfaceSelector",type=string,JSONPath=`.spec.interfaceselector`,priority=1
// +kubebuilder:printcolumn:name="ProceedOn",type=string,JSONPath=`.spec.proceedon`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type XdpNsProgram struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec XdpNsProgramSpec `json:"spec"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status XdpProgramStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *XdpNsProgram) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *XdpNsProgram) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *XdpNsProgram) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *XdpNsProgram) Members() ([]BpfApplicationProgram, bool) {
	return []BpfApplicationProgram{{Type: ProgTypeXDP, XDP: o.Spec.within(o.Namespace)}}, true
}

// XdpNsProgramList is a list of XdpNsPrograms.
//
// +kubebuilder:object:root=true
type XdpNsProgramList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []XdpNsProgram `json:"items"`
}
