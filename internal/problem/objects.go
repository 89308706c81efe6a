// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about the eBPF object in an image.
const (
	NoSuchFunction      Reason = "NoSuchFunction"
	FunctionOfNoKind    Reason = "FunctionOfNoKind"
	FunctionUsesMap     Reason = "FunctionUsesMap"
	NotAnObject         Reason = "NotAnObject"
	ByteOrder           Reason = "ByteOrder"
	CompilerTooOld      Reason = "CompilerTooOld"
	NoPrograms          Reason = "NoPrograms"
	SectionCompressed   Reason = "SectionCompressed"
	ObjectUnusual       Reason = "ObjectUnusual"
	SectionUnknown      Reason = "SectionUnknown"
	FunctionsOverlap    Reason = "FunctionsOverlap"
	TooManyFunctions    Reason = "TooManyFunctions"
	NoKernelTypes       Reason = "NoKernelTypes"
	KernelTypesDiffer   Reason = "KernelTypesDiffer"
	SymbolUnknown       Reason = "SymbolUnknown"
	SymbolNotInKernel   Reason = "SymbolNotInKernel"
	SymbolAddressHidden Reason = "SymbolAddressHidden"
	KconfigType         Reason = "KconfigType"
	KernelUnknown       Reason = "KernelUnknown"
)

var objects = []Row{
	{
		Reason: NoSuchFunction,
		ToDo:   "set `bpffunctionname` to a function that the bytecode has: the message lists them",
	},
	{
		Reason: FunctionOfNoKind,
		ToDo:   "bpfman has no kind for programs of this type: use another function of the object, or remove this member from the application. `kubectl bpfman image inspect` lists the functions that can be loaded",
	},
	{
		Reason: FunctionUsesMap,
		ToDo:   "the daemon can't create a map that the function uses: use another function of the object, or remove this member from the application",
	},
	{
		Reason: NotAnObject,
		ToDo:   "the file in the image isn't an eBPF object: compile it with `clang -target bpf -g -O2 -c`",
	},
	{
		Reason: ByteOrder,
		ToDo:   "the object has the byte order of another architecture: compile it with `-target bpfel` or `-target bpfeb`, or build the image for each architecture",
	},
	{
		Reason: CompilerTooOld,
		ToDo:   "compile the object with a current version of clang",
	},
	{
		Reason: NoPrograms,
		ToDo:   "put the functions into sections for programs, such as `xdp` or `classifier`",
	},
	{
		Reason: SectionCompressed,
		ToDo:   "compile without compressed debug sections, or run `llvm-objcopy --decompress-debug-sections`",
	},
	{
		Reason: ObjectUnusual,
		ToDo:   "the object isn't as compilers for eBPF write it, and programs could read it in several ways: compile it with clang or bpf-linker, and don't change it afterwards",
	},
	{
		Reason: SectionUnknown,
		ToDo:   "put the variable into the section `.data`, `.rodata`, or `.bss`, or one whose name begins with one of these and a dot",
	},
	{
		Reason: FunctionsOverlap,
		ToDo:   "declare one of the functions with `static __always_inline`, or put both into the section `.text`",
	},
	{
		Reason: TooManyFunctions,
		ToDo:   "declare some of the functions that it calls with `static __always_inline`",
	},
	{
		Reason: NoKernelTypes,
		ToDo:   "the node's kernel doesn't describe its types in `/sys/kernel/btf/vmlinux`: use a kernel with BTF (`CONFIG_DEBUG_INFO_BTF`), or compile the program without CO-RE",
	},
	{
		Reason: KernelTypesDiffer,
		ToDo:   "the program reads types or fields that the node's kernel doesn't have: check for them in the source with `bpf_core_type_exists` or `bpf_core_field_exists`, or select other nodes",
	},
	{
		Reason: SymbolUnknown,
		ToDo:   "define the symbol in the source, or declare it with `__ksym` or `__kconfig`, and compile with `-g`",
	},
	{
		Reason: SymbolNotInKernel,
		ToDo:   "declare the symbol with `__weak`, and check for it in the source, or select nodes whose kernel has it",
	},
	{
		Reason: SymbolAddressHidden,
		ToDo:   "the agent doesn't have this capability: declare the symbol as a function that is called, or as a typed variable",
	},
	{
		Reason: KconfigType,
		ToDo:   "declare the `__kconfig` variable with the type that the kernel's option has",
	},
	{
		Reason: KernelUnknown,
		ToDo:   "the agent can't tell which kernel the node has: remove the `__kconfig` variable, or set it as a global with `globaldata`",
	},
}
