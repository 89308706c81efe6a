// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package namespaced

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// ProgramType is the type of a program of a BpfApplication.
// +kubebuilder:validation:Enum=XDP;TC;TCX;UProbe;URetProbe
type ProgramType string

// BpfApplicationProgram is one program of a BpfApplication. The field that its type
// names has the links, which are the points to attach it to.
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'XDP') == has(self.xdp)",message="xdp configuration is required when type is XDP, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TC') == has(self.tc)",message="tc configuration is required when type is TC, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TCX') == has(self.tcx)",message="tcx configuration is required when type is TCX, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'UProbe') == has(self.uprobe)",message="uprobe configuration is required when type is UProbe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'URetProbe') == has(self.uretprobe)",message="uretprobe configuration is required when type is URetProbe, and forbidden otherwise"
// +union
type BpfApplicationProgram struct {
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
	Type ProgramType `json:"type"`

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
}

// BpfApplicationSpec is the desired state of BpfApplication objects.
type BpfApplicationSpec struct {
	v1alpha1.ApplicationCommon `json:",inline"`

	// programs are the programs of the application. They are loaded together, and
	// share the maps and globals of the bytecode. If they change, they are
	// reloaded.
	// +required
	// +kubebuilder:validation:MinItems=1
	Programs []BpfApplicationProgram `json:"programs"`
}

// BpfApplication loads several programs of one bytecode together on each selected
// node, and attaches each of them to its links, which are only in pods in its own
// namespace. It is the API of upstream's v0.6. A BpfNsApplication does the same with
// the API of v0.5.
//
// The first condition of its status is Pending, Success, Error, or DeleteError.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=bpfapp,categories=bpfman
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeSelector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.byteCode.image.url`,priority=1
type BpfApplication struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +optional
	Spec BpfApplicationSpec `json:"spec,omitzero"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status v1alpha1.BpfApplicationStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *BpfApplication) GetAppCommon() v1alpha1.BpfAppCommon { return o.Spec.AppCommon() }

// SetAppCommon implements UserObject.
func (o *BpfApplication) SetAppCommon(c v1alpha1.BpfAppCommon) { o.Spec.SetAppCommon(c) }

// GetStatus implements UserObject.
func (o *BpfApplication) GetStatus() *v1alpha1.BpfProgramStatusCommon {
	return &o.Status.BpfProgramStatusCommon
}

// Members implements UserObject.
func (o *BpfApplication) Members() ([]v1alpha1.BpfApplicationProgram, bool) {
	members, _ := o.Linked().Members()
	for i := range members {
		m, own := &members[i], &v1alpha1.ContainerSelector{Namespace: o.Namespace}
		switch { // a program without links has no selector
		case m.XDP != nil && m.XDP.Containers == nil:
			m.XDP.Containers = own
		case m.TC != nil && m.TC.Containers == nil:
			m.TC.Containers = own
		case m.TCX != nil && m.TCX.Containers == nil:
			m.TCX.Containers = own
		case m.Uprobe != nil && m.Uprobe.Containers == nil:
			m.Uprobe.Containers = own
		case m.Uretprobe != nil && m.Uretprobe.Containers == nil:
			m.Uretprobe.Containers = own
		}
	}
	return members, true
}

// Linked implements LinkedObject. The links select only pods in the object's namespace.
func (o *BpfApplication) Linked() *v1alpha1.ClusterBpfApplication {
	linked := &v1alpha1.ClusterBpfApplication{Spec: v1alpha1.ClusterBpfApplicationSpec{ApplicationCommon: o.Spec.ApplicationCommon}}
	for _, p := range o.Spec.Programs {
		linked.Spec.Programs = append(linked.Spec.Programs, v1alpha1.ClusterBpfApplicationProgram{
			Name: p.Name, Type: v1alpha1.ApplicationProgramType(p.Type), XDP: p.XDP.within(o.Namespace), TC: p.TC.within(o.Namespace),
			TCX: p.TCX.within(o.Namespace), UProbe: p.UProbe.within(o.Namespace), URetProbe: p.URetProbe.within(o.Namespace),
		})
	}
	return linked
}

// BpfApplicationList is a list of BpfApplications.
//
// +kubebuilder:object:root=true
type BpfApplicationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BpfApplication `json:"items"`
}
