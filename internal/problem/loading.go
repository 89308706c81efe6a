// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about loading a program, most of which the daemon, its loader, or the kernel reports.
const (
	PinInUse               Reason = "PinInUse"
	PinNotTheCause         Reason = "PinNotTheCause"
	PinNotReplaced         Reason = "PinNotReplaced"
	PinnedMapDiffers       Reason = "PinnedMapDiffers"
	SectionInvalid         Reason = "SectionInvalid"
	LicenseInvalid         Reason = "LicenseInvalid"
	MapsWithoutTypes       Reason = "MapsWithoutTypes"
	GlobalDataSize         Reason = "GlobalDataSize"
	NoSuchGlobal           Reason = "NoSuchGlobal"
	GlobalsNotShared       Reason = "GlobalsNotShared"
	LoaderFails            Reason = "LoaderFails"
	MapRefused             Reason = "MapRefused"
	PinTaken               Reason = "PinTaken"
	ProgramType            Reason = "ProgramType"
	NoSuchFunctionInFile   Reason = "NoSuchFunctionInFile"
	NoSuchKernelFunction   Reason = "NoSuchKernelFunction"
	KernelFunctionInModule Reason = "KernelFunctionInModule"
	NoSuchHook             Reason = "NoSuchHook"
	SecurityModuleInactive Reason = "SecurityModuleInactive"
	OtherDaemonNeeded      Reason = "OtherDaemonNeeded"
	KernelAddressesHidden  Reason = "KernelAddressesHidden"
	NoSuchKernelField      Reason = "NoSuchKernelField"
	HelperUnavailable      Reason = "HelperUnavailable"
	LicenseNotGPL          Reason = "LicenseNotGPL"
	ProgramTooComplex      Reason = "ProgramTooComplex"
	VerifierRefused        Reason = "VerifierRefused"
	OutOfMemory            Reason = "OutOfMemory"
	ProgramTypeUnsupported Reason = "ProgramTypeUnsupported"
	DispatcherRefused      Reason = "DispatcherRefused"
)

var loading = []Row{
	{
		Reason: PinInUse,
		ToDo:   "unload the other programs, which `bpftool prog show id …` shows: the agent replaces the pin after that",
	},
	{
		Reason: PinNotTheCause,
		ToDo:   "correct the object: what the daemon reports at the end of the message is the cause, and the pinned map isn't",
	},
	{
		Reason: PinNotReplaced,
		ToDo:   "nothing: the agent retries. If the message stays, remove the pin below `/sys/fs/bpf` on the node",
	},
	{
		Reason: PinnedMapDiffers,
		ToDo:   "an older version of the bytecode pinned the map by name: keep the map's shape, or let the agent replace the map, whose entries are then lost. See maps pinned by name",
		Links:  []Link{{"maps pinned by name", "programs.md#maps-pinned-by-name"}},
	},
	{
		Reason: SectionInvalid,
		ToDo:   "put packet filters into the section `classifier`, not `tc` or `tcx`: the daemon's loader doesn't recognize the section, and refuses the whole object. `kubectl bpfman image inspect` lists such sections",
	},
	{
		Reason: LicenseInvalid,
		ToDo:   "end the text in the section `license` with a zero byte, as a C string is",
	},
	{
		Reason: MapsWithoutTypes,
		ToDo:   "compile the program with `-g`, and define maps in the section `.maps`",
	},
	{
		Reason: GlobalDataSize,
		ToDo:   "give `globaldata` exactly as many bytes as the variable has, or set its value in `globals`",
	},
	{
		Reason: NoSuchGlobal,
		ToDo:   "`globaldata` sets a variable that the bytecode doesn't have: correct its name, or remove it",
	},
	{
		Reason: GlobalsNotShared,
		ToDo:   "put what the functions share in a map, or set `bpfman.image` in the ConfigMap to bpfman v0.6.0",
		Links:  []Link{{"ConfigMap", "configuration.md"}},
	},
	{
		Reason: LoaderFails,
		ToDo:   "the daemon's loader can't read the object, or doesn't support something in it: read what `kubectl bpfman image inspect` says about it, and compile it with another version of clang or bpf-linker",
	},
	{
		Reason: MapRefused,
		ToDo:   "the kernel refuses a map: correct its type, its sizes, or `max_entries`, or select nodes whose kernel has this type of map. If the container `bpfman` has a memory limit, all maps count: raise it",
		Links:  []Link{{"all maps count", "configuration.md#memory-limits"}},
	},
	{
		Reason: PinTaken,
		ToDo:   "the daemon can't create or pin a map or program: remove what other software has pinned under the same name below `/sys/fs/bpf` or `/run/bpfman/fs` on the node",
	},
	{
		Reason: ProgramType,
		ToDo:   "the section of the function is for another type of program: use the kind for this type, or change the section",
	},
	{
		Reason: NoSuchFunctionInFile,
		ToDo:   "set `bpffunctionname` to a function of the object in `bytecode.path`: `kubectl bpfman image inspect` lists them",
	},
	{
		Reason: NoSuchKernelFunction,
		ToDo:   "the node's kernel has no such function, or it can't be traced: correct the name of the function, or select other nodes",
	},
	{
		Reason: KernelFunctionInModule,
		ToDo:   "fentry and fexit programs of this version of the daemon are only for functions outside of modules: use a kprobe",
	},
	{
		Reason: NoSuchHook,
		ToDo:   "the node's kernel has no such hook: correct `hook_name`, or select other nodes. `bpftool btf dump file /sys/kernel/btf/vmlinux` on the node lists the hooks as functions `bpf_lsm_…`",
	},
	{
		Reason: SecurityModuleInactive,
		ToDo:   "add `bpf` to the list that `cat /sys/kernel/security/lsm` prints on the node, with the kernel's parameter `lsm=`, and restart the node; or select other nodes",
	},
	{
		Reason: OtherDaemonNeeded,
		ToDo:   "only bpfman's daemon in Go has LSM programs: set `bpfman.image` to an image of it",
		Links:  []Link{{"daemon in Go", "configuration.md#supported-daemons"}},
	},
	{
		Reason: KernelAddressesHidden,
		ToDo:   "the node's kernel doesn't publish the addresses of its variables (`CONFIG_KALLSYMS_ALL`): select other nodes",
	},
	{
		Reason: NoSuchKernelField,
		ToDo:   "the program reads a field that the node's kernel doesn't have: check for it in the source with `bpf_core_field_exists` (CO-RE)",
	},
	{
		Reason: HelperUnavailable,
		ToDo:   "the node's kernel doesn't have this helper function for this type of program, or is locked down: use another type, or select other nodes",
	},
	{
		Reason: LicenseNotGPL,
		ToDo:   "set the license in the object's section `license` to `GPL`, `Dual BSD/GPL`, or `Dual MIT/GPL`: the others aren't compatible with the GPL",
	},
	{
		Reason: ProgramTooComplex,
		ToDo:   "the program is too complex for the kernel's verifier: make loops shorter, or split the program",
	},
	{
		Reason: VerifierRefused,
		ToDo:   "correct the line of the source that the message names. `kubectl bpfman why` prints the verifier's log, in which the lines before `stack depth` say more",
	},
	{
		Reason: OutOfMemory,
		ToDo:   "the node lacks memory for the program or its log: free some, or select other nodes",
	},
	{
		Reason: ProgramTypeUnsupported,
		ToDo:   "the node's kernel doesn't support this type of program on its architecture: use another kind, or select other nodes",
	},
	{
		Reason: DispatcherRefused,
		ToDo:   "the kernel refuses the daemon's dispatcher for XDP and TC (no BPF trampolines): use TCX, or another kernel",
	},
}
