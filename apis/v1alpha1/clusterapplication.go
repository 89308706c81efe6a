// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ApplicationProgramType is the type of a program of a ClusterBpfApplication.
// +kubebuilder:validation:Enum=XDP;TC;TCX;FEntry;FExit;KProbe;KRetProbe;UProbe;URetProbe;TracePoint
type ApplicationProgramType string

// The types of the programs of a ClusterBpfApplication. Some have other capital letters
// than the types of the members of a BpfApplication.
const (
	ApplicationXDP        ApplicationProgramType = "XDP"
	ApplicationTC         ApplicationProgramType = "TC"
	ApplicationTCX        ApplicationProgramType = "TCX"
	ApplicationFEntry     ApplicationProgramType = "FEntry"
	ApplicationFExit      ApplicationProgramType = "FExit"
	ApplicationKProbe     ApplicationProgramType = "KProbe"
	ApplicationKRetProbe  ApplicationProgramType = "KRetProbe"
	ApplicationUProbe     ApplicationProgramType = "UProbe"
	ApplicationURetProbe  ApplicationProgramType = "URetProbe"
	ApplicationTracePoint ApplicationProgramType = "TracePoint"
)

// ClusterBpfApplicationProgram is one program of a ClusterBpfApplication. The
// field that its type names has the links, which are the points to attach it to.
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'XDP') == has(self.xdp)",message="xdp configuration is required when type is XDP, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TC') == has(self.tc)",message="tc configuration is required when type is TC, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TCX') == has(self.tcx)",message="tcx configuration is required when type is TCX, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'FEntry') == has(self.fentry)",message="fentry configuration is required when type is FEntry, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'FExit') == has(self.fexit)",message="fexit configuration is required when type is FExit, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'KProbe') == has(self.kprobe)",message="kprobe configuration is required when type is KProbe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'KRetProbe') == has(self.kretprobe)",message="kretprobe configuration is required when type is KRetProbe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'UProbe') == has(self.uprobe)",message="uprobe configuration is required when type is UProbe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'URetProbe') == has(self.uretprobe)",message="uretprobe configuration is required when type is URetProbe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TracePoint') == has(self.tracepoint)",message="tracepoint configuration is required when type is TracePoint, and forbidden otherwise"
// +union
type ClusterBpfApplicationProgram struct {
	// name is the function in the bytecode that is the program's entry point. For
	// example: `xdp_stats`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_]+.`
	Name string `json:"name"`

	// type is the type of the program. For example: `TCX`.
	// +required
	// +unionDiscriminator
	Type ApplicationProgramType `json:"type"`

	// xdp has the links of an XDP program. It is required if type is XDP, and
	// forbidden otherwise.
	// +optional
	// +unionMember
	XDP *XdpLinks `json:"xdp,omitempty"`

	// tc has the links of a TC program. It is required if type is TC, and forbidden
	// otherwise.
	// +optional
	// +unionMember
	TC *TcLinks `json:"tc,omitempty"`

	// tcx has the links of a TCX program. It is required if type is TCX, and
	// forbidden otherwise.
	// +optional
	// +unionMember
	TCX *TcxLinks `json:"tcx,omitempty"`

	// fentry has the function of a fentry program. It is required if type is
	// FEntry, and forbidden otherwise.
	// +optional
	// +unionMember
	FEntry *FunctionLinks `json:"fentry,omitempty"`

	// fexit has the function of a fexit program. It is required if type is FExit,
	// and forbidden otherwise.
	// +optional
	// +unionMember
	FExit *FunctionLinks `json:"fexit,omitempty"`

	// kprobe has the links of a kprobe program. It is required if type is KProbe,
	// and forbidden otherwise.
	// +optional
	// +unionMember
	KProbe *KprobeLinks `json:"kprobe,omitempty"`

	// kretprobe has the links of a kretprobe program. It is required if type is
	// KRetProbe, and forbidden otherwise.
	// +optional
	// +unionMember
	KRetProbe *KretprobeLinks `json:"kretprobe,omitempty"`

	// uprobe has the links of a uprobe program. It is required if type is UProbe,
	// and forbidden otherwise.
	// +optional
	// +unionMember
	UProbe *UprobeLinks `json:"uprobe,omitempty"`

	// uretprobe has the links of a uretprobe program. It is required if type is
	// URetProbe, and forbidden otherwise.
	// +optional
	// +unionMember
	URetProbe *UprobeLinks `json:"uretprobe,omitempty"`

	// tracepoint has the links of a tracepoint program. It is required if type is
	// TracePoint, and forbidden otherwise.
	// +optional
	// +unionMember
	TracePoint *TracepointLinks `json:"tracepoint,omitempty"`
}

// ApplicationBytecode says where bytecode comes from. Exactly one of its fields
// must be set.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type ApplicationBytecode struct {
	// image is an OCI image with the bytecode. For example: `{url:
	// quay.io/bpfman-bytecode/xdp_pass:latest}`.
	// +optional
	Image *ApplicationImage `json:"image,omitempty"`

	// path is a file on the node, as the daemon's container sees it. For example:
	// `/run/bytecode/xdp_pass.o`.
	// +optional
	// +kubebuilder:validation:Pattern=`^(/[^/]+)+/?$`
	Path *string `json:"path,omitempty"`
}

// ApplicationImage is an OCI image with bytecode.
type ApplicationImage struct {
	// url is the full reference of the image, with the host of the registry. For
	// example: `quay.io/bpfman-bytecode/xdp_pass:latest`.
	// +required
	// +kubebuilder:validation:MaxLength=525
	// +kubebuilder:validation:Pattern=`[a-zA-Z0-9_]`
	URL string `json:"url"`

	// imagePullPolicy says when the image is pulled: at each load (`Always`),
	// never (`Never`), or if the node doesn't have it (`IfNotPresent`).
	// +optional
	// +default="IfNotPresent"
	ImagePullPolicy PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecret names the Secret with the credentials for the registry. For
	// example: `{name: registry, namespace: default}`.
	// +optional
	ImagePullSecret *ImagePullSecretSelector `json:"imagePullSecret,omitempty"`
}

// ApplicationCommon has the fields of the applications of upstream's v0.6, of either
// scope.
type ApplicationCommon struct {
	// nodeSelector selects nodes by their labels. An empty selector selects all
	// nodes. For example: `{matchLabels: {kubernetes.io/os: linux}}`.
	// +required
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`

	// globalData sets global variables of the bytecode before it is loaded. Each
	// value is the raw bytes of the variable, in the node's byte order and with
	// padding, in base64 or as a list of integers. A variable that is null keeps
	// the value in the bytecode. For example: `{sampling: AQ==}` or `{sampling:
	// [0x01]}`.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	GlobalData GlobalData `json:"globalData,omitempty"`

	// globals sets global variables of the bytecode before it is loaded, by their
	// values. The type of each variable is read from the image: an integer takes a
	// number, a bool takes true or false, an array takes a list, and an array of
	// char also takes a string. Upstream's v0.6 doesn't have this field. For
	// example: `{port: 8080, interface: eth0}`.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:pruning:PreserveUnknownFields
	Globals Globals `json:"globals,omitempty"`

	// byteCode says where the bytecode comes from: an image or a file. For
	// example: `{image: {url: quay.io/bpfman-bytecode/xdp_pass:latest}}`.
	// +required
	ByteCode ApplicationBytecode `json:"byteCode"`

	// mapOwnerSelector is accepted, and has no effect, as in upstream's v0.6. To
	// share maps with another object, use an application of v0.5's API.
	// +optional
	MapOwnerSelector *metav1.LabelSelector `json:"mapOwnerSelector,omitempty"`
}

// ClusterBpfApplicationSpec is the desired state of ClusterBpfApplication
// objects.
type ClusterBpfApplicationSpec struct {
	ApplicationCommon `json:",inline"`

	// programs are the programs of the application. They are loaded together, and
	// share the maps and globals of the bytecode. If they change, they are
	// reloaded.
	// +required
	// +kubebuilder:validation:MinItems=1
	Programs []ClusterBpfApplicationProgram `json:"programs"`
}

// ClusterBpfApplication loads several programs of one bytecode together on each
// selected node, and attaches each of them to its links. It is the API of
// upstream's v0.6. A BpfApplication does the same with the API of v0.5.
//
// The first condition of its status is Pending, Success, Error, or DeleteError.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=clusterbpfapp,categories=bpfman
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeSelector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.byteCode.image.url`,priority=1
type ClusterBpfApplication struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +optional
	Spec ClusterBpfApplicationSpec `json:"spec,omitzero"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status BpfApplicationStatus `json:"status,omitzero"`
}

// AppCommon returns the fields in the form of most kinds.
func (a *ApplicationCommon) AppCommon() BpfAppCommon {
	return BpfAppCommon{NodeSelector: a.NodeSelector, GlobalData: a.GlobalData, Globals: a.Globals, ByteCode: a.ByteCode.selector()}
}

// SetAppCommon sets them.
func (a *ApplicationCommon) SetAppCommon(c BpfAppCommon) {
	a.NodeSelector, a.GlobalData, a.Globals = c.NodeSelector, c.GlobalData, c.Globals
	a.ByteCode = ApplicationBytecode{Path: c.ByteCode.Path}
	if image := c.ByteCode.Image; image != nil {
		a.ByteCode.Image = &ApplicationImage{URL: image.Url, ImagePullPolicy: image.ImagePullPolicy, ImagePullSecret: image.ImagePullSecret}
	}
}

// GetAppCommon implements UserObject.
func (o *ClusterBpfApplication) GetAppCommon() BpfAppCommon { return o.Spec.AppCommon() }

// SetAppCommon implements UserObject.
func (o *ClusterBpfApplication) SetAppCommon(c BpfAppCommon) { o.Spec.SetAppCommon(c) }

func (b ApplicationBytecode) selector() BytecodeSelector {
	selector := BytecodeSelector{Path: b.Path}
	if b.Image != nil {
		selector.Image = &BytecodeImage{Url: b.Image.URL, ImagePullPolicy: b.Image.ImagePullPolicy, ImagePullSecret: b.Image.ImagePullSecret}
	}
	return selector
}

// GetStatus implements UserObject.
func (o *ClusterBpfApplication) GetStatus() *BpfProgramStatusCommon {
	return &o.Status.BpfProgramStatusCommon
}

// Members implements UserObject.
func (o *ClusterBpfApplication) Members() ([]BpfApplicationProgram, bool) {
	var members []BpfApplicationProgram
	for i := range o.Spec.Programs {
		members = append(members, o.Spec.Programs[i].Members()...)
	}
	return members, false
}

// Linked implements LinkedObject.
func (o *ClusterBpfApplication) Linked() *ClusterBpfApplication { return o }

// ClusterBpfApplicationList is a list of ClusterBpfApplications.
//
// +kubebuilder:object:root=true
type ClusterBpfApplicationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterBpfApplication `json:"items"`
}
