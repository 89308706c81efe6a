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
		Reason:   FunctionOfNoKind,
		Messages: []string{"can't be loaded: it is in section"},
		ToDo:     "bpfman has no kind for programs of this type: use another function of the object, or remove this member from the application. `kubectl bpfman image inspect` lists the functions that can be loaded",
	},
	{
		Reason:   FunctionUsesMap,
		Messages: []string{"can't be loaded: it uses the map"},
		ToDo:     "the daemon can't create a map that the function uses: use another function of the object, or remove this member from the application",
	},
	{
		Reason: NotAnObject,
		Messages: []string{
			"can't be used: it isn't an ELF file",
			"can't be used: it isn't a 64-bit ELF file",
			"can't be used: it isn't a relocatable object",
		},
		ToDo: "the file in the image isn't an eBPF object: compile it with `clang -target bpf -g -O2 -c`",
	},
	{
		Reason:   ByteOrder,
		Messages: []string{"-endian, but … isn't"},
		ToDo:     "the object has the byte order of another architecture: compile it with `-target bpfel` or `-target bpfeb`, or build the image for each architecture",
	},
	{
		Reason:   CompilerTooOld,
		Messages: []string{"belongs to no function, as old versions of clang write it"},
		ToDo:     "compile the object with a current version of clang",
	},
	{
		Reason:   NoPrograms,
		Messages: []string{"can't be used: it has no programs"},
		ToDo:     "put the functions into sections for programs, such as `xdp` or `classifier`",
	},
	{
		Reason:   SectionCompressed,
		Messages: []string{"its section … is compressed"},
		ToDo:     "compile without compressed debug sections, or run `llvm-objcopy --decompress-debug-sections`",
	},
	{
		Reason: ObjectUnusual,
		Messages: []string{
			"can't be used: its byte order",
			"can't be used: its ELF header",
			"can't be used: its symbol",
			"isn't a sequence of instructions",
			"has the alignment",
			"is linked to a section that doesn't exist",
			"can't be used: its section … has no name",
			"can't be used: it has … sections",
			"can't be used: the name of its",
			"can't be used: it has a section of the unusual type",
			"can't be used: it has two",
			"can't be used: it has no names of sections",
			"can't be used: it has no symbol table",
			"can't be used: it is malformed",
			"is outside of the file",
			"are outside of the file",
			"isn't an ordinary debug section",
			"depends on a debug section",
			"two of its functions in section … overlap",
			"its relocations would make it call",
			"its relocations in section … are unusual",
			"its map … isn't a variable",
			"and its CO-RE relocations don't say which one",
			"its BTF is too short",
			"its BTF has",
			"its BTF ends within",
			"its .BTF.ext",
			"its types can't be read:",
			"its types of … can't be read:",
			"its maps and variables can't be read:",
			"its CO-RE relocation at … is outside of its section",
			"its CO-RE relocation at instruction",
			"the relocation is outside of the section",
			"the instruction neither calls",
			"the instruction doesn't load the address of what it refers to",
			"that isn't the beginning of a function",
			"which isn't a function",
			"which isn't in a section",
		},
		ToDo: "the object isn't as compilers for eBPF write it, and programs could read it in several ways: compile it with clang or bpf-linker, and don't change it afterwards",
	},
	{
		Reason:   SectionUnknown,
		Messages: []string{"which has neither functions nor variables"},
		ToDo:     "put the variable into the section `.data`, `.rodata`, or `.bss`, or one whose name begins with one of these and a dot",
	},
	{
		Reason:   FunctionsOverlap,
		Messages: []string{"at the same offset of the sections"},
		ToDo:     "declare one of the functions with `static __always_inline`, or put both into the section `.text`",
	},
	{
		Reason:   TooManyFunctions,
		Messages: []string{"functions, which no kernel accepts"},
		ToDo:     "declare some of the functions that it calls with `static __always_inline`",
	},
	{
		Reason:   NoKernelTypes,
		Messages: []string{"it has CO-RE relocations, which need the kernel's types", "read the kernel's types", "in the kernel's types:"},
		ToDo:     "the node's kernel doesn't describe its types in `/sys/kernel/btf/vmlinux`: use a kernel with BTF (`CONFIG_DEBUG_INFO_BTF`), or compile the program without CO-RE",
	},
	{
		Reason:   KernelTypesDiffer,
		Messages: []string{"its CO-RE relocations don't fit this kernel"},
		ToDo:     "the program reads types or fields that the node's kernel doesn't have: check for them in the source with `bpf_core_type_exists` or `bpf_core_field_exists`, or select other nodes",
	},
	{
		Reason:   SymbolUnknown,
		Messages: []string{"it isn't defined in the object, and the object's types don't say what it is"},
		ToDo:     "define the symbol in the source, or declare it with `__ksym` or `__kconfig`, and compile with `-g`",
	},
	{
		Reason:   SymbolNotInKernel,
		Messages: []string{"this kernel doesn't have it, or only in a module", "the kernel's configuration doesn't have it"},
		ToDo:     "declare the symbol with `__weak`, and check for it in the source, or select nodes whose kernel has it",
	},
	{
		Reason:   SymbolAddressHidden,
		Messages: []string{"its address is needed, which only processes with CAP_SYSLOG can read"},
		ToDo:     "the agent doesn't have this capability: declare the symbol as a function that is called, or as a typed variable",
	},
	{
		Reason:   KconfigType,
		Messages: []string{"its type has no usual size", "its value … isn't a text", "its value … doesn't fit its type"},
		ToDo:     "declare the `__kconfig` variable with the type that the kernel's option has",
	},
	{
		Reason:   KernelUnknown,
		Messages: []string{"read the kernel's version:", "the kernel's release … isn't a version", "read the kernel's configuration"},
		ToDo:     "the agent can't tell which kernel the node has: remove the `__kconfig` variable, or set it as a global with `globaldata`",
	},
}
