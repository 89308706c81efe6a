// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package namespaced

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// BpfApplicationState is a BpfApplication on one node. The operator writes it from the
// BpfNsPrograms of the node's agent, if the definition of this kind is installed. It
// doesn't have the paths of pods' network namespaces and the ids of processes, which are
// the node's.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[0].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BpfApplicationState struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the state of the application on the node.
	// +optional
	Status v1alpha1.ApplicationStateStatus `json:"status,omitzero"`
}

// GetStatus implements StateObject.
func (o *BpfApplicationState) GetStatus() *v1alpha1.ApplicationStateStatus { return &o.Status }

// BpfApplicationStateList is a list of BpfApplicationStates.
//
// +kubebuilder:object:root=true
type BpfApplicationStateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BpfApplicationState `json:"items"`
}
