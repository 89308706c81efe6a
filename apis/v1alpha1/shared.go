// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BpfAppCommon has the fields of every kind that users write: the source of the
// bytecode, the values of its globals, and the nodes to load it on.
type BpfAppCommon struct {
	// nodeselector selects nodes by their labels. An empty selector selects all
	// nodes. For example: `{matchLabels: {kubernetes.io/os: linux}}`.
	// +required
	NodeSelector metav1.LabelSelector `json:"nodeselector"`

	// globaldata sets global variables of the bytecode before it is loaded, by their
	// bytes. Each value is the raw bytes of the variable, in the node's byte order
	// and with padding, in base64 or as a list of integers. For example: `{sampling: AQ==}`
	// or `{sampling: [0x01]}`.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	GlobalData GlobalData `json:"globaldata,omitempty"`

	// globals sets global variables of the bytecode before it is loaded, by their
	// values. The type of each variable is read from the image: an integer takes a
	// number, a bool takes true or false, an array takes a list, and an array of
	// char also takes a string. For example: `{port: 8080, interface: eth0}`.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:pruning:PreserveUnknownFields
	Globals Globals `json:"globals,omitempty"`

	// bytecode says where the bytecode comes from: an image or a file. For
	// example: `{image: {url: quay.io/bpfman-bytecode/xdp_pass:latest}}`.
	// +required
	ByteCode BytecodeSelector `json:"bytecode"`
}

// BpfProgramCommon has the fields of every program, as a separate object or as
// a member of an application.
type BpfProgramCommon struct {
	// bpffunctionname is the function in the bytecode that is the program's entry
	// point. For example: `xdp_stats`.
	// +required
	BpfFunctionName string `json:"bpffunctionname"`

	// mapownerselector selects, by its labels, the BpfProgram whose maps this
	// program uses instead of its own. It must match exactly one BpfProgram on the
	// node. For namespaced kinds, it selects a BpfNsProgram in the same namespace.
	// For example: `{matchLabels: {bpfman.io/ownedByProgram: packets}}`.
	// +optional
	MapOwnerSelector metav1.LabelSelector `json:"mapownerselector,omitzero"`

	// attach says whether to attach the program. With false, the program and its
	// maps are loaded, but not attached. A change attaches or detaches the program
	// without a reload. The default is true. For example: `false`.
	// +optional
	Attach *bool `json:"attach,omitempty"`
}

// BytecodeSelector says where bytecode comes from: an image or a file. If both
// are set, the image is used. If neither is set, nothing is loaded.
type BytecodeSelector struct {
	// image is an OCI image with the bytecode. For example: `{url:
	// quay.io/bpfman-bytecode/xdp_pass:latest}`.
	// +optional
	Image *BytecodeImage `json:"image,omitempty"`

	// path is a file on the node, as the daemon's container sees it. For example:
	// `/run/bytecode/xdp_pass.o`.
	// +optional
	Path *string `json:"path,omitempty"`
}

// BytecodeImage is an OCI image with bytecode.
type BytecodeImage struct {
	// url is the full reference of the image, with the host of the registry. For
	// example: `quay.io/bpfman-bytecode/xdp_pass:latest`.
	// +required
	Url string `json:"url"`

	// imagepullpolicy says when the image is pulled: at each load (`Always`),
	// never (`Never`), or if the node doesn't have it (`IfNotPresent`).
	// +optional
	// +default="IfNotPresent"
	ImagePullPolicy PullPolicy `json:"imagepullpolicy,omitempty"`

	// imagepullsecret names the Secret with the credentials for the registry. For
	// example: `{name: registry, namespace: default}`.
	// +optional
	ImagePullSecret *ImagePullSecretSelector `json:"imagepullsecret,omitempty"`
}

// PullPolicy says when an image is pulled.
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
	// name is the name of the Secret. For example: `registry`.
	// +required
	Name string `json:"name"`

	// namespace is the namespace of the Secret. For namespaced kinds, it must be
	// the namespace of the object; the agent refuses a Secret of another
	// namespace. For example: `default`.
	// +required
	Namespace string `json:"namespace"`
}

// InterfaceSelector selects network interfaces. Exactly one of its fields must
// be set.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type InterfaceSelector struct {
	// interfaces lists interfaces by name. If an interface doesn't exist yet, the
	// program is attached as soon as it appears. With an empty list, the program
	// is loaded, but not attached. The kernel limits names to 15 bytes, without
	// whitespace, slashes, and colons. For example: `[eth0]`.
	// +optional
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:Pattern=`^[^/:\s]*$`
	Interfaces *[]string `json:"interfaces,omitempty"`

	// primarynodeinterface selects the interface with the node's internal IP
	// address. The field selects it even if its value is false. To select other
	// interfaces, use interfaces instead. For example: `true`.
	// +optional
	PrimaryNodeInterface *bool `json:"primarynodeinterface,omitempty"`

	// interfacesdiscoveryconfig selects the interfaces that exist, and those that
	// appear later. In containers, these are the interfaces in the network
	// namespace of each pod. For example: `{interfaceautodiscovery: true,
	// allowedinterfaces: [/^eth/]}`.
	// +optional
	InterfacesDiscoveryConfig *InterfaceDiscovery `json:"interfacesdiscoveryconfig,omitempty"`
}

// InterfaceDiscovery selects interfaces by lists of allowed and excluded ones.
// An entry is the name of an interface, or a regular expression between slashes
// (Go's syntax), which can match anywhere in a name: /^eth/ matches every name
// that begins with eth. An interface that is both allowed and excluded is
// excluded.
type InterfaceDiscovery struct {
	// interfaceautodiscovery enables the discovery. With false, the program is
	// loaded, but not attached. For example: `true`.
	// +optional
	// +default=false
	InterfaceAutoDiscovery *bool `json:"interfaceautodiscovery,omitempty"`

	// excludeinterfaces lists the interfaces to which the program is never
	// attached. For example: `[lo, /^veth/]`.
	// +optional
	// +default=["lo"]
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=256
	ExcludeInterfaces []string `json:"excludeinterfaces,omitzero"`

	// allowedinterfaces lists the only interfaces to which the program is
	// attached. If it is absent or empty, these are all interfaces that aren't
	// excluded. For example: `[eth0, "/^eth[1-9]/"]`.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=256
	AllowedInterfaces []string `json:"allowedinterfaces,omitempty"`
}

// ContainerAttachment says when a program is attached in a container.
// +kubebuilder:validation:Enum=BeforeStart
type ContainerAttachment string

// AttachBeforeStart means before the first process of a container or pod starts.
const AttachBeforeStart ContainerAttachment = "BeforeStart"

// StartFailurePolicy says whether a container or pod starts if a program can't be
// attached before.
// +kubebuilder:validation:Enum=Ignore;Fail
type StartFailurePolicy string

// The policies. Ignore is the default.
const (
	StartIgnore StartFailurePolicy = "Ignore"
	StartFail   StartFailurePolicy = "Fail"
)

// ContainerSelector selects containers on a node, for cluster-scoped kinds.
// +kubebuilder:validation:XValidation:rule="!has(self.failurePolicy) || has(self.attachment)",message="failurePolicy needs attachment: BeforeStart"
type ContainerSelector struct {
	// namespace is the namespace of the pods. If it is empty, pods in all
	// namespaces are selected. For example: `default`.
	// +optional
	// +default=""
	Namespace string `json:"namespace,omitempty"`

	// pods selects pods by their labels. An empty selector selects all pods. For
	// example: `{matchLabels: {app: web}}`.
	// +required
	Pods metav1.LabelSelector `json:"pods"`

	// containernames lists containers of the pods by name. If it is absent or
	// empty, all containers are selected. For example: `[nginx]`.
	// +optional
	ContainerNames *[]string `json:"containernames,omitempty"`

	// attachment says when the program is attached in a container. `BeforeStart`
	// means before the first process of the container starts, or for a network
	// program, of the pod. This requires a node whose container runtime has NRI, and
	// the key bpfman.agent.beforestart.enabled of the ConfigMap bpfman-config.
	// Without the field, it is attached after the start. For example: `BeforeStart`.
	// +optional
	Attachment ContainerAttachment `json:"attachment,omitempty"`

	// failurePolicy says what happens if the program can't be attached before the
	// start. `Ignore`, the default, has the pod start without it. With `Fail`, the pod
	// doesn't start, and the kubelet tries again. For example: `Fail`.
	// +optional
	FailurePolicy StartFailurePolicy `json:"failurePolicy,omitempty"`
}

// ContainerNsSelector selects containers on a node, in the namespace of the
// object.
// +kubebuilder:validation:XValidation:rule="!has(self.failurePolicy) || has(self.attachment)",message="failurePolicy needs attachment: BeforeStart"
type ContainerNsSelector struct {
	// pods selects pods by their labels. An empty selector selects all pods in the
	// namespace. For example: `{matchLabels: {app: web}}`.
	// +required
	Pods metav1.LabelSelector `json:"pods"`

	// containernames lists containers of the pods by name. If it is absent or
	// empty, all containers are selected. For example: `[nginx]`.
	// +optional
	ContainerNames *[]string `json:"containernames,omitempty"`

	// attachment says when the program is attached in a container. `BeforeStart`
	// means before the first process of the container starts, or for a network
	// program, of the pod. This requires a node whose container runtime has NRI, and
	// the key bpfman.agent.beforestart.enabled of the ConfigMap bpfman-config.
	// Without the field, it is attached after the start. For example: `BeforeStart`.
	// +optional
	Attachment ContainerAttachment `json:"attachment,omitempty"`

	// failurePolicy says what happens if the program can't be attached before the
	// start. `Ignore`, the default, has the pod start without it. With `Fail`, the pod
	// doesn't start, and the kubelet tries again. For example: `Fail`.
	// +optional
	FailurePolicy StartFailurePolicy `json:"failurePolicy,omitempty"`
}

// BpfProgramStatusCommon is the status of every kind that users write. It
// summarizes the state on all nodes.
type BpfProgramStatusCommon struct {
	// observedGeneration is the metadata.generation that this status describes. It
	// is -1 until there is a status. For example: `2`.
	// +optional
	// +default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// nodes counts the nodes by their state. For example: `{selected: 3, attached:
	// 2, failed: 1}`.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`

	// revision is the newest revision of the object. The field is absent until the
	// operator has recorded it.
	// +optional
	Revision *RecordedRevision `json:"revision,omitempty"`

	// rollout is the state of the object's rollout. It is absent if no
	// RolloutPolicy matches the object.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// problem names what the message of the first condition is about, as the tables
	// of docs/status.md do: for failures, that of the first node that it names. It is
	// absent if they don't have it. For example: `NoSuchInterface`.
	// +optional
	Problem string `json:"problem,omitempty"`

	// conditions summarizes the nodes. The type of the first condition is
	// NotYetLoaded, ReconcileError, ReconcileSuccess, or DeleteError. Its message
	// names the nodes that fail, and the errors. The condition Ready follows and, if
	// it is False, either Reconciling or Stalled, as kstatus reads them. Stalled
	// means that a node fails until somebody changes something.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// RecordedRevision identifies a revision of an object, which is a
// ControllerRevision.
type RecordedRevision struct {
	// number is the number of the revision. For example: `2`.
	// +required
	Number int64 `json:"number"`

	// hash is a hash of the part of the object that affects its programs.
	// +required
	Hash string `json:"hash"`
}

// NodeCounts counts nodes. Selected nodes that are neither attached, idle, nor
// failed haven't reported yet.
type NodeCounts struct {
	// selected is the number of nodes that the object selects. For example: `3`.
	// +required
	Selected int32 `json:"selected"`

	// attached is the number of nodes where all programs of the object are loaded,
	// and attached as requested. For example: `2`.
	// +required
	Attached int32 `json:"attached"`

	// idle is the number of nodes where all programs of the object are loaded, but
	// there is nothing to attach them to: no container or interface matches. For
	// example: `1`.
	// +optional
	// +default=0
	Idle int32 `json:"idle"`

	// failed is the number of nodes that report a failure. For example: `1`.
	// +required
	Failed int32 `json:"failed"`
}
