// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LinkDirection is the direction of packets: `Ingress` or `Egress`. Small
// letters mean the same.
// +kubebuilder:validation:Enum=Ingress;Egress;ingress;egress
type LinkDirection string

// XdpLinkResult is a result of an XDP program.
// +kubebuilder:validation:Enum=Aborted;Drop;Pass;TX;ReDirect;DispatcherReturn
type XdpLinkResult string

// TcLinkResult is a result of a TC program.
// +kubebuilder:validation:Enum=UnSpec;OK;ReClassify;Shot;Pipe;Stolen;Queued;Repeat;ReDirect;Trap;DispatcherReturn
type TcLinkResult string

// LinkMode says what a link of a fentry or fexit program does.
// +kubebuilder:validation:Enum=Attach
type LinkMode string

// LinkInterfaces selects network interfaces. Exactly one of its fields must be
// set.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type LinkInterfaces struct {
	// interfaces lists interfaces by name. If an interface doesn't exist yet, the
	// program is attached as soon as it appears. For example: `[eth0]`.
	// +optional
	Interfaces *[]string `json:"interfaces,omitempty"`

	// primaryNodeInterface selects the interface with the node's internal IP
	// address. The field selects it even if its value is false. For example:
	// `true`.
	// +optional
	PrimaryNodeInterface *bool `json:"primaryNodeInterface,omitempty"`

	// interfacesDiscoveryConfig selects the interfaces that exist, and those that
	// appear later. Without networkNamespaces, these are the interfaces of the host
	// and of all pods. For example: `{interfaceAutoDiscovery: true}`.
	// +optional
	InterfacesDiscoveryConfig *LinkDiscovery `json:"interfacesDiscoveryConfig,omitempty"`
}

// LinkDiscovery selects interfaces by lists of allowed and excluded ones. An
// entry is the name of an interface, or a regular expression between slashes
// (Go's syntax), which can match anywhere in a name. An interface that is both
// allowed and excluded is excluded.
type LinkDiscovery struct {
	// interfaceAutoDiscovery enables the discovery. With false, the program is
	// loaded, but not attached. For example: `true`.
	// +optional
	// +default=false
	InterfaceAutoDiscovery *bool `json:"interfaceAutoDiscovery,omitempty"`

	// excludeInterfaces lists the interfaces to which the program is never
	// attached. For example: `[lo, /^veth/]`.
	// +optional
	// +default=["lo"]
	ExcludeInterfaces []string `json:"excludeInterfaces,omitzero"`

	// allowedInterfaces lists the only interfaces to which the program is
	// attached. If it is absent or empty, these are all interfaces that aren't
	// excluded. For example: `[eth0, "/^eth[1-9]/"]`.
	// +optional
	AllowedInterfaces []string `json:"allowedInterfaces,omitempty"`
}

// LinkPods selects pods on a node. The program is attached once in the network
// namespace of each pod.
// +kubebuilder:validation:XValidation:rule="!has(self.failurePolicy) || has(self.attachment)",message="failurePolicy needs attachment: BeforeStart"
type LinkPods struct {
	// namespace is the namespace of the pods. If it is empty, pods in all
	// namespaces are selected. For example: `default`.
	// +optional
	// +default=""
	Namespace string `json:"namespace,omitempty"`

	// pods selects pods by their labels. An empty selector selects all pods. For
	// example: `{matchLabels: {app: web}}`.
	// +required
	Pods metav1.LabelSelector `json:"pods"`

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

// LinkContainers selects containers on a node.
// +kubebuilder:validation:XValidation:rule="!has(self.failurePolicy) || has(self.attachment)",message="failurePolicy needs attachment: BeforeStart"
type LinkContainers struct {
	// namespace is the namespace of the pods. If it is empty, pods in all
	// namespaces are selected. For example: `default`.
	// +optional
	// +default=""
	Namespace string `json:"namespace,omitempty"`

	// pods selects pods by their labels. An empty selector selects all pods. For
	// example: `{matchLabels: {app: web}}`.
	// +required
	Pods metav1.LabelSelector `json:"pods"`

	// containerNames lists containers of the pods by name. If it is absent or
	// empty, all containers are selected. For example: `[nginx]`.
	// +optional
	ContainerNames *[]string `json:"containerNames,omitempty"`

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

// NetworkLink has the fields of the links of XDP, TC, and TCX programs.
type NetworkLink struct {
	// interfaceSelector selects the network interfaces to attach the program to.
	// For example: `{primaryNodeInterface: true}`.
	// +required
	InterfaceSelector LinkInterfaces `json:"interfaceSelector"`

	// networkNamespaces selects pods. The program is attached to the selected
	// interfaces in the network namespace of each pod. If it is absent, the program
	// is attached to interfaces of the host. For example: `{namespace: default,
	// pods: {matchLabels: {app: web}}}`.
	// +optional
	NetworkNamespaces *LinkPods `json:"networkNamespaces,omitempty"`

	// priority decides the order of the programs on an interface: a program with a
	// lower priority runs first. The default is 1000, the last. For example: `50`.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority *int32 `json:"priority,omitempty"`
}

// XdpLinks are the links of an XDP program.
type XdpLinks struct {
	// links are the points to attach the program to. Without links, the program is
	// loaded, but not attached.
	// +optional
	Links []XdpLink `json:"links,omitempty"`
}

// XdpLink is a link of an XDP program.
type XdpLink struct {
	NetworkLink `json:",inline"`

	// proceedOn lists results of this program. The next program on the interface
	// runs only if the result is in the list. For example: `[Pass,
	// DispatcherReturn]`.
	// +optional
	// +default=["Pass","DispatcherReturn"]
	ProceedOn []XdpLinkResult `json:"proceedOn,omitzero"`
}

// TcLinks are the links of a TC program.
type TcLinks struct {
	// links are the points to attach the program to. Without links, the program is
	// loaded, but not attached.
	// +optional
	Links []TcLink `json:"links,omitempty"`
}

// TcLink is a link of a TC program.
type TcLink struct {
	NetworkLink `json:",inline"`

	// direction is the direction of the packets: `Ingress` or `Egress`.
	// +required
	Direction LinkDirection `json:"direction"`

	// proceedOn lists results of this program. The next program on the interface
	// runs only if the result is in the list. For example: `[OK, Pipe,
	// DispatcherReturn]`.
	// +optional
	// +default=["Pipe","DispatcherReturn"]
	ProceedOn []TcLinkResult `json:"proceedOn,omitzero"`
}

// TcxLinks are the links of a TCX program.
type TcxLinks struct {
	// links are the points to attach the program to. Without links, the program is
	// loaded, but not attached.
	// +optional
	Links []TcxLink `json:"links,omitempty"`
}

// TcxLink is a link of a TCX program.
type TcxLink struct {
	NetworkLink `json:",inline"`

	// direction is the direction of the packets: `Ingress` or `Egress`.
	// +required
	Direction LinkDirection `json:"direction"`
}

// FunctionLinks are the function of a fentry or fexit program, and whether it is
// attached to it.
type FunctionLinks struct {
	// function is the kernel function. A change reloads the program. For example:
	// `do_unlinkat`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_]+.`
	Function string `json:"function"`

	// links has one item if the program is to be attached. Without it, the program
	// is loaded, but not attached. For example: `[{mode: Attach}]`.
	// +optional
	// +kubebuilder:validation:MaxItems=1
	Links []FunctionLink `json:"links,omitempty"`
}

// FunctionLink attaches a fentry or fexit program.
type FunctionLink struct {
	// mode is always `Attach`.
	// +required
	Mode LinkMode `json:"mode"`
}

// KprobeLinks are the links of a kprobe program.
type KprobeLinks struct {
	// links are the points to attach the program to. Without links, the program is
	// loaded, but not attached.
	// +optional
	Links []KprobeLink `json:"links,omitempty"`
}

// KprobeLink is a link of a kprobe program.
type KprobeLink struct {
	// function is the kernel function to attach the program to. For example:
	// `try_to_wake_up`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_]+.`
	Function string `json:"function"`

	// offset is added to the address of the function, in bytes. For example: `0`.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=0
	Offset uint64 `json:"offset,omitempty"`
}

// KretprobeLinks are the links of a kretprobe program.
type KretprobeLinks struct {
	// links are the points to attach the program to. Without links, the program is
	// loaded, but not attached.
	// +optional
	Links []KretprobeLink `json:"links,omitempty"`
}

// KretprobeLink is a link of a kretprobe program.
type KretprobeLink struct {
	// function is the kernel function to attach the program to. For example:
	// `try_to_wake_up`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_]+.`
	Function string `json:"function"`
}

// UprobeLinks are the links of a uprobe or uretprobe program.
type UprobeLinks struct {
	// links are the points to attach the program to. Without links, the program is
	// loaded, but not attached.
	// +optional
	Links []UprobeLink `json:"links,omitempty"`
}

// UprobeTarget is what a uprobe or uretprobe program is attached to.
type UprobeTarget struct {
	// function is the function to attach the program to. If it is absent, offset
	// counts from the start of target. For example: `malloc`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_]+.`
	Function string `json:"function,omitempty"`

	// offset is added to the address of the function, in bytes. For example: `0`.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=0
	Offset uint64 `json:"offset,omitempty"`

	// target is the name of a library, or the absolute path of a library or
	// executable. For example: `libc` or `/usr/sbin/nginx`.
	// +required
	Target string `json:"target"`

	// pid is the id of a process. bpfman v0.6 ignores it, so the program runs for
	// all processes. With containers, a program with a pid isn't attached. For
	// example: `1234`.
	// +optional
	Pid *int32 `json:"pid,omitempty"`
}

// UprobeLink is a link of a uprobe or uretprobe program.
type UprobeLink struct {
	UprobeTarget `json:",inline"`

	// containers selects the containers in which to look up target. The program is
	// attached in each of them. If it is absent, target is looked up in the
	// daemon's container. For example: `{namespace: default, pods: {matchLabels:
	// {app: web}}}`.
	// +optional
	Containers *LinkContainers `json:"containers,omitempty"`
}

// TracepointLinks are the links of a tracepoint program.
type TracepointLinks struct {
	// links are the points to attach the program to. Without links, the program is
	// loaded, but not attached.
	// +optional
	Links []TracepointLink `json:"links,omitempty"`
}

// TracepointLink is a link of a tracepoint program.
type TracepointLink struct {
	// name is the tracepoint, as category/event. For example:
	// `syscalls/sys_enter_kill`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_]+.`
	Name string `json:"name"`
}
