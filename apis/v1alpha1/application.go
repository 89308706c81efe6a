// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EBPFProgType is the type of a member of an application.
type EBPFProgType string

// The types of the members of an application. A BpfNsApplication has the
// network ones and the uprobes.
const (
	ProgTypeXDP        EBPFProgType = "XDP"
	ProgTypeTC         EBPFProgType = "TC"
	ProgTypeTCX        EBPFProgType = "TCX"
	ProgTypeFentry     EBPFProgType = "Fentry"
	ProgTypeFexit      EBPFProgType = "Fexit"
	ProgTypeKprobe     EBPFProgType = "Kprobe"
	ProgTypeKretprobe  EBPFProgType = "Kretprobe"
	ProgTypeUprobe     EBPFProgType = "Uprobe"
	ProgTypeUretprobe  EBPFProgType = "Uretprobe"
	ProgTypeTracepoint EBPFProgType = "Tracepoint"
	ProgTypeLSM        EBPFProgType = "LSM"
)

// BpfApplicationProgram is a member of a BpfApplication: one program, which is
// configured in the field that its type names.
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'XDP') == has(self.xdp)",message="xdp configuration is required when type is XDP, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TC') == has(self.tc)",message="tc configuration is required when type is TC, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TCX') == has(self.tcx)",message="tcx configuration is required when type is TCX, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Fentry') == has(self.fentry)",message="fentry configuration is required when type is Fentry, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Fexit') == has(self.fexit)",message="fexit configuration is required when type is Fexit, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Kprobe') == has(self.kprobe)",message="kprobe configuration is required when type is Kprobe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Kretprobe') == has(self.kretprobe)",message="kretprobe configuration is required when type is Kretprobe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Uprobe') == has(self.uprobe)",message="uprobe configuration is required when type is Uprobe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Uretprobe') == has(self.uretprobe)",message="uretprobe configuration is required when type is Uretprobe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Tracepoint') == has(self.tracepoint)",message="tracepoint configuration is required when type is Tracepoint, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'LSM') == has(self.lsm)",message="lsm configuration is required when type is LSM, and forbidden otherwise"
// +union
type BpfApplicationProgram struct {
	// type is the type of the program. If it is absent, the member has no
	// configuration, and nothing is loaded for it. For example: `TCX`.
	// +optional
	// +unionDiscriminator
	// +kubebuilder:validation:Enum=XDP;TC;TCX;Fentry;Fexit;Kprobe;Kretprobe;Uprobe;Uretprobe;Tracepoint;LSM
	Type EBPFProgType `json:"type,omitempty"`

	// xdp configures an XDP program. It is required if type is XDP, and forbidden
	// otherwise.
	// +optional
	// +unionMember
	XDP *XdpProgramInfo `json:"xdp,omitempty"`

	// tc configures a TC program. It is required if type is TC, and forbidden
	// otherwise.
	// +optional
	// +unionMember
	TC *TcProgramInfo `json:"tc,omitempty"`

	// tcx configures a TCX program. It is required if type is TCX, and forbidden
	// otherwise.
	// +optional
	// +unionMember
	TCX *TcxProgramInfo `json:"tcx,omitempty"`

	// fentry configures a fentry program. It is required if type is Fentry, and
	// forbidden otherwise.
	// +optional
	// +unionMember
	Fentry *FentryProgramInfo `json:"fentry,omitempty"`

	// fexit configures a fexit program. It is required if type is Fexit, and
	// forbidden otherwise.
	// +optional
	// +unionMember
	Fexit *FexitProgramInfo `json:"fexit,omitempty"`

	// kprobe configures a kprobe program. It is required if type is Kprobe, and
	// forbidden otherwise.
	// +optional
	// +unionMember
	Kprobe *KprobeProgramInfo `json:"kprobe,omitempty"`

	// kretprobe configures a kretprobe program. It is required if type is
	// Kretprobe, and forbidden otherwise.
	// +optional
	// +unionMember
	Kretprobe *KprobeProgramInfo `json:"kretprobe,omitempty"`

	// uprobe configures a uprobe program. It is required if type is Uprobe, and
	// forbidden otherwise.
	// +optional
	// +unionMember
	Uprobe *UprobeProgramInfo `json:"uprobe,omitempty"`

	// uretprobe configures a uretprobe program. It is required if type is
	// Uretprobe, and forbidden otherwise.
	// +optional
	// +unionMember
	Uretprobe *UprobeProgramInfo `json:"uretprobe,omitempty"`

	// tracepoint configures a tracepoint program. It is required if type is
	// Tracepoint, and forbidden otherwise.
	// +optional
	// +unionMember
	Tracepoint *TracepointProgramInfo `json:"tracepoint,omitempty"`

	// lsm configures an LSM program. It is required if type is LSM, and forbidden
	// otherwise.
	// +optional
	// +unionMember
	LSM *LsmProgramInfo `json:"lsm,omitempty"`
}

// Info returns the configuration for the program's type. It returns nil for a
// member that has no type, or no configuration for its type.
func (p *BpfApplicationProgram) Info() ProgramInfo {
	switch p.Type {
	case ProgTypeFentry:
		return present(p.Fentry)
	case ProgTypeFexit:
		return present(p.Fexit)
	case ProgTypeKprobe:
		return present(p.Kprobe)
	case ProgTypeKretprobe:
		return present(p.Kretprobe)
	case ProgTypeLSM:
		return present(p.LSM)
	case ProgTypeTC:
		return present(p.TC)
	case ProgTypeTCX:
		return present(p.TCX)
	case ProgTypeTracepoint:
		return present(p.Tracepoint)
	case ProgTypeUprobe:
		return present(p.Uprobe)
	case ProgTypeUretprobe:
		return present(p.Uretprobe)
	case ProgTypeXDP:
		return present(p.XDP)
	}
	return nil
}

func present[T any, P interface {
	*T
	ProgramInfo
}](info P) ProgramInfo {
	if info == nil {
		return nil
	}
	return info
}

// BpfApplicationSpec is the desired state of BpfApplication objects.
type BpfApplicationSpec struct {
	BpfAppCommon `json:",inline"`

	// programs are the programs of the application. They are loaded together, and
	// share the maps and globals of the bytecode.
	// +optional
	// +kubebuilder:validation:MinItems=1
	Programs []BpfApplicationProgram `json:"programs,omitempty"`
}

// BpfApplicationStatus summarizes the state of the application on all nodes.
type BpfApplicationStatus struct {
	BpfProgramStatusCommon `json:",inline"`
}

// BpfApplication loads several programs of one bytecode together on each
// selected node, and attaches each of them.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=bpfapp,categories=bpfman
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
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
	Status BpfApplicationStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *BpfApplication) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *BpfApplication) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *BpfApplication) GetStatus() *BpfProgramStatusCommon { return &o.Status.BpfProgramStatusCommon }

// Members implements UserObject.
func (o *BpfApplication) Members() ([]BpfApplicationProgram, bool) { return o.Spec.Programs, false }

// BpfApplicationList is a list of BpfApplications.
//
// +kubebuilder:object:root=true
type BpfApplicationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BpfApplication `json:"items"`
}

// BpfNsApplicationProgram is a member of a BpfNsApplication: one program, which
// is configured in the field that its type names.
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'XDP') == has(self.xdp)",message="xdp configuration is required when type is XDP, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TC') == has(self.tc)",message="tc configuration is required when type is TC, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'TCX') == has(self.tcx)",message="tcx configuration is required when type is TCX, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Uprobe') == has(self.uprobe)",message="uprobe configuration is required when type is Uprobe, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Uretprobe') == has(self.uretprobe)",message="uretprobe configuration is required when type is Uretprobe, and forbidden otherwise"
// +union
type BpfNsApplicationProgram struct {
	// type is the type of the program. If it is absent, the member has no
	// configuration, and nothing is loaded for it. For example: `TCX`.
	// +optional
	// +unionDiscriminator
	// +kubebuilder:validation:Enum=XDP;TC;TCX;Uprobe;Uretprobe
	Type EBPFProgType `json:"type,omitempty"`

	// xdp configures an XDP program. It is required if type is XDP, and forbidden
	// otherwise.
	// +optional
	// +unionMember
	XDP *XdpNsProgramInfo `json:"xdp,omitempty"`

	// tc configures a TC program. It is required if type is TC, and forbidden
	// otherwise.
	// +optional
	// +unionMember
	TC *TcNsProgramInfo `json:"tc,omitempty"`

	// tcx configures a TCX program. It is required if type is TCX, and forbidden
	// otherwise.
	// +optional
	// +unionMember
	TCX *TcxNsProgramInfo `json:"tcx,omitempty"`

	// uprobe configures a uprobe program. It is required if type is Uprobe, and
	// forbidden otherwise.
	// +optional
	// +unionMember
	Uprobe *UprobeNsProgramInfo `json:"uprobe,omitempty"`

	// uretprobe configures a uretprobe program. It is required if type is
	// Uretprobe, and forbidden otherwise.
	// +optional
	// +unionMember
	Uretprobe *UprobeNsProgramInfo `json:"uretprobe,omitempty"`
}

// BpfNsApplicationSpec is the desired state of BpfNsApplication objects.
type BpfNsApplicationSpec struct {
	BpfAppCommon `json:",inline"`

	// programs are the programs of the application. They are loaded together, and
	// share the maps and globals of the bytecode.
	// +optional
	// +kubebuilder:validation:MinItems=1
	Programs []BpfNsApplicationProgram `json:"programs,omitempty"`
}

// BpfNsApplication loads several programs of one bytecode together on each
// selected node, and attaches them only in containers in its own namespace.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=bpfnsapp,categories=bpfman
// +kubebuilder:printcolumn:name="NodeSelector",type=string,JSONPath=`.spec.nodeselector`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.nodes.selected`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.nodes.attached`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.nodes.idle`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.bytecode.image.url`,priority=1
type BpfNsApplication struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +optional
	Spec BpfNsApplicationSpec `json:"spec,omitzero"`

	// status summarizes the state on all nodes.
	// +optional
	// +default={}
	Status BpfApplicationStatus `json:"status,omitzero"`
}

// GetAppCommon implements UserObject.
func (o *BpfNsApplication) GetAppCommon() BpfAppCommon { return o.Spec.BpfAppCommon }

// SetAppCommon implements UserObject.
func (o *BpfNsApplication) SetAppCommon(c BpfAppCommon) { o.Spec.BpfAppCommon = c }

// GetStatus implements UserObject.
func (o *BpfNsApplication) GetStatus() *BpfProgramStatusCommon {
	return &o.Status.BpfProgramStatusCommon
}

// Members implements UserObject.
func (o *BpfNsApplication) Members() ([]BpfApplicationProgram, bool) {
	members := make([]BpfApplicationProgram, len(o.Spec.Programs))
	for i, p := range o.Spec.Programs {
		members[i] = BpfApplicationProgram{
			Type: p.Type, XDP: p.XDP.within(o.Namespace), TC: p.TC.within(o.Namespace), TCX: p.TCX.within(o.Namespace),
			Uprobe: p.Uprobe.within(o.Namespace), Uretprobe: p.Uretprobe.within(o.Namespace),
		}
	}
	return members, true
}

// BpfNsApplicationList is a list of BpfNsApplications.
//
// +kubebuilder:object:root=true
type BpfNsApplicationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BpfNsApplication `json:"items"`
}
