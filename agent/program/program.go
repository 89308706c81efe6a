// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package program says what each kind of eBPF program is: which fields of a
// user object decide how it is loaded, and where it is attached on a node.
//
// Everything else in the agent treats all kinds alike. A new kind of program
// is one file here and its rows in table.go.
package program

import (
	"crypto/sha256"
	"encoding/hex"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Key names a user object. Namespace is empty for cluster-scoped kinds.
type Key struct {
	Kind      string
	Namespace string
	Name      string
}

// String is the key as a log line shows it.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + "/" + k.Name
	}
	return k.Kind + "/" + k.Namespace + "/" + k.Name
}

// Kind is one eBPF program as a user declared it. Each type of program has one
// implementation, in the file of its name.
type Kind interface {
	// Type is the BpfProgram's spec.type for a program on its own: "xdp", "tc" …
	Type() string
	// ID tells the program from the other members of its application, in
	// upstream's form: "tc-ingress-stats". Two members may share one.
	ID() string
	// Incomplete says what is missing without which there is nothing to load or to
	// attach to, "" if nothing is. The API server lets it pass, as upstream's does.
	Incomplete() string
	// MapOwner selects the program whose maps this one uses, if any.
	MapOwner() *metav1.LabelSelector
	// LoadInfo is what the daemon's Load has to know.
	LoadInfo() *gobpfman.LoadInfo
	// Attached tells whether the program is to be attached at all.
	Attached() bool
	// AttachPoints lists where the program belongs on this node now. An error
	// says why some can't be told; those returned beside it are good.
	AttachPoints(Node) ([]AttachPoint, error)
	// Needs says which changes of the node can change the attach points.
	Needs() Needs
}

// Needs says which facts of a node a program's attach points come from.
type Needs struct {
	Interfaces bool
	Containers bool
	// PodInterfaces are the interfaces in the network namespaces of pods, of which
	// the kernel sends no messages.
	PodInterfaces bool
}

// AttachPoint is one place where a loaded program is attached: one link.
type AttachPoint struct {
	// Name describes the place to people and is unique within the program.
	Name string
	// Info is the daemon's Attach argument.
	Info *gobpfman.AttachInfo
	// Discovered tells that the place was found on the node, not named by the user:
	// it may be gone again.
	Discovered bool
	// Lack says what the node lacks for it now, or which policy is against it: it
	// can't be attached to yet.
	Lack string
	// Withdrawn tells that a link which is there has to go all the same.
	Withdrawn bool
	// Digest identifies the link asked for: same digest, same link. It is kept
	// in the BpfProgram's status, so its making must not change between
	// versions of the agent without need: that would attach every link anew.
	Digest string
}

// newAttachPoint makes an attach point. Instance tells apart things that bear
// the same name one after another, an interface by its index or a container by
// its id: when it changes, what the link was attached to is gone.
func newAttachPoint(name string, info *gobpfman.AttachInfo, instance string) AttachPoint {
	// Marshal fails on invalid UTF-8 alone, which the API server refuses.
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(info)
	sum := sha256.Sum256(append(b, "\x00"+instance...))
	return AttachPoint{Name: name, Info: info, Digest: hex.EncodeToString(sum[:8])}
}
