// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package namespaced

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// LinkPods selects pods on a node, in the namespace of the object. The program is
// attached once in the network namespace of each pod.
// +kubebuilder:validation:XValidation:rule="!has(self.failurePolicy) || has(self.attachment)",message="failurePolicy needs attachment: BeforeStart"
type LinkPods struct {
	// pods selects pods by their labels. An empty selector selects all pods in the
	// namespace. For example: `{matchLabels: {app: web}}`.
	// +required
	Pods metav1.LabelSelector `json:"pods"`

	// attachment says when the program is attached in a pod. `BeforeStart` means
	// before the pod's first process starts. This requires a node whose container
	// runtime has NRI, and the key bpfman.agent.beforestart.enabled of the ConfigMap
	// bpfman-config. Without the field, it is attached after the start. For example:
	// `BeforeStart`.
	// +optional
	Attachment v1alpha1.ContainerAttachment `json:"attachment,omitempty"`

	// failurePolicy says what happens if the program can't be attached before the
	// start. `Ignore`, the default, has the pod start without it. With `Fail`, the pod
	// doesn't start, and the kubelet tries again. For example: `Fail`.
	// +optional
	FailurePolicy v1alpha1.StartFailurePolicy `json:"failurePolicy,omitempty"`
}

// LinkContainers selects containers on a node, in the namespace of the object.
type LinkContainers struct {
	LinkPods `json:",inline"`

	// containerNames lists containers of the pods by name. If it is absent or
	// empty, all containers are selected. For example: `[nginx]`.
	// +optional
	ContainerNames *[]string `json:"containerNames,omitempty"`
}

// NetworkLink has the fields of the links of XDP, TC, and TCX programs.
type NetworkLink struct {
	// interfaceSelector selects the network interfaces to attach the program to.
	// For example: `{interfaces: [eth0]}`.
	// +required
	InterfaceSelector v1alpha1.LinkInterfaces `json:"interfaceSelector"`

	// networkNamespaces selects pods. The program is attached to the selected
	// interfaces in the network namespace of each pod. For example: `{pods:
	// {matchLabels: {app: web}}}`.
	// +required
	NetworkNamespaces LinkPods `json:"networkNamespaces"`

	// priority decides the order of the programs on an interface: a program with a
	// lower priority runs first. The default is 1000, the last. For example: `500`.
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
	ProceedOn []v1alpha1.XdpLinkResult `json:"proceedOn,omitzero"`
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
	TcxLink `json:",inline"`

	// proceedOn lists results of this program. The next program on the interface
	// runs only if the result is in the list. For example: `[OK, Pipe,
	// DispatcherReturn]`.
	// +optional
	// +default=["Pipe","DispatcherReturn"]
	ProceedOn []v1alpha1.TcLinkResult `json:"proceedOn,omitzero"`
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
	Direction v1alpha1.LinkDirection `json:"direction"`
}

// UprobeLinks are the links of a uprobe or uretprobe program.
type UprobeLinks struct {
	// links are the points to attach the program to. Without links, the program is
	// loaded, but not attached.
	// +optional
	Links []UprobeLink `json:"links,omitempty"`
}

// UprobeLink is a link of a uprobe or uretprobe program.
type UprobeLink struct {
	v1alpha1.UprobeTarget `json:",inline"`

	// containers selects the containers in which to look up target. The program is
	// attached in each of them. For example: `{pods: {matchLabels: {app: web}}}`.
	// +required
	Containers LinkContainers `json:"containers"`
}

func (l *NetworkLink) within(namespace string) v1alpha1.NetworkLink {
	in := l.NetworkNamespaces
	return v1alpha1.NetworkLink{
		InterfaceSelector: l.InterfaceSelector, Priority: l.Priority,
		NetworkNamespaces: &v1alpha1.LinkPods{Namespace: namespace, Pods: in.Pods, Attachment: in.Attachment, FailurePolicy: in.FailurePolicy},
	}
}

func (l *XdpLinks) within(namespace string) *v1alpha1.XdpLinks {
	if l == nil {
		return nil
	}
	out := &v1alpha1.XdpLinks{}
	for i := range l.Links {
		out.Links = append(out.Links, v1alpha1.XdpLink{NetworkLink: l.Links[i].within(namespace), ProceedOn: l.Links[i].ProceedOn})
	}
	return out
}

func (l *TcLinks) within(namespace string) *v1alpha1.TcLinks {
	if l == nil {
		return nil
	}
	out := &v1alpha1.TcLinks{}
	for i := range l.Links {
		link := &l.Links[i]
		out.Links = append(out.Links, v1alpha1.TcLink{NetworkLink: link.within(namespace), Direction: link.Direction, ProceedOn: link.ProceedOn})
	}
	return out
}

func (l *TcxLinks) within(namespace string) *v1alpha1.TcxLinks {
	if l == nil {
		return nil
	}
	out := &v1alpha1.TcxLinks{}
	for i := range l.Links {
		out.Links = append(out.Links, v1alpha1.TcxLink{NetworkLink: l.Links[i].within(namespace), Direction: l.Links[i].Direction})
	}
	return out
}

func (l *UprobeLinks) within(namespace string) *v1alpha1.UprobeLinks {
	if l == nil {
		return nil
	}
	out := &v1alpha1.UprobeLinks{}
	for _, link := range l.Links {
		in := link.Containers
		out.Links = append(out.Links, v1alpha1.UprobeLink{UprobeTarget: link.UprobeTarget, Containers: &v1alpha1.LinkContainers{
			Namespace: namespace, Pods: in.Pods, ContainerNames: in.ContainerNames, Attachment: in.Attachment, FailurePolicy: in.FailurePolicy,
		}})
	}
	return out
}
