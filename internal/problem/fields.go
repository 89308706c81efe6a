// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about the fields of an object of the API.
const (
	NoBytecode                 Reason = "NoBytecode"
	TwoBytecodes               Reason = "TwoBytecodes"
	FieldEmpty                 Reason = "FieldEmpty"
	MemberWithoutType          Reason = "MemberWithoutType"
	MemberWithoutConfiguration Reason = "MemberWithoutConfiguration"
	GlobalDataInvalid          Reason = "GlobalDataInvalid"
	GlobalOutOfRange           Reason = "GlobalOutOfRange"
	GlobalOfAnotherType        Reason = "GlobalOfAnotherType"
	GlobalWithoutValues        Reason = "GlobalWithoutValues"
	GlobalSetTwice             Reason = "GlobalSetTwice"
	GlobalUnknown              Reason = "GlobalUnknown"
	GlobalsTooLarge            Reason = "GlobalsTooLarge"
	FileUnreadable             Reason = "FileUnreadable"
	FileNotRegular             Reason = "FileNotRegular"
	GlobalDataTooLarge         Reason = "GlobalDataTooLarge"
	NamespaceUsedUp            Reason = "NamespaceUsedUp"
)

var fields = []Row{
	{
		Reason: NoBytecode,
		ToDo:   "set `bytecode.image.url` or `bytecode.path`",
	},
	{
		Reason: TwoBytecodes,
		ToDo:   "remove one of both",
	},
	{
		Reason: FieldEmpty,
		ToDo:   "set the field; the schema accepts the empty value, as upstream's does, but there is nothing to load or to attach to",
	},
	{
		Reason: MemberWithoutType,
		ToDo:   "this member of the application is ignored, and the other members are loaded; remove it, or set its type and the field for that type",
	},
	{
		Reason: MemberWithoutConfiguration,
		ToDo:   "another version of bpfman stored the member; rewrite it as in the API reference",
		Links:  []Link{{"API reference", "reference/api/index.md"}},
	},
	{
		Reason: GlobalDataInvalid,
		ToDo:   "write the value as base64 or as a list of bytes, or set numbers, strings, and lists of numbers in `globals` instead",
	},
	{
		Reason: GlobalOutOfRange,
		ToDo:   "write a value that the variable's type can have: the message has its limits",
	},
	{
		Reason: GlobalOfAnotherType,
		ToDo:   "write a value of the variable's type: a number, a string, a boolean, or a list. See set globals",
		Links:  []Link{{"set globals", "programs.md#set-globals"}},
	},
	{
		Reason: GlobalWithoutValues,
		ToDo:   "set the variable's bytes in `globaldata`. If its type isn't known, you can also compile the bytecode with `-g`",
	},
	{
		Reason: GlobalSetTwice,
		ToDo:   "remove the variable from `globaldata` or from `globals`",
	},
	{
		Reason: GlobalUnknown,
		ToDo:   "correct the variable's name: `kubectl bpfman image inspect` lists the variables. A static variable can't be set in `globals`",
	},
	{
		Reason: GlobalsTooLarge,
		ToDo:   "set fewer or smaller variables",
	},
	{
		Reason: FileUnreadable,
		ToDo:   "correct `bytecode.path`: the daemon's container has no such file, or can't read it. It doesn't have the node's directories: package the file as an image",
		Links:  []Link{{"package the file as an image", "kubectl-bpfman.md"}},
	},
	{
		Reason: FileNotRegular,
		ToDo:   "the path is below `/dev`, `/proc`, `/sys`, or a directory with sockets, named pipes, or maps, and the daemon would never finish reading it; use a regular file elsewhere",
	},
	{
		Reason: GlobalDataTooLarge,
		ToDo:   "make `globaldata` smaller: there is too much for the number of functions, together with other objects: see large global data",
		Links:  []Link{{"large global data", "reliability.md#large-global-data"}},
	},
	{
		Reason: NamespaceUsedUp,
		ToDo:   "correct or delete the objects of the namespace that fail, change all the time, or take long to be loaded: `kubectl get bpfnsprograms -n NAMESPACE`. The agent goes on by itself: see limits of a namespace",
		Links:  []Link{{"limits of a namespace", "reliability.md#limits-of-a-namespace"}},
	},
}
