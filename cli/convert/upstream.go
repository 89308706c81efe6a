// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package convert

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of upstream's API at v0.6.0 (group bpfman.io, version v1alpha1). The two
// kinds of applications have the same fields, with two exceptions. A BpfApplication is
// namespaced, so its selectors have no namespace. It also has no programs for kernel
// functions and tracepoints.
const (
	kindClusterApplication = "ClusterBpfApplication"
	kindApplication        = "BpfApplication"
	kindConfig             = "Config"
)

type upstreamApplication struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            upstreamSpec      `json:"spec"`
	Status          json.RawMessage   `json:"status"`
}

type upstreamSpec struct {
	NodeSelector     *metav1.LabelSelector `json:"nodeSelector"`
	GlobalData       map[string][]byte     `json:"globalData"`
	ByteCode         upstreamByteCode      `json:"byteCode"`
	MapOwnerSelector *metav1.LabelSelector `json:"mapOwnerSelector"`
	Programs         []upstreamProgram     `json:"programs"`
}

type upstreamByteCode struct {
	Image *struct {
		URL             string `json:"url"`
		ImagePullPolicy string `json:"imagePullPolicy"`
		ImagePullSecret *struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"imagePullSecret"`
	} `json:"image"`
	Path *string `json:"path"`
}

// upstreamProgram is a member. Only the field for its type is set.
type upstreamProgram struct {
	Name       string                          `json:"name"`
	Type       string                          `json:"type"`
	XDP        *upstreamLinks[upstreamXDPLink] `json:"xdp"`
	TC         *upstreamLinks[upstreamTCLink]  `json:"tc"`
	TCX        *upstreamLinks[upstreamTCXLink] `json:"tcx"`
	FEntry     *upstreamTrampoline             `json:"fentry"`
	FExit      *upstreamTrampoline             `json:"fexit"`
	KProbe     *upstreamLinks[upstreamKprobe]  `json:"kprobe"`
	KRetProbe  *upstreamLinks[upstreamKret]    `json:"kretprobe"`
	UProbe     *upstreamLinks[upstreamUprobe]  `json:"uprobe"`
	URetProbe  *upstreamLinks[upstreamUprobe]  `json:"uretprobe"`
	TracePoint *upstreamLinks[upstreamTracept] `json:"tracepoint"`
}

// upstreamLinks are the links of a member. Without links, the program is only loaded.
type upstreamLinks[L any] struct {
	Links []L `json:"links"`
}

// upstreamNetwork contains the common fields of the links of XDP, TC, and TCX programs.
type upstreamNetwork struct {
	InterfaceSelector upstreamInterfaces `json:"interfaceSelector"`
	NetworkNamespaces *upstreamPods      `json:"networkNamespaces"`
	Priority          *int32             `json:"priority"`
}

type upstreamXDPLink struct {
	upstreamNetwork `json:",inline"`
	ProceedOn       []string `json:"proceedOn"`
}

type upstreamTCLink struct {
	upstreamNetwork `json:",inline"`
	Direction       string   `json:"direction"`
	ProceedOn       []string `json:"proceedOn"`
}

type upstreamTCXLink struct {
	upstreamNetwork `json:",inline"`
	Direction       string `json:"direction"`
}

type upstreamInterfaces struct {
	InterfacesDiscoveryConfig *struct {
		InterfaceAutoDiscovery *bool    `json:"interfaceAutoDiscovery"`
		ExcludeInterfaces      []string `json:"excludeInterfaces"`
		AllowedInterfaces      []string `json:"allowedInterfaces"`
	} `json:"interfacesDiscoveryConfig"`
	Interfaces           *[]string `json:"interfaces"`
	PrimaryNodeInterface *bool     `json:"primaryNodeInterface"`
}

type upstreamPods struct {
	Namespace string               `json:"namespace"`
	Pods      metav1.LabelSelector `json:"pods"`
}

type upstreamContainers struct {
	upstreamPods   `json:",inline"`
	ContainerNames *[]string `json:"containerNames"`
}

// upstreamTrampoline is a fentry or fexit member. All its links have the same function.
type upstreamTrampoline struct {
	Function string `json:"function"`
	Links    []struct {
		Mode string `json:"mode"`
	} `json:"links"`
}

type upstreamKprobe struct {
	Function string `json:"function"`
	Offset   uint64 `json:"offset"`
}

type upstreamKret struct {
	Function string `json:"function"`
}

type upstreamUprobe struct {
	Function   string              `json:"function"`
	Offset     uint64              `json:"offset"`
	Target     string              `json:"target"`
	Pid        *int32              `json:"pid"`
	Containers *upstreamContainers `json:"containers"`
}

type upstreamTracept struct {
	Name string `json:"name"`
}
