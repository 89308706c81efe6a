// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package why explains the state of an object: what was requested on each node, what exists there, what failed,
// and what to do. It only evaluates facts. Its caller reads the cluster, and prints the result.
package why

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/cli/inventory"
)

// Page is the explanation of an object.
type Page struct {
	metav1.TypeMeta `json:",inline"`

	Object Object `json:"object"`
	// Summary says which revision runs where, and why it doesn't run elsewhere. ToDo is the first thing to do.
	Summary string `json:"summary"`
	ToDo    string `json:"toDo,omitempty"`
	// Wanted are the programs in the object's spec.
	Wanted []Wanted `json:"wanted"`
	// Nodes are the nodes to mention, failing nodes first.
	Nodes []Node `json:"nodes"`
	// NotSelected counts the nodes that the selector doesn't match, by the requirements that they don't meet.
	NotSelected []Count `json:"notSelected,omitempty"`
	// Remarks are about the whole object.
	Remarks []string `json:"remarks,omitempty"`
	// Daemons are the daemons of the nodes with reports.
	Daemons inventory.Daemons `json:"daemons,omitempty"`
	// Components are problems of the node components that the operator found.
	Components []string `json:"components,omitempty"`
	// Unseen is what couldn't be read, and why.
	Unseen []string `json:"unseen,omitempty"`
}

// Object describes the explained object.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Bytecode  string `json:"bytecode"`
	// NodeSelector is the selector in kubectl's syntax. It is empty if all nodes are selected.
	NodeSelector string `json:"nodeSelector"`
	Deleting     bool   `json:"deleting,omitempty"`
	// State is the state of the object on all nodes, as its status has it.
	State State `json:"state"`
	// Status is the reason of the condition Ready. Since is the time of its last transition. Message is the operator's
	// summary.
	Status  string      `json:"status"`
	Since   metav1.Time `json:"since,omitzero"`
	Message string      `json:"message,omitempty"`
	// Problem is what the message is about, if the status names it.
	Problem string `json:"problem,omitempty"`
	// Stale means that the status is about an earlier generation of the object.
	Stale bool `json:"stale,omitempty"`
}

// Wanted is a program in an object's spec.
type Wanted struct {
	// Type is the type of the member. It is empty for a program object.
	Type     string `json:"type,omitempty"`
	Function string `json:"function"`
	// Fields are the other fields that are set, by name.
	Fields []string `json:"fields,omitempty"`
}

// State is the state of an object on a node.
type State string

// The states of an object on a node, the most severe first.
const (
	Failed      State = "Failed"
	NotReported State = "NotReported"
	RollingOut  State = "RollingOut"
	NoAgent     State = "NoAgent"
	Outdated    State = "Outdated"
	Left        State = "Left"
	Idle        State = "Idle"
	Attached    State = "Attached"
)

// Node describes an object on one node.
type Node struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	Programs []Program `json:"programs,omitempty"`
	// Remarks are details of the state.
	Remarks []string `json:"remarks,omitempty"`
	// Conflicts are the conflicts of the object's programs with others.
	Conflicts []string `json:"conflicts,omitempty"`
	// Remedies are suggested solutions, one for each error and type of conflict.
	Remedies []string `json:"remedies,omitempty"`
}

// Program is a program on a node, as its agent reports it.
type Program struct {
	// Report is the name of the BpfProgram or BpfNsProgram.
	Report   string `json:"report"`
	Function string `json:"function"`
	Type     string `json:"type,omitempty"`
	// ID is the kernel's id. It is 0 if the program isn't loaded.
	ID uint32 `json:"id,omitempty"`
	// Condition is the type of the report's condition. Since is the time of its last transition. Message is the
	// full message.
	Condition string      `json:"condition"`
	Reason    string      `json:"reason"`
	Since     metav1.Time `json:"since,omitzero"`
	Message   string      `json:"message,omitempty"`
	// Problem is what the message is about, if the report names it.
	Problem string `json:"problem,omitempty"`
	// Previous means that the program of an earlier version of the object runs, because the newest one can't be loaded.
	Previous bool `json:"previous,omitempty"`
	// Links are the attach points.
	Links []Link `json:"links,omitempty"`
}

// Link is an attach point.
type Link struct {
	AttachPoint string `json:"attachPoint"`
	Attached    bool   `json:"attached"`
	Error       string `json:"error,omitempty"`
	// Problem is what the error is about, if the report names it.
	Problem string `json:"problem,omitempty"`
}

// Count counts nodes for which the same is true.
type Count struct {
	Nodes    int      `json:"nodes"`
	Because  string   `json:"because"`
	Examples []string `json:"examples"`
}
