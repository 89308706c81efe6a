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
		Reason:   PinInUse,
		Messages: []string{"the pin is kept because other programs use the map: …"},
		ToDo:     "unload the other programs, which `bpftool prog show id …` shows: the agent replaces the pin after that",
	},
	{
		Reason:   PinNotTheCause,
		Messages: []string{"the bytecode can't be loaded with a new map either"},
		ToDo:     "correct the object: what the daemon reports at the end of the message is the cause, and the pinned map isn't",
	},
	{
		Reason: PinNotReplaced,
		Messages: []string{
			"set pin aside:",
			"put pin back:",
			"remove replaced pin:",
			"open pinned map:",
			"read shape of pinned map",
			"list pinned maps:",
			"the kernel reports no ID",
			"another map has replaced it",
		},
		ToDo: "nothing: the agent retries. If the message stays, remove the pin below `/sys/fs/bpf` on the node",
	},
	{
		Reason:   PinnedMapDiffers,
		Messages: []string{"the pinned map … has …, but the bytecode declares …"},
		ToDo:     "an older version of the bytecode pinned the map by name: keep the map's shape, or let the agent replace the map, whose entries are then lost. See maps pinned by name",
		Links:    []Link{{"maps pinned by name", "programs.md#maps-pinned-by-name"}},
	},
	{
		Reason: SectionInvalid,
		Daemon: []string{"invalid program section"},
		ToDo:   "put packet filters into the section `classifier`, not `tc` or `tcx`: the daemon's loader doesn't recognize the section, and refuses the whole object. `kubectl bpfman image inspect` lists such sections",
	},
	{
		Reason: LicenseInvalid,
		Daemon: []string{"invalid license"},
		ToDo:   "end the text in the section `license` with a zero byte, as a C string is",
	},
	{
		Reason: MapsWithoutTypes,
		Daemon: []string{"error parsing map", "no BTF parsed for object"},
		ToDo:   "compile the program with `-g`, and define maps in the section `.maps`",
	},
	{
		Reason:   GlobalDataSize,
		Messages: []string{"globaldata.… has …, and the variable has …"},
		Daemon:   []string{"symbol … has size …, but provided data is of size", "set variable … marshaling value"},
		ToDo:     "give `globaldata` exactly as many bytes as the variable has, or set its value in `globals`",
	},
	{
		Reason: NoSuchGlobal,
		Daemon: []string{"symbol with name … not found in the symbols table", "global variable … not found in program"},
		ToDo:   "`globaldata` sets a variable that the bytecode doesn't have: correct its name, or remove it",
	},
	{
		Reason:   GlobalsNotShared,
		Messages: []string{"gives each function its own copy of the global variables"},
		ToDo:     "put what the functions share in a map, or set `bpfman.image` in the ConfigMap to bpfman v0.6.0",
		Links:    []Link{{"ConfigMap", "configuration.md"}},
	},
	{
		Reason: LoaderFails,
		Daemon: []string{
			"error parsing ELF data",
			"error parsing section",
			"invalid program code",
			"invalid kernel version",
			"unsupported relocation target",
			"unknown symbol in section",
			"invalid symbol, index",
			"have the same address",
			"map for section with index",
			"a symbol name",
			"no symbols found in the",
			"BTF error",
			"error relocating function",
			"error relocating section",
			"unexpected pinning type",
			"error loading /",
		},
		ToDo: "the daemon's loader can't read the object, or doesn't support something in it: read what `kubectl bpfman image inspect` says about it, and compile it with another version of clang or bpf-linker",
	},
	{
		Reason: MapRefused,
		Daemon: []string{"failed to create map", "map create:"},
		ToDo:   "the kernel refuses a map: correct its type, its sizes, or `max_entries`, or select nodes whose kernel has this type of map. If the container `bpfman` has a memory limit, all maps count: raise it",
		Links:  []Link{{"all maps count", "configuration.md#memory-limits"}},
	},
	{
		Reason: PinTaken,
		Daemon: []string{"invalid map type", "invalid map name", "requested pinning. pinning failed", "Failed to pin", "UnableToPin", "can't pin the Program:", "map_pin_path", "map spec is incompatible with existing map"},
		ToDo:   "the daemon can't create or pin a map or program: remove what other software has pinned under the same name below `/sys/fs/bpf` or `/run/bpfman/fs` on the node",
	},
	{
		Reason:   ProgramType,
		Messages: []string{"the section of the function is for another type of program"},
		Daemon:   []string{"UnexpectedProgramType", "unexpected program type", "program type mismatch"},
		ToDo:     "the section of the function is for another type of program: use the kind for this type, or change the section",
	},
	{
		Reason:   NoSuchFunctionInFile,
		Messages: []string{"the object has no function"},
		Daemon:   []string{"BpfFunctionNameNotValid", "Unable to find a valid program with function name", "program(s) not found in object file"},
		ToDo:     "set `bpffunctionname` to a function of the object in `bytecode.path`: `kubectl bpfman image inspect` lists them",
	},
	{
		Reason:   NoSuchKernelFunction,
		Messages: []string{"this kernel has no function"},
		Daemon:   []string{"Unknown BTF type", "UnknownBtfTypeName"},
		ToDo:     "the node's kernel has no such function, or it can't be traced: correct the name of the function, or select other nodes",
	},
	{
		Reason:   KernelFunctionInModule,
		Messages: []string{"which is in the kernel's module"},
		ToDo:     "fentry and fexit programs of this version of the daemon are only for functions outside of modules: use a kprobe",
	},
	{
		Reason:   NoSuchHook,
		Messages: []string{"this kernel has no hook … for LSM programs"},
		ToDo:     "the node's kernel has no such hook: correct `hook_name`, or select other nodes. `bpftool btf dump file /sys/kernel/btf/vmlinux` on the node lists the hooks as functions `bpf_lsm_…`",
	},
	{
		Reason:   SecurityModuleInactive,
		Messages: []string{"the security module bpf isn't active on this node, so the kernel would never run it"},
		ToDo:     "add `bpf` to the list that `cat /sys/kernel/security/lsm` prints on the node, with the kernel's parameter `lsm=`, and restart the node; or select other nodes",
	},
	{
		Reason:   OtherDaemonNeeded,
		Messages: []string{"which this node's bpfman daemon can't load: it needs the daemon in Go"},
		ToDo:     "only bpfman's daemon in Go has LSM programs: set `bpfman.image` to an image of it",
		Links:    []Link{{"daemon in Go", "configuration.md#supported-daemons"}},
	},
	{
		Reason: KernelAddressesHidden,
		Daemon: []string{"failed to find the address for kernel symbol"},
		ToDo:   "the node's kernel doesn't publish the addresses of its variables (`CONFIG_KALLSYMS_ALL`): select other nodes",
	},
	{
		Reason: NoSuchKernelField,
		Daemon: []string{"invalid func unknown#195896080"},
		ToDo:   "the program reads a field that the node's kernel doesn't have: check for it in the source with `bpf_core_field_exists` (CO-RE)",
	},
	{
		Reason: HelperUnavailable,
		Daemon: []string{"program of this type cannot use helper"},
		ToDo:   "the node's kernel doesn't have this helper function for this type of program, or is locked down: use another type, or select other nodes",
	},
	{
		Reason: LicenseNotGPL,
		Daemon: []string{"cannot call GPL-restricted function from non-GPL compatible program"},
		ToDo:   "set the license in the object's section `license` to `GPL`, `Dual BSD/GPL`, or `Dual MIT/GPL`: the others aren't compatible with the GPL",
	},
	{
		Reason: ProgramTooComplex,
		Daemon: []string{"the kernel refuses the program: Argument list too long", "the kernel refuses the program: argument list too long", "LoadError … Argument list too long"},
		ToDo:   "the program is too complex for the kernel's verifier: make loops shorter, or split the program",
	},
	{
		Reason:   VerifierRefused,
		Messages: []string{"the kernel's verifier refuses the program"},
		Daemon: []string{
			"the kernel refuses the program: Permission denied", "the kernel refuses the program: Invalid argument",
			"LoadError … Permission denied … verifier_log", "LoadError … Invalid argument … verifier_log",
		},
		ToDo: "correct the line of the source that the message names. `kubectl bpfman why` prints the verifier's log, in which the lines before `stack depth` say more",
	},
	{
		Reason: OutOfMemory,
		Daemon: []string{
			"the kernel refuses the program: Cannot allocate memory", "the kernel refuses the program: No space left on device",
			"the kernel refuses the program: cannot allocate memory", "the kernel refuses the program: no space left on device",
			"LoadError … Cannot allocate memory", "LoadError … No space left on device",
		},
		ToDo: "the node lacks memory for the program or its log: free some, or select other nodes",
	},
	{
		Reason: ProgramTypeUnsupported,
		Daemon: []string{
			"the kernel refuses the program: Unknown error 524", "the kernel refuses the program: Operation not supported",
			"the kernel refuses the program: errno 524", "the kernel refuses the program: not supported", "the kernel refuses the program: operation not supported",
			"LoadError … Unknown error 524", "LoadError … Operation not supported",
		},
		ToDo: "the node's kernel doesn't support this type of program on its architecture: use another kind, or select other nodes",
	},
	{
		Reason: DispatcherRefused,
		Daemon: []string{"the kernel refuses the program: Operation not permitted", "the kernel refuses the program: operation not permitted", "LoadError … Operation not permitted"},
		ToDo:   "the kernel refuses the daemon's dispatcher for XDP and TC (no BPF trampolines): use TCX, or another kernel",
	},
}
