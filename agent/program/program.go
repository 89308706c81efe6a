// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package program defines the types of eBPF programs. For each type, it
// determines from a user object how the program is loaded, and where it is
// attached on a node.
//
// The rest of the agent is independent of the type. A new type needs one file in
// this package, and its rows in table.go.
package program

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Key identifies a user object. Namespace is empty for cluster-scoped kinds.
type Key struct {
	Kind      string
	Namespace string
	Name      string
}

// String formats the key for logs.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + "/" + k.Name
	}
	return k.Kind + "/" + k.Namespace + "/" + k.Name
}

// Spec is one eBPF program in a user object. Each type of program has one
// implementation, in the file with its name: kretprobe, uretprobe, and fexit are
// forms of kprobe, uprobe, and fentry.
type Spec interface {
	// ID identifies the program in its application, in upstream's format, for
	// example "tc-ingress-stats". Several members can have the same ID.
	ID() string
	// Incomplete names a missing field without which the program can't be loaded or
	// attached. It returns nil if there is none. Like upstream's, the schema permits
	// such objects.
	Incomplete() error
	// MapOwner selects the program whose maps this one uses. It returns nil if
	// there is no selector.
	MapOwner() *metav1.LabelSelector
	// LoadInfo returns the program's parameters for the daemon's Load.
	LoadInfo() *gobpfman.LoadInfo
	// Attached reports whether the program is to be attached.
	Attached() bool
	// AttachPoints returns the program's current attach points on this node. An
	// error means that some are unknown. The returned ones are valid.
	AttachPoints(Node) ([]AttachPoint, error)
	// Needs returns which state of the node the attach points depend on.
	Needs() Needs
	// Affected reports whether a change of that state can concern the attach points.
	Affected(Change) bool
}

// ReturnProbe is implemented by the types that can run when a function returns.
type ReturnProbe interface {
	// ReturnProbe returns kretprobe or uretprobe if the user's object says so, or "". The section in the bytecode decides,
	// if it is known.
	ReturnProbe() string
}

// returnProbe returns the type if the program is a return probe.
func returnProbe(name string, is bool) string {
	if is {
		return name
	}
	return ""
}

// Needs contains which state of the node the attach points depend on.
type Needs struct {
	Interfaces bool
	Containers bool
	// PodInterfaces are the interfaces in the network namespaces of pods. The
	// kernel sends no messages about them.
	PodInterfaces bool
}

// Idle returns the type of the condition of a program that has no attach points on a node,
// or "" if it needs none.
func Idle(s Spec, n Node) v1alpha1.BpfProgramConditionType {
	network, isNetwork := s.(interface{ matchesPod(Node) bool })
	there := !s.Needs().Containers || isNetwork && network.matchesPod(n)
	switch {
	case !there:
		return v1alpha1.BpfProgCondNoContainersOnNode
	case isNetwork:
		return v1alpha1.BpfProgCondNoInterfacesOnNode
	}
	return ""
}

// AttachPoint is one link of a loaded program.
type AttachPoint struct {
	// Name describes the attach point to users. It is unique within the program.
	Name string
	// Info is the argument of the daemon's Attach.
	Info *gobpfman.AttachInfo
	// Discovered means that the attach point was found on the node, and not named
	// by the user. It can disappear again.
	Discovered bool
	// In is the ID of the sandbox or container that Info refers to, or "" if it refers to none.
	In string
	// Process is the process that Info refers to, or nil if it refers to none.
	Process *Process
	// Lack is the reason why the program can't be attached now: a policy, or an
	// AbsentError.
	Lack error
	// Withdrawn means that an existing link must be removed.
	Withdrawn bool
	// Digest identifies the link. Equal digests mean the same link. It is stored in
	// the BpfProgram's status. Avoid changes of the algorithm between versions of
	// the agent, because they attach all links again.
	Digest string
}

// Place identifies an attach point of what is loaded for an object's version. Unlike a Digest, it stays the same when the node
// restarts, and when an interface disappears and appears again. Members that share a loaded program share its places too.
type Place struct {
	// Point is the name of the attach point.
	Point string `json:"point"`
	// Link is a hash of what is loaded, and how it is attached. An earlier version of bpfman recorded the ID of one of the
	// program's members instead.
	Link   string `json:"link,omitempty"`
	Member string `json:"member,omitempty"`
}

// Compare orders places.
func (p Place) Compare(other Place) int {
	return cmp.Or(strings.Compare(p.Point, other.Point), strings.Compare(p.Link, other.Link), strings.Compare(p.Member, other.Member))
}

// Place returns the place of an attach point on the node, which can be that of another member with the same function.
func (m Member) Place(point AttachPoint) Place {
	b, _ := json.Marshal([]any{m.MapOwner(), deterministic(m.LoadInfo()), deterministic(point.Info)}) //nolint:errchkjson // strings and bytes can always be encoded
	sum := sha256.Sum256(b)
	return Place{Point: point.Name, Link: hex.EncodeToString(sum[:8])}
}

// deterministic returns the encoding of a message, which is the same each time.
func deterministic(m proto.Message) []byte {
	// Marshal only fails for invalid UTF-8, which the API server rejects, and which is a problem in names of interfaces.
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return b
}

// Process is a process of a container or a sandbox.
type Process struct {
	PID int
	// Of is the ID of the container or the sandbox, which the name of the process's cgroup contains. When the process has
	// ended, the kernel can give its PID to a process of another pod, or of the node.
	Of string
	// Namespace is that of the pod.
	Namespace string
}

// HookOf returns the hook for policies that a program is attached to, as the daemon gets it. It is
// zero for fentry, fexit, and LSM, whose hook is fixed when the program is loaded.
func HookOf(info *gobpfman.AttachInfo) policy.Hook {
	switch i := info.GetInfo().(type) {
	case *gobpfman.AttachInfo_XdpAttachInfo:
		return policy.Hook{Type: policy.Interface, Name: i.XdpAttachInfo.GetIface()}
	case *gobpfman.AttachInfo_TcAttachInfo:
		return policy.Hook{Type: policy.Interface, Name: i.TcAttachInfo.GetIface()}
	case *gobpfman.AttachInfo_TcxAttachInfo:
		return policy.Hook{Type: policy.Interface, Name: i.TcxAttachInfo.GetIface()}
	case *gobpfman.AttachInfo_TracepointAttachInfo:
		return policy.Hook{Type: policy.Tracepoint, Name: i.TracepointAttachInfo.GetTracepoint()}
	case *gobpfman.AttachInfo_KprobeAttachInfo:
		return policy.Hook{Type: policy.Function, Name: i.KprobeAttachInfo.GetFnName(), Offset: i.KprobeAttachInfo.GetOffset() != 0}
	case *gobpfman.AttachInfo_UprobeAttachInfo:
		return policy.Hook{Type: policy.Target, Name: i.UprobeAttachInfo.GetTarget()}
	}
	return policy.Hook{}
}

// AbsentError is about something that the node doesn't have yet, such as an interface.
type AbsentError struct{ Err error }

func (e *AbsentError) Error() string { return e.Err.Error() }
func (e *AbsentError) Unwrap() error { return e.Err }

// absent returns an AbsentError that names its problem.
func absent(reason problem.Reason, format string, args ...any) error {
	return &AbsentError{problem.Errorf(reason, format, args...)}
}

// OnNode reports whether a program there can cut off the node: at an interface outside of pods, or where it can deny any
// operation.
func (p AttachPoint) OnNode() bool {
	if p.Info.GetLsmAttachInfo() != nil {
		return true
	}
	if HookOf(p.Info).Type != policy.Interface {
		return false
	}
	i := p.Info
	return i.GetXdpAttachInfo().GetNetns() == "" && i.GetTcAttachInfo().GetNetns() == "" && i.GetTcxAttachInfo().GetNetns() == ""
}

// newAttachPoint returns an attach point. Instance distinguishes objects that
// have the same name one after the other, for example interfaces by their index
// and containers by their ID. If it changes, the object that the link was
// attached to no longer exists. If the name of the hook has a problem, nothing is attached there.
func newAttachPoint(name string, info *gobpfman.AttachInfo, instance string) AttachPoint {
	sum := sha256.Sum256(append(deterministic(info), "\x00"+instance...))
	point := AttachPoint{Name: name, Info: info, Digest: hex.EncodeToString(sum[:8])}
	if invalid := HookOf(info).Problem(); invalid != "" {
		point.Lack, point.Withdrawn = errors.New(invalid), true
	}
	return point
}
