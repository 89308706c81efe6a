// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutPolicySpec says in which steps changes of objects reach the nodes.
type RolloutPolicySpec struct {
	// match selects the objects whose changes are rolled out in steps. An empty
	// match selects all.
	// +optional
	Match RolloutPolicyMatch `json:"match,omitzero"`

	// canaries selects nodes that change before the others. The numbers in steps
	// include them. For example: `{matchLabels: {canary: "true"}}`.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !(has(e.values) && size(e.values) > 0))",message="the operator must be In or NotIn with values, or Exists or DoesNotExist without values"
	Canaries *metav1.LabelSelector `json:"canaries,omitempty"`

	// steps are the steps before the change reaches all nodes. For example:
	// `[{nodes: 1, pause: 10m}, {nodes: 25%}]`.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Steps []RolloutStep `json:"steps"`

	// maxUnhealthy is how many of the nodes with the change can be unhealthy: a
	// number, or a percentage of these nodes, rounded down. For example: `1`.
	// +optional
	// +default=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string || self >= 0 && self <= 2147483647",message="the number must be from 0 to 2147483647"
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^([0-9]|[1-9][0-9]|100)%$`
	MaxUnhealthy intstr.IntOrString `json:"maxUnhealthy,omitzero"`

	// timeLimit is how long the nodes of a step can take to become healthy. Those
	// that aren't healthy then count as unhealthy. For example: `10m`.
	// +optional
	// +default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="the time limit must be at least 10s"
	TimeLimit metav1.Duration `json:"timeLimit,omitzero"`

	// maxRunTimePercent is how long a run of a program can take on average, as a
	// percentage of the average in the previous revision. Otherwise, the node is
	// unhealthy. Without this field, run times don't matter. It requires that the
	// inspectors measure run times. For example: `200`.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=10000
	MaxRunTimePercent int32 `json:"maxRunTimePercent,omitempty"`

	// onFailure says what happens if more nodes are unhealthy than maxUnhealthy.
	// With `halt`, no other node changes until you resume the rollout or edit the
	// object. With `undo`, all nodes also return to the previous revision.
	// +optional
	// +default="halt"
	OnFailure RolloutOnFailure `json:"onFailure,omitempty"`
}

// RolloutPolicyMatch selects objects. An object must match every field that is
// present. A field that is absent matches everything.
type RolloutPolicyMatch struct {
	// kinds lists kinds of objects. For example: `[XdpProgram, BpfApplication]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Enum=BpfApplication;BpfNsApplication;ClusterBpfApplication;FentryProgram;FexitProgram;KprobeProgram;LsmProgram;TcNsProgram;TcProgram;TcxNsProgram;TcxProgram;TracepointProgram;UprobeNsProgram;UprobeProgram;XdpNsProgram;XdpProgram
	Kinds []string `json:"kinds,omitempty"`

	// namespaces lists namespaces by name. An asterisk matches any characters. If
	// this field is present, the policy doesn't apply to cluster-scoped objects.
	// For example: `[default, team-*]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9*][-a-z0-9*]*$`
	Namespaces []string `json:"namespaces,omitempty"`

	// objectSelector selects objects by their labels. For example: `{matchLabels:
	// {app: firewall}}`.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !(has(e.values) && size(e.values) > 0))",message="the operator must be In or NotIn with values, or Exists or DoesNotExist without values"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// images are patterns for references of images, as in the rules of a
	// BytecodePolicy. One of them must match. For example: `[quay.io/acme/*]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	Images []string `json:"images,omitempty"`

	// programTypes lists types of programs. An application matches if it has a
	// program of one of these types. For example: `[XDP, TCX]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Enum=Fentry;Fexit;Kprobe;LSM;TC;TCX;Tracepoint;Uprobe;XDP
	ProgramTypes []EBPFProgType `json:"programTypes,omitempty"`
}

// RolloutStep is a step of a rollout.
// +kubebuilder:validation:XValidation:rule="!has(self.pause) || !has(self.untilResumed) || !self.untilResumed",message="a step can have either pause or untilResumed"
type RolloutStep struct {
	// nodes is how many nodes have the change in this step: a number, or a
	// percentage of the selected nodes, rounded up. For example: `25%`.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string || self >= 1 && self <= 2147483647",message="the number must be from 1 to 2147483647"
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^([1-9]|[1-9][0-9]|100)%$`
	Nodes intstr.IntOrString `json:"nodes"`

	// pause is how long the nodes of this step must be healthy before the next
	// step.
	// For example: `10m`.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="the pause must not be negative"
	Pause *metav1.Duration `json:"pause,omitempty"`

	// untilResumed makes the rollout wait after this step until you resume it. For
	// example: `true`.
	// +optional
	UntilResumed bool `json:"untilResumed,omitempty"`
}

// RolloutOnFailure says what happens to a rollout that fails.
// +kubebuilder:validation:Enum=halt;undo
type RolloutOnFailure string

// What happens to a rollout that fails.
const (
	RolloutHalt RolloutOnFailure = "halt"
	RolloutUndo RolloutOnFailure = "undo"
)

// RolloutPolicyStatus is the state of a policy.
type RolloutPolicyStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// For example: `2`.
	// +optional
	// +default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// problem names what the message of the condition Ready is about, as the tables
	// of docs/status.md do. It is absent if they don't have it. For example:
	// `PolicySelectorInvalid`.
	// +optional
	Problem string `json:"problem,omitempty"`

	// conditions contains the condition Ready. If it is False, the policy is
	// invalid, and the condition Stalled follows.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// RolloutPolicy rolls out changes of eBPF programs in steps. If no policy
// matches an object, its changes reach all nodes immediately. If several
// policies match, its changes reach no node until only one does.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=rolloutpolicies,singular=rolloutpolicy,shortName=rollpol,categories=bpfman
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Steps",type=string,JSONPath=`.spec.steps`
// +kubebuilder:printcolumn:name="On-Failure",type=string,JSONPath=`.spec.onFailure`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type RolloutPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the policy.
	// +required
	Spec RolloutPolicySpec `json:"spec"`

	// status is the state of the policy.
	// +optional
	// +default={}
	Status RolloutPolicyStatus `json:"status,omitzero"`
}

// RolloutPolicyList is a list of RolloutPolicies.
//
// +kubebuilder:object:root=true
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RolloutPolicy `json:"items"`
}

// RolloutState is the state of a rollout.
type RolloutState string

// The states of a rollout.
const (
	// RolloutProgressing means that nodes change, or are about to.
	RolloutProgressing RolloutState = "Progressing"
	// RolloutPaused means that the rollout waits for a user to resume it.
	RolloutPaused RolloutState = "Paused"
	// RolloutHalted means that too many nodes are unhealthy.
	RolloutHalted RolloutState = "Halted"
	// RolloutUndone means that all nodes return to the previous revision.
	RolloutUndone RolloutState = "Undone"
	// RolloutComplete means that all nodes have the revision, or are to have it.
	RolloutComplete RolloutState = "Complete"
	// RolloutContested means that the newest revision can't be rolled out until somebody changes what the
	// message names: several policies match the object, one can't be read, or the revision can't be stored.
	RolloutContested RolloutState = "Contested"
)

// Stalled reports whether the rollout doesn't go on until somebody changes something, or allows it.
func (s RolloutState) Stalled() bool {
	return s == RolloutHalted || s == RolloutUndone || s == RolloutContested
}

// RolloutStatus is the state of the rollout of an object that a RolloutPolicy
// matches.
type RolloutStatus struct {
	// policy is the RolloutPolicy that matches the object. For example: `careful`.
	// +optional
	Policy string `json:"policy,omitempty"`

	// state is the state of the rollout: Progressing, Paused, Halted, Undone,
	// Complete, or Contested. For example: `Progressing`.
	// +required
	State RolloutState `json:"state"`

	// message explains the state.
	// +optional
	Message string `json:"message,omitempty"`

	// problem names what message is about, as the tables of docs/status.md do. It is
	// absent if they don't have it. For example: `RolloutHalted`.
	// +optional
	Problem string `json:"problem,omitempty"`

	// hash identifies the revision of the object that the other fields describe.
	// Nodes don't run another one.
	// +optional
	Hash string `json:"hash,omitempty"`

	// revision is the number of the object's revision, which is a
	// ControllerRevision. For example: `2`.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// step is the number of the step, from 1. For example: `1`.
	// +optional
	Step int32 `json:"step,omitempty"`

	// nodes is the number of nodes that are to have the revision in this step. For
	// example: `5`.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`

	// started is when the rollout began, and stepStarted when its step began.
	// +optional
	Started *metav1.Time `json:"started,omitempty"`
	// stepStarted is when the step began.
	// +optional
	StepStarted *metav1.Time `json:"stepStarted,omitempty"`

	// until determines the nodes that are to have the revision. Each node has a
	// position, which is a hash of its name and the object's UID. Nodes whose
	// position is below this value have the revision. If the value is absent, all
	// nodes have it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Until *int64 `json:"until,omitempty"`

	// canaries selects nodes that come before the others, as in the policy.
	// +optional
	Canaries *metav1.LabelSelector `json:"canaries,omitempty"`

	// maxRunTimePercent limits run times, as in the policy.
	// +optional
	MaxRunTimePercent int32 `json:"maxRunTimePercent,omitempty"`

	// previous is the revision that the other nodes have. If it is absent, they
	// have none.
	// +optional
	Previous *RolloutRevision `json:"previous,omitempty"`
}

// RolloutRevision is a revision of an object.
type RolloutRevision struct {
	// revision is the number of the revision. For example: `1`.
	// +required
	Revision int64 `json:"revision"`

	// object contains the part of the object that affects its programs.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Object runtime.RawExtension `json:"object"`
}

// Position returns the revision and the step of a rollout. With it as the value of AnnotationRolloutResumed, the rollout
// goes on to the next step.
func (s *RolloutStatus) Position() string { return fmt.Sprintf("%d/%d", s.Revision, s.Step) }
