// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ApplicationLoadStatus says whether the programs of an application are loaded on a
// node. The schema admits any text, as upstream's does.
type ApplicationLoadStatus string

// What the operator writes of upstream's values of ApplicationLoadStatus.
const (
	ApplicationNotLoaded   ApplicationLoadStatus = "NotLoaded"
	ApplicationLoadSuccess ApplicationLoadStatus = "LoadSuccess"
	ApplicationLoadError   ApplicationLoadStatus = "LoadError"
	ApplicationUnloadError ApplicationLoadStatus = "UnloadError"
)

// ApplicationStateCondition is the type of the only condition of a State, and its reason.
type ApplicationStateCondition string

// What the operator writes of upstream's types of the condition of a State.
const (
	ApplicationStatePending     ApplicationStateCondition = "Pending"
	ApplicationStateSuccess     ApplicationStateCondition = "Success"
	ApplicationStateError       ApplicationStateCondition = "Error"
	ApplicationStateUnloadError ApplicationStateCondition = "UnloadError"
)

// ApplicationProgramState is one program of an application on a node.
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'XDP') == has(self.xdp)",message="xdp is required when type is XDP, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TC') == has(self.tc)",message="tc is required when type is TC, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TCX') == has(self.tcx)",message="tcx is required when type is TCX, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'FEntry') == has(self.fentry)",message="fentry is required when type is FEntry, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'FExit') == has(self.fexit)",message="fexit is required when type is FExit, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'KProbe') == has(self.kprobe)",message="kprobe is required when type is KProbe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'KRetProbe') == has(self.kretprobe)",message="kretprobe is required when type is KRetProbe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'UProbe') == has(self.uprobe)",message="uprobe is required when type is UProbe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'URetProbe') == has(self.uretprobe)",message="uretprobe is required when type is URetProbe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TracePoint') == has(self.tracepoint)",message="tracepoint is required when type is TracePoint, and forbidden otherwise"
// +union
type ApplicationProgramState struct {
	// name is the function in the bytecode that is the program's entry point. For
	// example: `xdp_stats`.
	// +required
	Name string `json:"name"`

	// programLinkStatus says whether the links are as the application describes
	// them: `Pending`, `Success`, `Error`, or `UpdateAttachInfoError`, which means
	// that the node doesn't know where to attach the program.
	// +required
	ProgramLinkStatus ProgramLinkStatus `json:"programLinkStatus"`

	// programId is the kernel's id of the program, if it is loaded. For example:
	// `61`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ProgramID *uint32 `json:"programId,omitempty"`

	// type is the type of the program. For example: `TCX`.
	// +required
	// +unionDiscriminator
	Type ApplicationProgramType `json:"type"`

	// xdp has the links of an XDP program.
	// +optional
	// +unionMember
	XDP *XdpLinkStates `json:"xdp,omitempty"`

	// tc has the links of a TC program.
	// +optional
	// +unionMember
	TC *TcLinkStates `json:"tc,omitempty"`

	// tcx has the links of a TCX program.
	// +optional
	// +unionMember
	TCX *TcxLinkStates `json:"tcx,omitempty"`

	// fentry has the links of a fentry program.
	// +optional
	// +unionMember
	FEntry *FunctionLinkStates `json:"fentry,omitempty"`

	// fexit has the links of a fexit program.
	// +optional
	// +unionMember
	FExit *FunctionLinkStates `json:"fexit,omitempty"`

	// kprobe has the links of a kprobe program.
	// +optional
	// +unionMember
	KProbe *KprobeLinkStates `json:"kprobe,omitempty"`

	// kretprobe has the links of a kretprobe program.
	// +optional
	// +unionMember
	KRetProbe *KretprobeLinkStates `json:"kretprobe,omitempty"`

	// uprobe has the links of a uprobe program.
	// +optional
	// +unionMember
	UProbe *UprobeLinkStates `json:"uprobe,omitempty"`

	// uretprobe has the links of a uretprobe program.
	// +optional
	// +unionMember
	URetProbe *UprobeLinkStates `json:"uretprobe,omitempty"`

	// tracepoint has the links of a tracepoint program.
	// +optional
	// +unionMember
	TracePoint *TracepointLinkStates `json:"tracepoint,omitempty"`
}

// ApplicationStateStatus is the state of one application on one node.
type ApplicationStateStatus struct {
	// updateCount is how often the status was written. For example: `2`.
	// +required
	UpdateCount int64 `json:"updateCount"`

	// node is the name of the node. For example: `worker-1`.
	// +required
	Node string `json:"node"`

	// appLoadStatus says whether the programs are loaded: `NotLoaded`,
	// `LoadSuccess`, `LoadError`, or `UnloadError`.
	// +required
	AppLoadStatus ApplicationLoadStatus `json:"appLoadStatus"`

	// programs are the programs of the application, in its order.
	// +optional
	// +listType=atomic
	Programs []ApplicationProgramState `json:"programs,omitempty"`

	// conditions has one condition. Its type is Pending, Success, Error, or
	// UnloadError, which is its reason too. Its message quotes the node's errors.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// ClusterBpfApplicationState is a ClusterBpfApplication on one node. The operator
// writes it from the BpfPrograms of the node's agent, if the definition of this kind
// is installed.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterBpfApplicationState struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the state of the application on the node.
	// +optional
	Status ApplicationStateStatus `json:"status,omitzero"`
}

// GetStatus implements StateObject.
func (o *ClusterBpfApplicationState) GetStatus() *ApplicationStateStatus { return &o.Status }

// ClusterBpfApplicationStateList is a list of ClusterBpfApplicationStates.
//
// +kubebuilder:object:root=true
type ClusterBpfApplicationStateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterBpfApplicationState `json:"items"`
}
