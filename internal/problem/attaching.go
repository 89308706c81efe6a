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
		Reason:   PriorityReserved,
		Messages: []string{"is reserved for cluster-scoped programs"},
		ToDo:     "set a `priority` that isn't reserved, from 100 to 1000 by default",
		Links:    []Link{{"reserved", "programs.md#order"}},
	},
	{
		Reason:   FormerDaemonLeft,
		Messages: []string{"remove program … of the former daemon"},
		ToDo:     "the agent can't remove what the daemon attached that the node ran before, and retries: read the error behind it. A restart of the node removes everything of that daemon",
	},
	{
		Reason:   FormerDaemonAttached,
		Messages: []string{"the program of the former daemon is still attached"},
		ToDo:     "restart the node: XDP and TC programs share a dispatcher, so the agent can't remove them one by one after the daemon was changed",
		Links:    []Link{{"the daemon was changed", "configuration.md#supported-daemons"}},
	},
	{
		Reason: UprobeNeedsRust,
		Daemon: []string{"with the daemon in Go, namespaced uprobes aren't attached"},
		ToDo:   "have an administrator create an UprobeProgram, or set `bpfman.image` in the ConfigMap to bpfman v0.6.0",
		Links:  []Link{{"ConfigMap", "configuration.md"}},
	},
	{
		Reason:   UprobeNotAllowed,
		Messages: []string{"bpfman.uprobe.namespaces of the ConfigMap"},
		ToDo:     "the uprobe would also run for processes of other namespaces: ask an administrator to allow it, or have one create an UprobeProgram",
		Links:    []Link{{"allow it", "programs.md#uprobes-of-namespaced-kinds"}},
	},
	{
		Reason: UprobeTargetUnusable,
		Daemon: []string{"Unable to attach uprobe in container"},
		ToDo:   "correct `target` and `func_name`: the message ends with the reason, for example that the container has no such regular file, or the file no such function. If the function is indirect, probe another one",
		Links:  []Link{{"another one", "programs.md#limits-of-probes-and-tracepoints"}},
	},
	{
		Reason:   UprobeForProcess,
		Messages: []string{"can't limit a uprobe in a container to a process"},
		ToDo:     "remove `pid`: see Uprobes of namespaced kinds",
		Links:    []Link{{"Uprobes of namespaced kinds", "programs.md#uprobes-of-namespaced-kinds"}},
	},
	{
		Reason:   HostPID,
		Messages: []string{"the pod uses the PID namespace of the node (hostPID)"},
		ToDo:     "namespaced uprobes aren't attached there: exclude the pod with the labels of `containers.pods`, or have an administrator create an UprobeProgram",
	},
	{
		Reason:   HostNetwork,
		Messages: []string{"the pod uses the network of the node (hostNetwork)"},
		ToDo:     "namespaced programs aren't attached to the node's interfaces: exclude the pod with the labels of `containers.pods`, or have an administrator create an object of the cluster-scoped kind",
	},
	{
		Reason:   NoSuchInterface,
		Messages: []string{"the node has no interface"},
		Daemon:   []string{"Invalid Interface", "unknown network interface", "resolve interface … interface not found"},
		ToDo:     "the program is attached once the interface appears: wait for it, or correct `interfaceselector`",
	},
	{
		Reason: InterfaceFull,
		Daemon: []string{"No room to attach program", "no free dispatcher slots"},
		ToDo:   "the interface has ten programs already: detach one of them, or use a TcxProgram",
	},
	{
		Reason: KernelRefusesInterface,
		Daemon: []string{
			"netlink error while attaching",
			"dispatcher failed to load",
			"dispatcher is not loaded",
			"bpf_link_create … failed",
			"bpf_mprog_attach … failed",
			"bpf_link_update … failed",
		},
		ToDo:  "the kernel doesn't attach the program, mostly because other software is in the way: see conflicts, and `kubectl bpfman chain`",
		Links: []Link{{"conflicts", "conflicts.md"}},
	},
	{
		Reason: FunctionNotProbed,
		Daemon: []string{"perf_event_open … failed"},
		ToDo:   "the node's kernel has no such function, or it can't be probed: correct `func_name`. `/sys/kernel/tracing/available_filter_functions` on the node lists them",
	},
	{
		Reason: KernelRefusesAttach,
		Daemon: []string{
			"PERF_EVENT_IOC_SET_BPF … failed",
			"PERF_EVENT_IOC_ENABLE … failed",
			"bpf_prog_attach … failed",
			"bpf_raw_tracepoint_open … failed",
		},
		ToDo:  "the kernel refuses to attach the program there: correct the attach point, or see conflicts, as other software can have used up the places",
		Links: []Link{{"conflicts", "conflicts.md"}},
	},
	{
		Reason:   ProbesUnsupported,
		Messages: []string{"the kernel is built without such probes"},
		Daemon:   []string{"/sys/bus/event_source/devices/…/type"},
		ToDo:     "the node's kernel is built without kprobes or uprobes (`CONFIG_KPROBES`, `CONFIG_UPROBES`): select other nodes, or use another kernel",
	},
	{
		Reason: NoSuchTarget,
		Daemon: []string{"could not resolve uprobe target", "error reading … ld.so.cache", "resolve target … not found in", "open executable … no such file"},
		ToDo:   "correct `target`: the node has no such library or file",
	},
	{
		Reason: NoSuchSymbol,
		Daemon: []string{"error resolving symbol", "attach uprobe to … not found"},
		ToDo:   "correct `func_name`: the file `target` has no such function, or is stripped",
	},
	{
		Reason: AttachPointInvalid,
		Daemon: []string{"is not a valid attach point for this program", "attach accepts"},
		ToDo:   "use the kind for the type of the function, or change the section of the function",
	},
	{
		Reason:   PodGone,
		Messages: []string{"the container runtime doesn't report the pod's network namespace"},
		Daemon:   []string{"setns error", "Failed to open target netns file", "Failed to open bpfman netns file", "metadata for namespace path"},
		ToDo:     "nothing: the pod has ended, or starts, and the agent retries",
	},
	{
		Reason:   NoSuchTracepoint,
		Messages: []string{"the kernel has no tracepoint"},
		Daemon:   []string{"/sys/kernel/tracing/events/…/id", "/sys/kernel/debug/tracing/events/…/id"},
		ToDo:     "correct the name of the tracepoint: `/sys/kernel/tracing/available_events` on the node lists them. If it has the name, mount tracefs on the node",
	},
	{
		Reason: NoTracefs,
		Daemon: []string{"tracefs not found"},
		ToDo:   "mount tracefs on the node: `mount -t tracefs tracefs /sys/kernel/tracing`, which systemd does by itself. The kernel needs `CONFIG_TRACING`", //nolint:dupword // the type and the name of the file system
	},
	{
		Reason:   NoPrimaryInterface,
		Messages: []string{"no interface of node … has one of its internal addresses"},
		ToDo:     "list the interface by name instead of `primarynodeinterface`",
	},
	{
		Reason:   DiscoveryInvalid,
		Messages: []string{"pattern of … interfaces …: "},
		ToDo:     "correct the regular expression between the slashes, or write a name without slashes",
	},
	{
		Reason:   DiscoveryTruncated,
		Messages: []string{"the discovery selects … interfaces: attached to …, the first ones by name in each network"},
		ToDo:     "allow fewer interfaces, or exclude some",
	},
	{
		Reason:   TooManyInterfaces,
		Messages: []string{"too many interfaces in the pod to discover them"},
		ToDo:     "list the pod's interfaces by name, or exclude the pod with the labels of `containers.pods`",
	},
	{
		Reason:   ProcHidden,
		Messages: []string{"the host's processes aren't visible (hidepid?)", "interfaces of a pod:", "read a process of a pod:"},
		ToDo:     "the node's `/proc` is mounted with `hidepid`: list the pods' interfaces by name, or mount `/proc` without this option",
	},
	{
		Reason:   NoContainerRuntime,
		Messages: []string{"no container runtime listens below"},
		ToDo:     "the socket isn't that of a known runtime: containerd, CRI-O, or cri-dockerd; or the directory of the socket was replaced: delete the pod of `bpfman-daemon` on that node",
	},
	{
		Reason:   AnswerNotExpected,
		Messages: []string{"gave an answer that the agent fails to read:"},
		ToDo:     "this is a fault of bpfman: report it, with the line `Recovered from a panic` in the agent's log on that node",
	},
	{
		Reason: ContainerRuntimeFails,
		Messages: []string{
			"dial container runtime at",
			"list containers at",
			"get the status of container",
			"get the status of the sandbox",
			"the status has no process ID",
			"the container runtime hasn't answered",
			"doesn't report which namespaces the pod uses",
		},
		ToDo: "the container runtime doesn't answer the agent: find the cause in its log on the node. The agent retries",
	},
	{
		Reason:   ProcessEnded,
		Messages: []string{"of the container or sandbox … has ended"},
		ToDo:     "nothing: the pod is being restarted or deleted. The agent retries with its next process",
	},
	{
		Reason:   LinksUnknown,
		Messages: []string{"the daemon has links whose attach points are unknown"},
		ToDo:     "the agent can't read the program's report, which records them: see that the API server answers, and that the agent may read reports. Until then, the program keeps its links, and gets no new ones",
	},
	{
		Reason:   PodSelectorInvalid,
		Messages: []string{"pod selector:"},
		ToDo:     "correct `containers.pods`: it isn't a valid label selector",
	},
	{
		Reason:   ChangeNotRecorded,
		Messages: []string{"record a change of"},
		ToDo:     "the agent can't record the change, which it must be able to undo: make space on the disk with `/var/lib/bpfman` on the node, or mount it read-write",
	},
	{
		Reason:   NoSuchMapOwner,
		Messages: []string{"mapownerselector: ", "no program on this node matches mapownerselector"},
		ToDo:     "correct `mapownerselector`, or create the object with these labels: `kubectl get bpfprograms --show-labels`",
	},
	{
		Reason:   SeveralMapOwners,
		Messages: []string{"mapownerselector … matches … programs on this node"},
		ToDo:     "add labels to `mapownerselector`, so that it matches only one of the programs in the message",
	},
	{
		Reason:   MapOwnerNotLoaded,
		Messages: []string{"map owner … is not loaded on this node"},
		ToDo:     "correct the map owner first: `kubectl bpfman why` explains it",
	},
	{
		Reason:   MapsNotShared,
		Messages: []string{"the maps of program … are not shared"},
		ToDo:     "pin the shared maps by name in the bytecode (`LIBBPF_PIN_BY_NAME`), or remove `mapownerselector`",
	},
	{
		Reason:   FieldWithoutEffect,
		Messages: []string{"primarynodeinterface: false also selects", "bpfman v0.6 ignores pid"},
		ToDo:     "nothing, if you intend this; otherwise remove the field that the message names",
	},
	{
		Reason:   UprobeForAllProcesses,
		Messages: []string{"the uprobe runs for every process of the node"},
		ToDo:     "nothing, if you intend this: the kernel attaches uprobes to files. To leave out other processes, have the program compare their process or control group",
	},
}
