// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BpfNodeStatus is the eBPF of one node, whoever loaded it. Text that comes
// from the kernel or from processes is shown with whatever isn't printable
// escaped as in a Go string.
type BpfNodeStatus struct {
	// kernelversion is the release of the node's kernel.
	// +optional
	KernelVersion string `json:"kernelversion,omitempty"`

	// bootid identifies the boot that the kernel's ids belong to.
	// +optional
	BootID string `json:"bootid,omitempty"`

	// programcount is the number of programs in the kernel.
	// +optional
	ProgramCount int32 `json:"programcount"`

	// bpfmancount is the number of those programs that bpfman loaded, its
	// dispatchers among them.
	// +optional
	BpfmanCount int32 `json:"bpfmancount"`

	// othercount is the number of those programs that somebody else loaded.
	// +optional
	OtherCount int32 `json:"othercount"`

	// mapcount is the number of maps in the kernel.
	// +optional
	MapCount int32 `json:"mapcount"`

	// linkcount is the number of links in the kernel.
	// +optional
	LinkCount int32 `json:"linkcount"`

	// conflictcount is the number of conflicts that were found; conflicts may
	// list fewer.
	// +optional
	ConflictCount int32 `json:"conflictcount"`

	// programs are the programs in the kernel, by id.
	// +optional
	// +listType=atomic
	Programs []BpfNodeProgram `json:"programs,omitempty"`

	// maps are the maps in the kernel, by id.
	// +optional
	// +listType=atomic
	Maps []BpfNodeMap `json:"maps,omitempty"`

	// conflicts are what keeps programs of bpfman from working, or may.
	// +optional
	// +listType=atomic
	Conflicts []BpfNodeConflict `json:"conflicts,omitempty"`

	// omitted counts what this object has no room for. It is absent where
	// everything is listed.
	// +optional
	Omitted *BpfNodeOmitted `json:"omitted,omitempty"`

	// conditions tell whether the node could be inspected, and for each type of
	// conflict whether there is one.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// BpfNodeProgram is one program in a node's kernel.
type BpfNodeProgram struct {
	// id is the kernel's id of the program.
	// +required
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ID uint32 `json:"id"`

	// name is the name of the program's function: the whole of it where the
	// program has BTF, else the kernel's 15 characters.
	// +optional
	Name string `json:"name,omitempty"`

	// type is the type of the program as bpftool names it, such as xdp,
	// sched_cls or cgroup_skb.
	// +required
	Type string `json:"type"`

	// tag is the kernel's hash of the program's instructions.
	// +optional
	Tag string `json:"tag,omitempty"`

	// loadedat tells when the program was loaded.
	// +optional
	LoadedAt *metav1.Time `json:"loadedat,omitempty"`

	// loadedbyuid is the user that loaded the program.
	// +optional
	// +kubebuilder:validation:Format=int64
	LoadedByUID *uint32 `json:"loadedbyuid,omitempty"`

	// bpfman tells that the program was loaded by bpfman.
	// +optional
	Bpfman bool `json:"bpfman,omitempty"`

	// owner is the object of bpfman that the program was loaded for.
	// +optional
	Owner *BpfNodeOwner `json:"owner,omitempty"`

	// attachpoints tell where the program is attached.
	// +optional
	// +listType=atomic
	AttachPoints []BpfNodeAttachPoint `json:"attachpoints,omitempty"`

	// holders keep the program in the kernel: processes that have it, one of its
	// links, or a map that has it, open, and files where one of these is pinned.
	// +optional
	// +listType=atomic
	Holders []BpfNodeHolder `json:"holders,omitempty"`

	// mapids are the kernel's ids of the program's maps.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Format=int64
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=4294967295
	MapIDs []uint32 `json:"mapids,omitempty"`
}

// BpfNodeOwner names an object of bpfman.
type BpfNodeOwner struct {
	// kind of the object, such as XdpProgram.
	// +required
	Kind string `json:"kind"`

	// namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	// +required
	Name string `json:"name"`
}

// String names the object in messages and tables, such as XdpNsProgram acme/drop.
func (o BpfNodeOwner) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// BpfNodeAttachPoint is a point that a program is attached to.
type BpfNodeAttachPoint struct {
	// type is the kind of attachment: xdp, tc/ingress, tc/egress, tcx/ingress,
	// tcx/egress, netkit/primary, netkit/peer, tracepoint, raw_tracepoint, kprobe,
	// kretprobe, kprobe_multi, uprobe, uretprobe, uprobe_multi, perf_event, fentry,
	// fexit, fmod_ret, lsm, freplace, netfilter, struct_ops, iter, or the kernel's
	// attach type in lower case, such as cgroup_inet_ingress or sk_lookup.
	// +required
	Type string `json:"type"`

	// linkid is the kernel's id of the link, absent where the program is attached
	// without one.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LinkID uint32 `json:"linkid,omitempty"`

	// interface is the network interface.
	// +optional
	Interface string `json:"interface,omitempty"`

	// netns is the inode number of the interface's network namespace, absent for
	// the host's.
	// +optional
	NetNs string `json:"netns,omitempty"`

	// namespace and pod are those of the pod that has the network namespace, or,
	// for a uprobe, cgroup and the like, the target.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Pod string `json:"pod,omitempty"`

	// target is what isn't an interface: the kernel's function (with +offset), the
	// tracepoint (group/name), the binary and symbol or offset, the cgroup's path,
	// or the function of the program that is replaced.
	// +optional
	Target string `json:"target,omitempty"`

	// targetprogramid is the kernel's id of the program that is replaced or traced,
	// such as the dispatcher that a program of bpfman is part of.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	TargetProgramID uint32 `json:"targetprogramid,omitempty"`

	// mode of an XDP program: native, generic or offloaded.
	// +optional
	Mode string `json:"mode,omitempty"`

	// position among the programs of the same hook, from 1 in the order in which
	// they run, absent where there is no order.
	// +optional
	Position int32 `json:"position,omitempty"`

	// priority is that of a TC filter.
	// +optional
	Priority int32 `json:"priority,omitempty"`
}

// BpfNodeHolder keeps a program in the kernel.
type BpfNodeHolder struct {
	// holds is what is held: program, link or map.
	// +optional
	Holds string `json:"holds,omitempty"`

	// path is where it is pinned, as seen on the node; absent for a process.
	// +optional
	Path string `json:"path,omitempty"`

	// process is the name of the process that has it open.
	// +optional
	Process string `json:"process,omitempty"`

	// pid is the process's id on the node.
	// +optional
	PID int32 `json:"pid,omitempty"`

	// namespace, pod and container are those that the process, or the bpffs of
	// the pin, belongs to.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Pod string `json:"pod,omitempty"`
	// +optional
	Container string `json:"container,omitempty"`

	// unit is the systemd unit that the process belongs to.
	// +optional
	Unit string `json:"unit,omitempty"`

	// gone tells that the process has ended, or closed it, and that it is the last
	// holder that was seen.
	// +optional
	Gone bool `json:"gone,omitempty"`
}

// BpfNodeMap is one map in a node's kernel.
type BpfNodeMap struct {
	// id is the kernel's id of the map.
	// +required
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ID uint32 `json:"id"`

	// name is the kernel's name of the map, 15 characters at most.
	// +optional
	Name string `json:"name,omitempty"`

	// type is the type of the map as bpftool names it, such as percpu_hash.
	// +required
	Type string `json:"type"`

	// keysize is the size of a key in bytes.
	// +optional
	// +kubebuilder:validation:Format=int64
	KeySize uint32 `json:"keysize,omitempty"`

	// valuesize is the size of a value in bytes.
	// +optional
	// +kubebuilder:validation:Format=int64
	ValueSize uint32 `json:"valuesize,omitempty"`

	// maxentries is the number of entries that the map has room for; of a ring
	// buffer, its size in bytes.
	// +optional
	// +kubebuilder:validation:Format=int64
	MaxEntries uint32 `json:"maxentries,omitempty"`

	// memorybytes is the kernel's memory that the map takes. It is absent for a
	// map whose memory grows with its entries; metrics have that.
	// +optional
	MemoryBytes int64 `json:"memorybytes,omitempty"`

	// pins are the paths where the map is pinned, as seen on the node.
	// +optional
	// +listType=atomic
	Pins []string `json:"pins,omitempty"`
}

// BpfNodeConflict is something that keeps a program of bpfman from working, or
// may.
type BpfNodeConflict struct {
	// type is one of the types of conditions of a BpfNode that tell of conflicts.
	// +required
	Type string `json:"type"`

	// message says what conflicts with what, and who holds it.
	// +required
	Message string `json:"message"`

	// programid is the kernel's id of the other program.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ProgramID uint32 `json:"programid,omitempty"`

	// owner is the object of bpfman that is concerned.
	// +optional
	Owner *BpfNodeOwner `json:"owner,omitempty"`
}

// BpfNodeOmitted counts what a BpfNode has no room for.
type BpfNodeOmitted struct {
	// programs that aren't listed.
	// +optional
	Programs int32 `json:"programs,omitempty"`

	// maps that aren't listed.
	// +optional
	Maps int32 `json:"maps,omitempty"`

	// holders that aren't listed with their programs.
	// +optional
	Holders int32 `json:"holders,omitempty"`

	// attachpoints that aren't listed with their programs.
	// +optional
	AttachPoints int32 `json:"attachpoints,omitempty"`

	// conflicts that aren't listed.
	// +optional
	Conflicts int32 `json:"conflicts,omitempty"`
}

// Types of conditions of a BpfNode. All but the first are types of conflicts, and
// True while there is one.
const (
	// BpfNodeInspected tells whether all of the node's eBPF could be seen.
	BpfNodeInspected = "Inspected"
	// BpfNodeForeignXDP tells of programs that aren't bpfman's on interfaces where
	// bpfman is to attach XDP programs.
	BpfNodeForeignXDP = "ForeignXDP"
	// BpfNodeEarlierInChain tells of programs that aren't bpfman's which run before
	// those of bpfman in a TCX chain, and whose verdict may end it.
	BpfNodeEarlierInChain = "EarlierInChain"
	// BpfNodeEventNearLimit tells of tracepoints and kernel functions that have
	// nearly as many programs as the kernel runs there.
	BpfNodeEventNearLimit = "EventNearLimit"
	// BpfNodeDispatcherFull tells of interfaces whose ten slots of bpfman's
	// dispatcher are taken.
	BpfNodeDispatcherFull = "DispatcherFull"
	// BpfNodeUnownedProgram tells of programs that bpfman loaded and that no object
	// owns.
	BpfNodeUnownedProgram = "UnownedProgram"
)

// BpfNode is the eBPF of one node, whoever loaded it, as the node's inspector
// found it: programs, where they are attached and who holds them, maps, and
// conflicts. It has the node's name, and is written by the inspector only, when
// something has changed. What changes all the time, such as run times and
// entries of maps, isn't in it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=bpfman
// +kubebuilder:printcolumn:name="Programs",type=integer,JSONPath=`.status.programcount`
// +kubebuilder:printcolumn:name="Bpfman",type=integer,JSONPath=`.status.bpfmancount`
// +kubebuilder:printcolumn:name="Others",type=integer,JSONPath=`.status.othercount`
// +kubebuilder:printcolumn:name="Conflicts",type=integer,JSONPath=`.status.conflictcount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Kernel",type=string,JSONPath=`.status.kernelversion`,priority=1
// +kubebuilder:printcolumn:name="Maps",type=integer,JSONPath=`.status.mapcount`,priority=1
// +kubebuilder:printcolumn:name="Links",type=integer,JSONPath=`.status.linkcount`,priority=1
type BpfNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what the inspector found.
	// +optional
	Status BpfNodeStatus `json:"status,omitzero"`
}

// BpfNodeList is a list of BpfNodes.
//
// +kubebuilder:object:root=true
type BpfNodeList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BpfNode `json:"items"`
}
