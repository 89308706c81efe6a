// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind describes one kind of this API. O is the Go type of its objects.
// +kubebuilder:object:generate=false
type Kind[O any] struct {
	// Name is the kind in a manifest, such as "XdpProgram".
	Name string
	// Namespaced reports whether objects are in a namespace.
	Namespaced bool
	// New returns a new empty object.
	New func() O
	// NewList returns a new empty list. meta.EachListItem visits its objects.
	NewList func() runtime.Object
}

// Resource returns the plural name in URLs and RBAC rules, such as "xdpprograms".
func (k Kind[O]) Resource() string {
	name := strings.ToLower(k.Name)
	if stem, found := strings.CutSuffix(name, "y"); found {
		return stem + "ies"
	}
	return name + "s"
}

// GroupVersionKind returns the kind with this API's group and version.
func (k Kind[O]) GroupVersionKind() schema.GroupVersionKind {
	return SchemeGroupVersion.WithKind(k.Name)
}

// GroupVersionResource returns the resource with this API's group and version.
func (k Kind[O]) GroupVersionResource() schema.GroupVersionResource {
	return SchemeGroupVersion.WithResource(k.Resource())
}

// Scope returns the scope of the kind for a RESTMapper.
func (k Kind[O]) Scope() meta.RESTScope {
	if k.Namespaced {
		return meta.RESTScopeNamespace
	}
	return meta.RESTScopeRoot
}

// Object is the interface of the objects of all kinds.
// +kubebuilder:object:generate=false
type Object interface {
	metav1.Object
	runtime.Object
}

// UserObject is the interface of the objects of all UserKinds. With it, code that treats
// all kinds alike needs no switch.
// +kubebuilder:object:generate=false
type UserObject interface {
	Object

	// GetAppCommon returns the bytecode, the globals, and the node selector, in the form
	// of most kinds. They can share memory with the object.
	GetAppCommon() BpfAppCommon
	// SetAppCommon sets them.
	SetAppCommon(BpfAppCommon)
	// GetStatus returns the status, for reading and for writing.
	GetStatus() *BpfProgramStatusCommon
	// Members returns the only program of the object, or all programs of an
	// application, in the form of members of a BpfApplication. They can share memory
	// with the object. Namespaced means that the kind is namespaced: the programs
	// then select only containers in the object's namespace.
	Members() (programs []BpfApplicationProgram, namespaced bool)
}

// LinkedObject is the interface of applications of upstream's v0.6, whose programs have links.
// +kubebuilder:object:generate=false
type LinkedObject interface {
	UserObject

	// Linked returns the application in the form of a ClusterBpfApplication. It can share
	// memory with the object.
	Linked() *ClusterBpfApplication
}

// HasLinks reports whether the objects of a kind are LinkedObjects. The kind BpfApplication is
// one of upstream's v0.6 if it is namespaced.
func HasLinks(kind string, namespaced bool) bool {
	return kind == "ClusterBpfApplication" || kind == "BpfApplication" && namespaced
}

// ProgramInfo is the interface of the configurations of programs, such as
// XdpProgramInfo. With it, code that treats all types alike needs no switch.
// +kubebuilder:object:generate=false
type ProgramInfo interface {
	// Common returns what programs of all types configure, for reading and for
	// writing.
	Common() *BpfProgramCommon
	// ProgramType returns the type as in policies, where Kprobe and Uprobe include
	// return probes.
	ProgramType() EBPFProgType
	// NamedHooks returns the hooks that the configuration names.
	NamedHooks() NamedHooks
	// ContainerSelector returns the selector of containers, or nil for a program
	// that isn't attached in containers.
	ContainerSelector() *ContainerSelector
	// Chain returns the settings among the programs at a hook. It is nil for types
	// whose programs don't depend on each other, and for a program without links.
	Chain() *ChainSettings
}

// ChainSettings decide when a program runs among those at the same hook.
// +kubebuilder:object:generate=false
type ChainSettings struct {
	// Priority decides the order: a program with a lower priority runs first.
	Priority int32
	// ProceedOn are the results after which the next program runs. It is nil for
	// types for which the kernel decides about this.
	ProceedOn []string
}

// NamedHooks are hooks by name, without those that a node discovers, and without
// its primary interface. A program has hooks of one type. A program that is only loaded
// can have none.
// +kubebuilder:object:generate=false
type NamedHooks struct {
	Interfaces, Tracepoints []string
	Function                *KernelFunction
	// Target is an executable or a library.
	Target *string
}

// KernelFunction is a place in a function of the kernel.
// +kubebuilder:object:generate=false
type KernelFunction struct {
	Name string
	// Offset is the distance from the function's start, in bytes.
	Offset uint64
}

// Common implements ProgramInfo.
func (c *BpfProgramCommon) Common() *BpfProgramCommon { return c }

// ContainerSelector implements ProgramInfo for types that aren't attached in
// containers.
func (c *BpfProgramCommon) ContainerSelector() *ContainerSelector { return nil }

// Chain implements ProgramInfo for types without a chain.
func (c *BpfProgramCommon) Chain() *ChainSettings { return nil }

func texts[T ~string](actions []T) []string {
	var out []string
	for _, a := range actions {
		out = append(out, string(a))
	}
	return out
}

// chain returns the settings of a program, unless it is only loaded, and selects no
// interfaces, as a program of a ClusterBpfApplication without links.
func (c *BpfProgramCommon) chain(selector InterfaceSelector, settings ChainSettings) *ChainSettings {
	if selector == (InterfaceSelector{}) && c.Attach != nil && !*c.Attach {
		return nil
	}
	return &settings
}

// named returns the interfaces by name. If the selector has both, the primary
// interface takes precedence, as in the agent.
func (s InterfaceSelector) named() []string {
	if s.Interfaces == nil || s.PrimaryNodeInterface != nil {
		return nil
	}
	return *s.Interfaces
}

// within limits the selector to a namespace. This is also the case without a
// selector, although the API server doesn't admit it, so that the program is never
// attached on the host.
func (s *ContainerNsSelector) within(namespace string) *ContainerSelector {
	if s == nil {
		return &ContainerSelector{Namespace: namespace}
	}
	return &ContainerSelector{
		Namespace: namespace, Pods: s.Pods, ContainerNames: s.ContainerNames, Attachment: s.Attachment, FailurePolicy: s.FailurePolicy,
	}
}

// ProgramObject is the interface of BpfProgram and BpfNsProgram.
// +kubebuilder:object:generate=false
type ProgramObject interface {
	Object

	// GetSpec returns the spec, for reading and for writing.
	GetSpec() *BpfProgramSpec
	// GetStatus returns the status, for reading and for writing.
	GetStatus() *BpfProgramStatus
}

// UserKinds are the kinds that users write, with BpfApplication as in upstream's v0.5: see UserKindsOf.
var UserKinds = []Kind[UserObject]{
	{"BpfApplication", false, func() UserObject { return &BpfApplication{} }, func() runtime.Object { return &BpfApplicationList{} }},
	{"BpfNsApplication", true, func() UserObject { return &BpfNsApplication{} }, func() runtime.Object { return &BpfNsApplicationList{} }},
	{"ClusterBpfApplication", false, func() UserObject { return &ClusterBpfApplication{} }, func() runtime.Object { return &ClusterBpfApplicationList{} }},
	{"FentryProgram", false, func() UserObject { return &FentryProgram{} }, func() runtime.Object { return &FentryProgramList{} }},
	{"FexitProgram", false, func() UserObject { return &FexitProgram{} }, func() runtime.Object { return &FexitProgramList{} }},
	{"KprobeProgram", false, func() UserObject { return &KprobeProgram{} }, func() runtime.Object { return &KprobeProgramList{} }},
	{"LsmProgram", false, func() UserObject { return &LsmProgram{} }, func() runtime.Object { return &LsmProgramList{} }},
	{"TcNsProgram", true, func() UserObject { return &TcNsProgram{} }, func() runtime.Object { return &TcNsProgramList{} }},
	{"TcProgram", false, func() UserObject { return &TcProgram{} }, func() runtime.Object { return &TcProgramList{} }},
	{"TcxNsProgram", true, func() UserObject { return &TcxNsProgram{} }, func() runtime.Object { return &TcxNsProgramList{} }},
	{"TcxProgram", false, func() UserObject { return &TcxProgram{} }, func() runtime.Object { return &TcxProgramList{} }},
	{"TracepointProgram", false, func() UserObject { return &TracepointProgram{} }, func() runtime.Object { return &TracepointProgramList{} }},
	{"UprobeNsProgram", true, func() UserObject { return &UprobeNsProgram{} }, func() runtime.Object { return &UprobeNsProgramList{} }},
	{"UprobeProgram", false, func() UserObject { return &UprobeProgram{} }, func() runtime.Object { return &UprobeProgramList{} }},
	{"XdpNsProgram", true, func() UserObject { return &XdpNsProgram{} }, func() runtime.Object { return &XdpNsProgramList{} }},
	{"XdpProgram", false, func() UserObject { return &XdpProgram{} }, func() runtime.Object { return &XdpProgramList{} }},
}

// UserKindsOf returns UserKinds with the types and scopes of a scheme, in which BpfApplication
// can be namespaced: see package namespaced.
func UserKindsOf(scheme *runtime.Scheme) []Kind[UserObject] {
	all := slices.Clone(UserKinds)
	for i := range all {
		all[i] = inScheme(scheme, all[i])
	}
	return all
}

func inScheme(scheme *runtime.Scheme, k Kind[UserObject]) Kind[UserObject] {
	of := objectsOf(scheme)
	own, known := of(k.Name)().(UserObject)
	if !known || reflect.TypeOf(own) == reflect.TypeOf(k.New()) {
		return k
	}
	_, namespaced := own.Members()
	return Kind[UserObject]{k.Name, namespaced, func() UserObject { return of(k.Name)().(UserObject) }, of(k.Name + "List")} //nolint:errcheck // as own
}

// objectsOf returns how to make objects of the kinds of a scheme: nil, for one that isn't in it.
func objectsOf(scheme *runtime.Scheme) func(kind string) func() runtime.Object {
	return func(kind string) func() runtime.Object {
		return func() runtime.Object {
			object, _ := scheme.New(SchemeGroupVersion.WithKind(kind))
			return object
		}
	}
}

// ProgramKinds are the kinds that the agent writes, with one object for each program on
// each node.
var ProgramKinds = []Kind[ProgramObject]{
	{"BpfNsProgram", true, func() ProgramObject { return &BpfNsProgram{} }, func() runtime.Object { return &BpfNsProgramList{} }},
	{"BpfProgram", false, func() ProgramObject { return &BpfProgram{} }, func() runtime.Object { return &BpfProgramList{} }},
}

// ProgramKind returns the kind of the objects about the programs of user objects that are
// namespaced, or of those that are cluster-scoped.
func ProgramKind(namespaced bool) Kind[ProgramObject] {
	return ProgramKinds[slices.IndexFunc(ProgramKinds, func(k Kind[ProgramObject]) bool { return k.Namespaced == namespaced })]
}

// NodeKind is the kind that the inspector writes, with one object for each node.
var NodeKind = Kind[*BpfNode]{"BpfNode", false, func() *BpfNode { return &BpfNode{} }, func() runtime.Object { return &BpfNodeList{} }}

// PolicyKind is the kind of policies about bytecode, which administrators write.
var PolicyKind = Kind[*BytecodePolicy]{"BytecodePolicy", false, func() *BytecodePolicy { return &BytecodePolicy{} }, func() runtime.Object { return &BytecodePolicyList{} }}

// RolloutPolicyKind is the kind of policies about rollouts, which administrators write.
var RolloutPolicyKind = Kind[*RolloutPolicy]{"RolloutPolicy", false, func() *RolloutPolicy { return &RolloutPolicy{} }, func() runtime.Object { return &RolloutPolicyList{} }}

// StateObject is the interface of States: the objects of all StateKinds.
// +kubebuilder:object:generate=false
type StateObject interface {
	Object

	// GetStatus returns the status, for reading and for writing.
	GetStatus() *ApplicationStateStatus
}

// StateKind is a kind of upstream's v0.6 that the operator writes, with one object for each
// application on each node, where its definition is installed.
// +kubebuilder:object:generate=false
type StateKind struct {
	Kind[StateObject]

	// Application is the kind of the applications.
	Application string
}

// StateKinds aren't among AllKinds, because an installation doesn't have them unless it is
// wanted. A cluster whose BpfApplication is namespaced can have BpfApplicationState too: see StateKindsOf.
var StateKinds = []StateKind{
	{
		Kind[StateObject]{"ClusterBpfApplicationState", false, func() StateObject { return &ClusterBpfApplicationState{} }, func() runtime.Object { return &ClusterBpfApplicationStateList{} }},
		"ClusterBpfApplication",
	},
}

// StateKindsOf returns the kinds of States of the applications of a scheme.
func StateKindsOf(scheme *runtime.Scheme) []StateKind {
	const name = "BpfApplicationState"
	of := objectsOf(scheme)
	if _, known := of(name)().(StateObject); !known {
		return StateKinds
	}
	own := Kind[StateObject]{name, true, func() StateObject { return of(name)().(StateObject) }, of(name + "List")} //nolint:errcheck // see above
	return append(slices.Clone(StateKinds), StateKind{own, "BpfApplication"})
}

// AllKinds returns the kinds of this API that each installation has, with BpfApplication as in
// upstream's v0.5.
func AllKinds() []Kind[Object] { return allKinds(UserKinds) }

// AllKindsOf returns AllKinds with the types and scopes of a scheme.
func AllKindsOf(scheme *runtime.Scheme) []Kind[Object] { return allKinds(UserKindsOf(scheme)) }

func allKinds(users []Kind[UserObject]) []Kind[Object] {
	var all []Kind[Object]
	for _, k := range users {
		all = append(all, ofObjects(k))
	}
	for _, k := range ProgramKinds {
		all = append(all, ofObjects(k))
	}
	return append(all, ofObjects(NodeKind), ofObjects(PolicyKind), ofObjects(RolloutPolicyKind))
}

func ofObjects[O Object](k Kind[O]) Kind[Object] {
	return Kind[Object]{k.Name, k.Namespaced, func() Object { return k.New() }, k.NewList}
}
