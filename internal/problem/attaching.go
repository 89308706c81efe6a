// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about attaching a program.
const (
	PriorityReserved       Reason = "PriorityReserved"
	FormerDaemonLeft       Reason = "FormerDaemonLeft"
	FormerDaemonAttached   Reason = "FormerDaemonAttached"
	UprobeNeedsRust        Reason = "UprobeNeedsRust"
	UprobeNotAllowed       Reason = "UprobeNotAllowed"
	UprobeTargetUnusable   Reason = "UprobeTargetUnusable"
	UprobeForProcess       Reason = "UprobeForProcess"
	HostPID                Reason = "HostPID"
	HostNetwork            Reason = "HostNetwork"
	NoSuchInterface        Reason = "NoSuchInterface"
	InterfaceFull          Reason = "InterfaceFull"
	KernelRefusesInterface Reason = "KernelRefusesInterface"
	FunctionNotProbed      Reason = "FunctionNotProbed"
	KernelRefusesAttach    Reason = "KernelRefusesAttach"
	ProbesUnsupported      Reason = "ProbesUnsupported"
	NoSuchTarget           Reason = "NoSuchTarget"
	NoSuchSymbol           Reason = "NoSuchSymbol"
	AttachPointInvalid     Reason = "AttachPointInvalid"
	PodGone                Reason = "PodGone"
	NoSuchTracepoint       Reason = "NoSuchTracepoint"
	NoTracefs              Reason = "NoTracefs"
	NoPrimaryInterface     Reason = "NoPrimaryInterface"
	DiscoveryInvalid       Reason = "DiscoveryInvalid"
	DiscoveryTruncated     Reason = "DiscoveryTruncated"
	TooManyInterfaces      Reason = "TooManyInterfaces"
	ProcHidden             Reason = "ProcHidden"
	ProcessEnded           Reason = "ProcessEnded"
	NoContainerRuntime     Reason = "NoContainerRuntime"
	ContainerRuntimeFails  Reason = "ContainerRuntimeFails"
	AnswerNotExpected      Reason = "AnswerNotExpected"
	LinksUnknown           Reason = "LinksUnknown"
	PodSelectorInvalid     Reason = "PodSelectorInvalid"
	ChangeNotRecorded      Reason = "ChangeNotRecorded"
	NoSuchMapOwner         Reason = "NoSuchMapOwner"
	SeveralMapOwners       Reason = "SeveralMapOwners"
	MapOwnerNotLoaded      Reason = "MapOwnerNotLoaded"
	MapsNotShared          Reason = "MapsNotShared"
	FieldWithoutEffect     Reason = "FieldWithoutEffect"
	UprobeForAllProcesses  Reason = "UprobeForAllProcesses"
)

var attaching = []Row{
	{
		Reason: PriorityReserved,
		ToDo:   "set a `priority` that isn't reserved, from 100 to 1000 by default",
		Links:  []Link{{"reserved", "programs.md#order"}},
	},
	{
		Reason: FormerDaemonLeft,
		ToDo:   "the agent can't remove what the daemon attached that the node ran before, and retries: read the error behind it. A restart of the node removes everything of that daemon",
	},
	{
		Reason: FormerDaemonAttached,
		ToDo:   "restart the node: XDP and TC programs share a dispatcher, so the agent can't remove them one by one after the daemon was changed",
		Links:  []Link{{"the daemon was changed", "configuration.md#supported-daemons"}},
	},
	{
		Reason: UprobeNeedsRust,
		ToDo:   "have an administrator create an UprobeProgram, or set `bpfman.image` in the ConfigMap to bpfman v0.6.0",
		Links:  []Link{{"ConfigMap", "configuration.md"}},
	},
	{
		Reason: UprobeNotAllowed,
		ToDo:   "the uprobe would also run for processes of other namespaces: ask an administrator to allow it, or have one create an UprobeProgram",
		Links:  []Link{{"allow it", "programs.md#uprobes-of-namespaced-kinds"}},
	},
	{
		Reason: UprobeTargetUnusable,
		ToDo:   "correct `target` and `func_name`: the message ends with the reason, for example that the container has no such regular file, or the file no such function. If the function is indirect, probe another one",
		Links:  []Link{{"another one", "programs.md#limits-of-probes-and-tracepoints"}},
	},
	{
		Reason: UprobeForProcess,
		ToDo:   "remove `pid`: see Uprobes of namespaced kinds",
		Links:  []Link{{"Uprobes of namespaced kinds", "programs.md#uprobes-of-namespaced-kinds"}},
	},
	{
		Reason: HostPID,
		ToDo:   "namespaced uprobes aren't attached there: exclude the pod with the labels of `containers.pods`, or have an administrator create an UprobeProgram",
	},
	{
		Reason: HostNetwork,
		ToDo:   "namespaced programs aren't attached to the node's interfaces: exclude the pod with the labels of `containers.pods`, or have an administrator create an object of the cluster-scoped kind",
	},
	{
		Reason: NoSuchInterface,
		ToDo:   "the program is attached once the interface appears: wait for it, or correct `interfaceselector`",
	},
	{
		Reason: InterfaceFull,
		ToDo:   "the interface has ten programs already: detach one of them, or use a TcxProgram",
	},
	{
		Reason: KernelRefusesInterface,
		ToDo:   "the kernel doesn't attach the program, mostly because other software is in the way: see conflicts, and `kubectl bpfman chain`",
		Links:  []Link{{"conflicts", "conflicts.md"}},
	},
	{
		Reason: FunctionNotProbed,
		ToDo:   "the node's kernel has no such function, or it can't be probed: correct `func_name`. `/sys/kernel/tracing/available_filter_functions` on the node lists them",
	},
	{
		Reason: KernelRefusesAttach,
		ToDo:   "the kernel refuses to attach the program there: correct the attach point, or see conflicts, as other software can have used up the places",
		Links:  []Link{{"conflicts", "conflicts.md"}},
	},
	{
		Reason: ProbesUnsupported,
		ToDo:   "the node's kernel is built without kprobes or uprobes (`CONFIG_KPROBES`, `CONFIG_UPROBES`): select other nodes, or use another kernel",
	},
	{
		Reason: NoSuchTarget,
		ToDo:   "correct `target`: the node has no such library or file",
	},
	{
		Reason: NoSuchSymbol,
		ToDo:   "correct `func_name`: the file `target` has no such function, or is stripped",
	},
	{
		Reason: AttachPointInvalid,
		ToDo:   "use the kind for the type of the function, or change the section of the function",
	},
	{
		Reason: PodGone,
		ToDo:   "nothing: the pod has ended, or starts, and the agent retries",
	},
	{
		Reason: NoSuchTracepoint,
		ToDo:   "correct the name of the tracepoint: `/sys/kernel/tracing/available_events` on the node lists them. If it has the name, mount tracefs on the node",
	},
	{
		Reason: NoTracefs,
		ToDo:   "mount tracefs on the node: `mount -t tracefs tracefs /sys/kernel/tracing`, which systemd does by itself. The kernel needs `CONFIG_TRACING`", //nolint:dupword // the type and the name of the file system
	},
	{
		Reason: NoPrimaryInterface,
		ToDo:   "list the interface by name instead of `primarynodeinterface`",
	},
	{
		Reason: DiscoveryInvalid,
		ToDo:   "correct the regular expression between the slashes, or write a name without slashes",
	},
	{
		Reason: DiscoveryTruncated,
		ToDo:   "allow fewer interfaces, or exclude some",
	},
	{
		Reason: TooManyInterfaces,
		ToDo:   "list the pod's interfaces by name, or exclude the pod with the labels of `containers.pods`",
	},
	{
		Reason: ProcHidden,
		ToDo:   "the node's `/proc` is mounted with `hidepid`: list the pods' interfaces by name, or mount `/proc` without this option",
	},
	{
		Reason: NoContainerRuntime,
		ToDo:   "the socket isn't that of a known runtime: containerd, CRI-O, or cri-dockerd; or the directory of the socket was replaced: delete the pod of `bpfman-daemon` on that node",
	},
	{
		Reason: AnswerNotExpected,
		ToDo:   "this is a fault of bpfman: report it, with the line `Recovered from a panic` in the agent's log on that node",
	},
	{
		Reason: ContainerRuntimeFails,
		ToDo:   "the container runtime doesn't answer the agent: find the cause in its log on the node. The agent retries",
	},
	{
		Reason: ProcessEnded,
		ToDo:   "nothing: the pod is being restarted or deleted. The agent retries with its next process",
	},
	{
		Reason: LinksUnknown,
		ToDo:   "the agent can't read the program's report, which records them: see that the API server answers, and that the agent may read reports. Until then, the program keeps its links, and gets no new ones",
	},
	{
		Reason: PodSelectorInvalid,
		ToDo:   "correct `containers.pods`: it isn't a valid label selector",
	},
	{
		Reason: ChangeNotRecorded,
		ToDo:   "the agent can't record the change, which it must be able to undo: make space on the disk with `/var/lib/bpfman` on the node, or mount it read-write",
	},
	{
		Reason: NoSuchMapOwner,
		ToDo:   "correct `mapownerselector`, or create the object with these labels: `kubectl get bpfprograms --show-labels`",
	},
	{
		Reason: SeveralMapOwners,
		ToDo:   "add labels to `mapownerselector`, so that it matches only one of the programs in the message",
	},
	{
		Reason: MapOwnerNotLoaded,
		ToDo:   "correct the map owner first: `kubectl bpfman why` explains it",
	},
	{
		Reason: MapsNotShared,
		ToDo:   "pin the shared maps by name in the bytecode (`LIBBPF_PIN_BY_NAME`), or remove `mapownerselector`",
	},
	{
		Reason: FieldWithoutEffect,
		ToDo:   "nothing, if you intend this; otherwise remove the field that the message names",
	},
	{
		Reason: UprobeForAllProcesses,
		ToDo:   "nothing, if you intend this: the kernel attaches uprobes to files. To leave out other processes, have the program compare their process or control group",
	},
}
