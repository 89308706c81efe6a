// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BpfNodeStatus describes the eBPF programs and maps on one node, no matter
// what loaded them. In text from the kernel or from processes, characters that
// aren't printable are escaped as in a Go string.
type BpfNodeStatus struct {
	// kernelversion is the release of the node's kernel. For example: `6.12.9`.
	// +optional
	KernelVersion string `json:"kernelversion,omitempty"`

	// daemon is which bpfman daemon the node runs. For example: `bpfman v0.6 (Rust)`.
	// +optional
	Daemon string `json:"daemon,omitempty"`

	// bootid identifies the boot that the kernel's ids belong to.
	// +optional
	BootID string `json:"bootid,omitempty"`

	// programcount is the number of programs in the kernel. For example: `42`.
	// +optional
	ProgramCount int32 `json:"programcount"`

	// bpfmancount is the number of programs that bpfman loaded, including its
	// dispatchers. For example: `6`.
	// +optional
	BpfmanCount int32 `json:"bpfmancount"`

	// othercount is the number of programs that other software loaded. For
	// example: `36`.
	// +optional
	OtherCount int32 `json:"othercount"`

	// mapcount is the number of maps in the kernel. For example: `57`.
	// +optional
	MapCount int32 `json:"mapcount"`

	// linkcount is the number of links in the kernel. For example: `11`.
	// +optional
	LinkCount int32 `json:"linkcount"`

	// conflictcount is the number of conflicts that were found. The list of
	// conflicts can be shorter. For example: `1`.
	// +optional
	ConflictCount int32 `json:"conflictcount"`

	// stalemapcount is the number of maps that only volumes of pods have: the
	// program was deleted, or reloaded with other maps. For example: `1`.
	// +optional
	StaleMapCount int32 `json:"stalemapcount,omitempty"`

	// programs are the programs in the kernel, sorted by id.
	// +optional
	// +listType=atomic
	Programs []BpfNodeProgram `json:"programs,omitempty"`

	// maps are the maps in the kernel, sorted by id.
	// +optional
	// +listType=atomic
	Maps []BpfNodeMap `json:"maps,omitempty"`

	// conflicts are the facts that prevent, or could prevent, programs of bpfman
	// from working.
	// +optional
	// +listType=atomic
	Conflicts []BpfNodeConflict `json:"conflicts,omitempty"`

	// omitted counts the entries that this object has no room for. If it is
	// absent, everything is listed.
	// +optional
	Omitted *BpfNodeOmitted `json:"omitted,omitempty"`

	// conditions say whether the node could be inspected and, for each type of
	// conflict, whether there is one.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// BpfNodeProgram is one program in a node's kernel.
type BpfNodeProgram struct {
	// id is the kernel's id of the program. For example: `61`.
	// +required
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ID uint32 `json:"id"`

	// name is the name of the program's function. It is complete if the program
	// has BTF; otherwise, it is limited to 15 characters. For example:
	// `tcx_stats`.
	// +optional
	Name string `json:"name,omitempty"`

	// type is the type of the program, with the name that bpftool uses. For
	// example: `xdp`, `sched_cls`, or `cgroup_skb`.
	// +required
	Type string `json:"type"`

	// tag is the kernel's hash of the program's instructions. For example:
	// `8e3d9a1b2c4f5a60`.
	// +optional
	Tag string `json:"tag,omitempty"`

	// loadedat is the time when the program was loaded.
	// +optional
	LoadedAt *metav1.Time `json:"loadedat,omitempty"`

	// loadedbyuid is the id of the user that loaded the program. For example: `0`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LoadedByUID *uint32 `json:"loadedbyuid,omitempty"`

	// bpfman is true if bpfman loaded the program. For example: `true`.
	// +optional
	Bpfman bool `json:"bpfman,omitempty"`

	// owner is the object of bpfman that the program was loaded for.
	// +optional
	Owner *BpfNodeOwner `json:"owner,omitempty"`

	// attachpoints say where the program is attached.
	// +optional
	// +listType=atomic
	AttachPoints []BpfNodeAttachPoint `json:"attachpoints,omitempty"`

	// holders keep the program in the kernel. They are processes that have the
	// program, one of its links, or a map that contains it open, and files where
	// one of these is pinned.
	// +optional
	// +listType=atomic
	Holders []BpfNodeHolder `json:"holders,omitempty"`

	// runtime is how long runs of the program take, if an object of bpfman owns it
	// and the inspector measures run times.
	// +optional
	RunTime *BpfNodeRunTime `json:"runtime,omitempty"`

	// mapids are the kernel's ids of the program's maps. For example: `[12, 13]`.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Format=int64
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=4294967295
	MapIDs []uint32 `json:"mapids,omitempty"`
}

// BpfNodeRunTime is how long runs of a program take on average.
type BpfNodeRunTime struct {
	// averagenanoseconds is the average of all runs, in nanoseconds. It is absent
	// until the program has run 1,000 times, and then changes only by a tenth or
	// more. For example: `210`.
	// +optional
	AverageNanoseconds int64 `json:"averagenanoseconds,omitempty"`

	// previousnanoseconds is the last average of the program that this one
	// replaced, in nanoseconds. It is absent if there was none. For example: `180`.
	// +optional
	PreviousNanoseconds int64 `json:"previousnanoseconds,omitempty"`
}

// BpfNodeOwner names an object of bpfman.
type BpfNodeOwner struct {
	// kind is the kind of the object. For example: `XdpProgram`.
	// +required
	Kind string `json:"kind"`

	// namespace is the namespace of the object. It is empty for a cluster-scoped
	// object. For example: `default`.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the object. For example: `packets`.
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
	// type is the type of the attachment. At interfaces: xdp, tc/ingress,
	// tc/egress, tc/qdisc, tcx/ingress, tcx/egress, netkit/primary, netkit/peer. At functions
	// and events: tracepoint, raw_tracepoint, kprobe, kretprobe, kprobe_multi,
	// uprobe, uretprobe, uprobe_multi, perf_event, fentry, fexit, fmod_ret. Others:
	// lsm, freplace, netfilter, struct_ops, iter, or the kernel's attach type in
	// lower case. For example: `tcx/ingress` or `cgroup_inet_ingress`.
	// +required
	Type string `json:"type"`

	// linkid is the kernel's id of the link. It is absent if the program is
	// attached without a link. For example: `14`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LinkID uint32 `json:"linkid,omitempty"`

	// interface is the name of the network interface. For example: `eth0`.
	// +optional
	Interface string `json:"interface,omitempty"`

	// netns is the inode number of the interface's network namespace. It is absent
	// for the host's. For example: `4026532614`.
	// +optional
	NetNs string `json:"netns,omitempty"`

	// namespace is the namespace of the pod that the network namespace or, for
	// example for a uprobe or a cgroup, the target belongs to. For example:
	// `default`.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// pod is the name of that pod. For example: `web-0`.
	// +optional
	Pod string `json:"pod,omitempty"`

	// target is an attach point other than an interface: the kernel function (with
	// +offset), the tracepoint (group/name), the binary and its symbol or offset,
	// the path of the cgroup, or the function of the program that is replaced. For
	// example: `syscalls/sys_enter_kill`.
	// +optional
	Target string `json:"target,omitempty"`

	// targetprogramid is the kernel's id of the program that is replaced or
	// traced, such as the dispatcher of a program of bpfman. For example: `60`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	TargetProgramID uint32 `json:"targetprogramid,omitempty"`

	// mode is the mode of an XDP program: `native`, `generic`, or `offloaded`.
	// +optional
	Mode string `json:"mode,omitempty"`

	// position is the position among the programs at the same hook, in the order
	// in which they run, starting at 1. It is absent if there is no order. For
	// example: `1`.
	// +optional
	Position int32 `json:"position,omitempty"`

	// priority is the priority of a TC filter. For example: `50`.
	// +optional
	Priority int32 `json:"priority,omitempty"`
}

// BpfNodeHolder keeps a program in the kernel.
type BpfNodeHolder struct {
	// holds is what the holder has open, or what is pinned: `program`, `link`, or
	// `map`.
	// +optional
	Holds string `json:"holds,omitempty"`

	// path is the path of the pin, as seen on the node. It is absent for a
	// process. For example: `/run/bpfman/fs/prog_61`.
	// +optional
	Path string `json:"path,omitempty"`

	// process is the name of the process. For example: `cilium-agent`.
	// +optional
	Process string `json:"process,omitempty"`

	// pid is the process's id on the node. For example: `1234`.
	// +optional
	PID int32 `json:"pid,omitempty"`

	// namespace is the namespace of the pod that the process, or the bpffs of the
	// pin, belongs to. For example: `kube-system`.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// pod is the name of that pod. For example: `cilium-x7kqp`.
	// +optional
	Pod string `json:"pod,omitempty"`
	// container is the name of the container. For example: `cilium-agent`.
	// +optional
	Container string `json:"container,omitempty"`

	// unit is the systemd unit that the process belongs to. For example:
	// `systemd-networkd.service`.
	// +optional
	Unit string `json:"unit,omitempty"`

	// gone is true if the process ended, or closed what it had open. It was the
	// last process that held the program. For example: `true`.
	// +optional
	Gone bool `json:"gone,omitempty"`
}

// BpfNodeMap is one map in a node's kernel.
type BpfNodeMap struct {
	// id is the kernel's id of the map. For example: `12`.
	// +required
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ID uint32 `json:"id"`

	// name is the kernel's name of the map, with at most 15 characters. For
	// example: `tcx_stats_map`.
	// +optional
	Name string `json:"name,omitempty"`

	// type is the type of the map, with the name that bpftool uses. For example:
	// `percpu_hash`.
	// +required
	Type string `json:"type"`

	// keysize is the size of a key, in bytes. For example: `4`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	KeySize uint32 `json:"keysize,omitempty"`

	// valuesize is the size of a value, in bytes. For example: `16`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ValueSize uint32 `json:"valuesize,omitempty"`

	// maxentries is the maximum number of entries in the map. For a ring buffer,
	// it is the size in bytes. For example: `1024`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MaxEntries uint32 `json:"maxentries,omitempty"`

	// memorybytes is the kernel memory that the map uses, in bytes. It is absent
	// for a map whose memory grows with its entries; see the metrics for that. For
	// example: `4096`.
	// +optional
	MemoryBytes int64 `json:"memorybytes,omitempty"`

	// pins are the paths where the map is pinned, as seen on the node. For
	// example: `[/sys/fs/bpf/flows]`.
	// +optional
	// +listType=atomic
	Pins []string `json:"pins,omitempty"`
}

// BpfNodeConflict is a fact that prevents, or could prevent, a program of
// bpfman from working.
type BpfNodeConflict struct {
	// type is the type of the conflict, which is also the type of a condition of
	// the BpfNode. For example: `ForeignXDP`.
	// +required
	Type string `json:"type"`

	// message describes the conflict, and who holds the other program.
	// +required
	Message string `json:"message"`

	// programid is the kernel's id of the other program. For example: `3972`.
	// +optional
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	ProgramID uint32 `json:"programid,omitempty"`

	// owner is the object of bpfman that is affected.
	// +optional
	Owner *BpfNodeOwner `json:"owner,omitempty"`

	// since is when the conflict was first reported.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// BpfNodeOmitted counts the entries that a BpfNode has no room for.
type BpfNodeOmitted struct {
	// programs is the number of programs that aren't listed. For example: `8`.
	// +optional
	Programs int32 `json:"programs,omitempty"`

	// maps is the number of maps that aren't listed. For example: `8`.
	// +optional
	Maps int32 `json:"maps,omitempty"`

	// holders is the number of holders that aren't listed. For example: `8`.
	// +optional
	Holders int32 `json:"holders,omitempty"`

	// attachpoints is the number of attach points that aren't listed. For example:
	// `8`.
	// +optional
	AttachPoints int32 `json:"attachpoints,omitempty"`

	// conflicts is the number of conflicts that aren't listed. For example: `8`.
	// +optional
	Conflicts int32 `json:"conflicts,omitempty"`
}

// Types of conditions of a BpfNode. All but the first are types of conflicts, and
// True while there is one.
const (
	// BpfNodeInspected says whether the inspector could read all eBPF of the node.
	BpfNodeInspected = "Inspected"
	// BpfNodeForeignXDP reports programs that aren't bpfman's on interfaces where
	// bpfman is to attach XDP programs.
	BpfNodeForeignXDP = "ForeignXDP"
	// BpfNodeEarlierInChain reports programs that aren't bpfman's which run before
	// those of bpfman in a TCX chain, and whose verdict may end it.
	BpfNodeEarlierInChain = "EarlierInChain"
	// BpfNodeNamespacedEarlier reports namespaced programs that run before
	// cluster-scoped ones at the same hook, and whose verdict may end the chain.
	BpfNodeNamespacedEarlier = "NamespacedEarlierInChain"
	// BpfNodeEventNearLimit reports tracepoints and kernel functions that have
	// nearly as many programs as the kernel runs there.
	BpfNodeEventNearLimit = "EventNearLimit"
	// BpfNodeDispatcherFull reports interfaces whose ten slots of bpfman's
	// dispatcher are taken.
	BpfNodeDispatcherFull = "DispatcherFull"
	// BpfNodeUnownedProgram reports programs that bpfman loaded and that no object
	// owns.
	BpfNodeUnownedProgram = "UnownedProgram"
)

// BpfNode describes the eBPF programs and maps on one node, no matter what
// loaded them: where programs are attached, who holds them, and which conflicts
// there are. It has the name of the node. Only the node's inspector writes it,
// when something changes. It doesn't include values that change all the time,
// such as numbers of runs and entries of maps; see the metrics for those.
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
// +kubebuilder:printcolumn:name="Daemon",type=string,JSONPath=`.status.daemon`,priority=1
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
