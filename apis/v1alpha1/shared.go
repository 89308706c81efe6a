// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BpfAppCommon is what each kind that users write has: where the bytecode comes
// from, what its globals are, and which nodes it goes to.
type BpfAppCommon struct {
	// nodeselector selects the nodes by their labels; an empty selector selects
	// all of them.
	// +required
	NodeSelector metav1.LabelSelector `json:"nodeselector"`

	// globaldata sets global variables of the bytecode before it is loaded. Each
	// value is the variable's raw bytes, in the node's byte order and with its
	// padding, written in base64 (AQ==) or as a list of integers ([0x01]).
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	GlobalData GlobalData `json:"globaldata,omitempty"`

	// bytecode tells where the bytecode comes from.
	// +required
	ByteCode BytecodeSelector `json:"bytecode"`
}

// BpfProgramCommon is what each program has, alone or in an application.
type BpfProgramCommon struct {
	// bpffunctionname is the function in the bytecode that is the program's entry.
	// +required
	BpfFunctionName string `json:"bpffunctionname"`

	// mapownerselector selects, by its labels, the BpfProgram whose maps this
	// program shares instead of having its own. It must match exactly one on the
	// node. For namespaced kinds it is a BpfNsProgram of the same namespace.
	// +optional
	MapOwnerSelector metav1.LabelSelector `json:"mapownerselector,omitzero"`

	// attach tells whether the program is attached. False loads it, with its maps,
	// and attaches it nowhere; changing it attaches or detaches the program without
	// a reload. Unset means true.
	// +optional
	Attach *bool `json:"attach,omitempty"`
}

// BytecodeSelector tells where bytecode comes from: an image, or a file. Where
// both are given, the image is used; where neither is, nothing is loaded.
type BytecodeSelector struct {
	// image is an OCI image that holds the bytecode.
	// +optional
	Image *BytecodeImage `json:"image,omitempty"`

	// path is a file on the node, as the daemon's container sees it.
	// +optional
	Path *string `json:"path,omitempty"`
}

// BytecodeImage is an OCI image that holds bytecode.
type BytecodeImage struct {
	// url is the image's full reference, with the registry's host:
	// quay.io/bpfman-bytecode/xdp_pass:latest.
	// +required
	Url string `json:"url"`

	// imagepullpolicy tells when the image is pulled.
	// +optional
	// +default="IfNotPresent"
	ImagePullPolicy PullPolicy `json:"imagepullpolicy,omitempty"`

	// imagepullsecret names the Secret with the registry's credentials.
	// +optional
	ImagePullSecret *ImagePullSecretSelector `json:"imagepullsecret,omitempty"`
}

// PullPolicy tells when an image is pulled.
// +kubebuilder:validation:Enum=Always;Never;IfNotPresent
type PullPolicy string

const (
	// PullAlways pulls at each load.
	PullAlways PullPolicy = "Always"
	// PullNever uses only what the node has.
	PullNever PullPolicy = "Never"
	// PullIfNotPresent pulls what the node doesn't have.
	PullIfNotPresent PullPolicy = "IfNotPresent"
)

// ImagePullSecretSelector names a Secret of type kubernetes.io/dockerconfigjson
// or kubernetes.io/dockercfg.
type ImagePullSecretSelector struct {
	// name of the Secret.
	// +required
	Name string `json:"name"`

	// namespace of the Secret. For namespaced kinds it must be the object's own:
	// another namespace's Secret is refused by the agent.
	// +required
	Namespace string `json:"namespace"`
}

// InterfaceSelector selects network interfaces in one of its ways.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type InterfaceSelector struct {
	// interfaces lists interfaces by name. A name that the node lacks is attached
	// as soon as the interface appears. An empty list selects nothing: the program
	// is loaded and attached nowhere.
	// +optional
	Interfaces *[]string `json:"interfaces,omitempty"`

	// primarynodeinterface selects the interface that carries the node's internal
	// IP address. Its presence counts: false selects it too. To select other
	// interfaces, list them in interfaces.
	// +optional
	PrimaryNodeInterface *bool `json:"primarynodeinterface,omitempty"`

	// interfacesdiscoveryconfig selects the interfaces that are there, whatever
	// they are called, and those that appear later. In containers these are the
	// interfaces of each pod's network namespace.
	// +optional
	InterfacesDiscoveryConfig *InterfaceDiscovery `json:"interfacesdiscoveryconfig,omitempty"`
}

// InterfaceDiscovery selects interfaces by what is allowed and excluded. An entry
// is an interface's name, or a regular expression between slashes (Go's syntax),
// which matches anywhere in a name: /^eth/ is every name that begins with eth. An
// interface that is both allowed and excluded is excluded.
type InterfaceDiscovery struct {
	// interfaceautodiscovery turns discovery on. While it is false, the program is
	// loaded and attached nowhere.
	// +optional
	// +default=false
	InterfaceAutoDiscovery *bool `json:"interfaceautodiscovery,omitempty"`

	// excludeinterfaces lists the interfaces that are never attached to.
	// +optional
	// +default=["lo"]
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=256
	ExcludeInterfaces []string `json:"excludeinterfaces,omitzero"`

	// allowedinterfaces lists the only interfaces that are attached to; absent or
	// empty means all that aren't excluded.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=256
	AllowedInterfaces []string `json:"allowedinterfaces,omitempty"`
}

// ContainerSelector selects containers of a node, for kinds without namespace.
type ContainerSelector struct {
	// namespace of the pods; empty means all namespaces.
	// +optional
	// +default=""
	Namespace string `json:"namespace,omitempty"`

	// pods selects pods by their labels; an empty selector selects all of them.
	// +required
	Pods metav1.LabelSelector `json:"pods"`

	// containernames lists the pods' containers by name; absent or empty means
	// all of them.
	// +optional
	ContainerNames *[]string `json:"containernames,omitempty"`
}

// ContainerNsSelector selects containers of a node in the object's own namespace.
type ContainerNsSelector struct {
	// pods selects pods by their labels; an empty selector selects all of the
	// namespace.
	// +required
	Pods metav1.LabelSelector `json:"pods"`

	// containernames lists the pods' containers by name; absent or empty means
	// all of them.
	// +optional
	ContainerNames *[]string `json:"containernames,omitempty"`
}

// BpfProgramStatusCommon is the status of each kind that users write: the sum
// over the nodes.
type BpfProgramStatusCommon struct {
	// observedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// nodes counts the nodes by what they report.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`

	// conditions holds one condition. Its type is NotYetLoaded, ReconcileError,
	// ReconcileSuccess or DeleteError; its message names the nodes that fail and
	// why.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// NodeCounts counts nodes. Those that are selected and neither attached nor
// failed haven't reported yet.
type NodeCounts struct {
	// selected is how many nodes the program is for.
	// +required
	Selected int32 `json:"selected"`

	// attached is how many nodes have what was asked.
	// +required
	Attached int32 `json:"attached"`

	// failed is how many nodes report a failure.
	// +required
	Failed int32 `json:"failed"`
}
