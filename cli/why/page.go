// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package why explains an object: what was wanted on each node, what is there, what went wrong, and what to do. It
// decides; reading the cluster and printing are others'.
package why

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Page is all that is known of an object.
type Page struct {
	metav1.TypeMeta `json:",inline"`

	Object Object `json:"object"`
	// Wanted are the object's programs.
	Wanted []Wanted `json:"wanted"`
	// Nodes are those with something to say, the failing ones first.
	Nodes []Node `json:"nodes"`
	// NotSelected counts the nodes that the selector leaves out, by what they lack.
	NotSelected []Count `json:"notSelected,omitempty"`
	// Remarks are about the object as a whole.
	Remarks []string `json:"remarks,omitempty"`
	// Components are problems of the node components, as the operator sees them.
	Components []string `json:"components,omitempty"`
	// Unseen is what couldn't be read, and why.
	Unseen []string `json:"unseen,omitempty"`
}

// Object is what is explained.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Bytecode  string `json:"bytecode"`
	// NodeSelector is the selector as kubectl takes it, empty for all nodes.
	NodeSelector string `json:"nodeSelector"`
	Deleting     bool   `json:"deleting,omitempty"`
	// Status is the condition's reason and Since when it became so; Message is the operator's, a summary.
	Status  string      `json:"status"`
	Since   metav1.Time `json:"since,omitzero"`
	Message string      `json:"message,omitempty"`
	// Stale tells that the status is about a former generation of the object.
	Stale bool `json:"stale,omitempty"`
}

// Wanted is a program of an object.
type Wanted struct {
	// Type is that of the member, empty for a kind of one program.
	Type     string `json:"type,omitempty"`
	Function string `json:"function"`
	// Fields are the others that are set, by name.
	Fields []string `json:"fields,omitempty"`
}

// State is what is so on a node.
type State string

// The states of a node, the worst first.
const (
	Failed       State = "Failed"
	NotReported  State = "NotReported"
	NoAgent      State = "NoAgent"
	Outdated     State = "Outdated"
	Left         State = "Left"
	NoContainers State = "NoContainers"
	Attached     State = "Attached"
)

// Node is one node's part.
type Node struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	Programs []Program `json:"programs,omitempty"`
	// Remarks say more of the state.
	Remarks []string `json:"remarks,omitempty"`
	// Remedies say what to do.
	Remedies []string `json:"remedies,omitempty"`
}

// Program is a program on a node, as its agent reports it.
type Program struct {
	// Report is the name of the BpfProgram, or BpfNsProgram.
	Report   string `json:"report"`
	Function string `json:"function"`
	Type     string `json:"type,omitempty"`
	// ID is the kernel's, 0 where it isn't loaded.
	ID uint32 `json:"id,omitempty"`
	// Condition is the type of the report's condition, Since when it became so, and Message the whole of it.
	Condition string      `json:"condition"`
	Reason    string      `json:"reason"`
	Since     metav1.Time `json:"since,omitzero"`
	Message   string      `json:"message,omitempty"`
	// Links are the attach points.
	Links []Link `json:"links,omitempty"`
}

// Link is an attach point.
type Link struct {
	AttachPoint string `json:"attachPoint"`
	Attached    bool   `json:"attached"`
	Error       string `json:"error,omitempty"`
}

// Count counts nodes that are alike.
type Count struct {
	Nodes    int      `json:"nodes"`
	Because  string   `json:"because"`
	Examples []string `json:"examples"`
}
