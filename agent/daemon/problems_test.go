// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Literal answers of bpfman v0.6.0, of its library aya 0.13.1, of the daemon in Go, and of the kernel, with their problems.
func TestProblemOfAnswer(t *testing.T) {
	t.Parallel()
	failed := func(err string) string { return "one or more programs failed to load: [" + err + "]" }
	refused := func(code, kind, message, log string) string {
		return failed("BpfProgramError(LoadError { io_error: Os { code: " + code + ", kind: " + kind + ", message: \"" + message + "\" }, verifier_log: " + log + " })")
	}
	const log, parsing, gopher = "0: R1=ctx()\n1: exit\nprocessed 2 insns", "error parsing BPF object: ", "failed to load programs: failed to load collection: program x: load program: "
	for answer, want := range map[string]problem.Reason{
		"": "", "something that nobody has met": "",
		// The kernel's verifier.
		refused("1", "PermissionDenied", "Operation not permitted", ""):                                                            problem.DispatcherRefused,
		refused("2", "NotFound", "No such file or directory", "ldimm64 failed to find the address for kernel symbol 'runqueues'."): problem.KernelAddressesHidden,
		refused("2", "NotFound", "No such file or directory", log):                                                                 "",
		refused("7", "ArgumentListTooLong", "Argument list too long", log):                                                         problem.ProgramTooComplex,
		refused("12", "OutOfMemory", "Cannot allocate memory", ""):                                                                 problem.OutOfMemory,
		refused("13", "PermissionDenied", "Permission denied", log):                                                                problem.VerifierRefused,
		refused("13", "PermissionDenied", "Permission denied", log+"\n; \"task panicked\", error parsing ELF data"):                problem.VerifierRefused,
		refused("22", "InvalidInput", "Invalid argument", log):                                                                     problem.VerifierRefused,
		refused("22", "InvalidInput", "Invalid argument", "invalid func unknown#195896080"):                                        problem.NoSuchKernelField,
		refused("22", "InvalidInput", "Invalid argument", "program of this type cannot use helper bpf_probe_write_user#36"):        problem.HelperUnavailable,
		refused("22", "InvalidInput", "Invalid argument", "cannot call GPL-restricted function from non-GPL compatible program"):   problem.LicenseNotGPL,
		refused("28", "StorageFull", "No space left on device", log):                                                               problem.OutOfMemory,
		refused("95", "Unsupported", "Operation not supported", ""):                                                                problem.ProgramTypeUnsupported,
		refused("524", "Uncategorized", "Unknown error 524", ""):                                                                   problem.ProgramTypeUnsupported,
		gopher + "permission denied: invalid access to packet: R1 offset is outside of the packet (5 line(s) omitted)":             problem.VerifierRefused,
		gopher + "invalid argument: program of this type cannot use helper bpf_probe_write_user#36":                                problem.HelperUnavailable,
		gopher + "argument list too long: BPF program is too large":                                                                problem.ProgramTooComplex,
		gopher + "operation not permitted (MEMLOCK may be too low, consider rlimit.RemoveMemlock)":                                 problem.DispatcherRefused,
		gopher + "cannot allocate memory":                                                                                          problem.OutOfMemory,
		gopher + "errno 524":                                                                                                       problem.ProgramTypeUnsupported,
		gopher + "no such file or directory: 7: (85) call x: task panicked, can't open file":                                       "",
		gopher + "argument list too long: 7: (85) call x: can't open file":                                                         problem.ProgramTooComplex,
		// Loads.
		failed(`BpfFunctionNameNotValid("x")`):                                        problem.NoSuchFunctionInFile,
		failed("BpfProgramError(UnexpectedProgramType)"):                              problem.ProgramType,
		failed(`BpfProgramError(Btf(UnknownBtfTypeName { type_name: "do_unlink" }))`): problem.NoSuchKernelFunction,
		failed(`UnableToPinProgram(SyscallError(SyscallError { call: "BPF_OBJ_PIN", io_error: Os { code: 17, kind: AlreadyExists, message: "File exists" } }))`): problem.PinTaken,
		"An error occurred. can't open file: No such file or directory (os error 2)":                                                                             problem.FileUnreadable,
		"An error occurred. can't read file: Is a directory (os error 21)":                                                                                       problem.FileUnreadable,
		"An error occurred. map_owner_id does not exist":                                                                                                         problem.DaemonForgot,
		"An error occurred. can't create map dir: No space left on device":                                                                                       problem.DaemonStateUnusable,
		"Failed to pin map `BPF_OBJ_PIN` failed":                                                                                                                 problem.PinTaken,
		"map error: failed to create map `events` with code -1":                                                                                                  problem.MapRefused,
		"map error: invalid map type 99":                                                                                                                         problem.PinTaken,
		"map error: map `\"events\"` requested pinning. pinning failed":                                                                                          problem.PinTaken,
		parsing + "error parsing ELF data":                                                                                                                       problem.LoaderFails,
		parsing + "invalid license `[71]`: missing NULL terminator":                                                                                              problem.LicenseInvalid,
		parsing + "invalid program section `tc`":                                                                                                                 problem.SectionInvalid,
		parsing + "symbol x has size `4`, but provided data is of size `8`":                                                                                      problem.GlobalDataSize,
		parsing + "symbol with name x not found in the symbols table":                                                                                            problem.NoSuchGlobal,
		parsing + "no BTF parsed for object":                                                                                                                     problem.MapsWithoutTypes,
		parsing + "error parsing map `events`":                                                                                                                   problem.MapsWithoutTypes,
		parsing + "error parsing section with index 7":                                                                                                           problem.LoaderFails,
		parsing + "invalid kernel version `[7]`":                                                                                                                 problem.LoaderFails,
		parsing + "invalid program code":                                                                                                                         problem.LoaderFails,
		parsing + "unsupported relocation target":                                                                                                                problem.LoaderFails,
		parsing + "two or more symbols in section `7` have the same address 0x7":                                                                                 problem.LoaderFails,
		parsing + "unknown symbol in section `7` at address 0x7":                                                                                                 problem.LoaderFails,
		parsing + "invalid symbol, index `7` name: x":                                                                                                            problem.LoaderFails,
		parsing + "map for section with index 7 not found":                                                                                                       problem.LoaderFails,
		parsing + "the map number 7 in the `maps` section doesn't have a symbol name":                                                                            problem.LoaderFails,
		parsing + "no symbols found in the maps section":                                                                                                         problem.LoaderFails,
		parsing + "BTF error: invalid BTF type info segment":                                                                                                     problem.LoaderFails,
		"error relocating function":                                                                                                                              problem.LoaderFails,
		"error relocating section":                                                                                                                               problem.LoaderFails,
		"BTF error: error parsing BTF header":                                                                                                                    problem.LoaderFails,
		"no BTF parsed for object":                                                                                                                               problem.MapsWithoutTypes,
		"unexpected pinning type 7":                                                                                                                              problem.LoaderFails,
		"Internal error occurred. could not get current position":                                                                                                problem.DaemonStateUnusable,
		"Failed to acquire database lock, please try again later":                                                                                                problem.DaemonForgot,
		`failed to list programs: Database entry id does not exist in tree "program_7": `:                                                                        problem.DaemonForgot,
		"Failed to get metadata: x":                                                                                                                              problem.DaemonStateUnusable,
		"Unable to open database tree x: x":                                                                                                                      problem.DaemonStateUnusable,
		"Unable to insert database entry x into tree x: x":                                                                                                       problem.DaemonStateUnusable,
		"unable to open program tree: x":                                                                                                                         problem.DaemonStateUnusable,
		"failed to write to db: x":                                                                                                                               problem.DaemonStateUnusable,
		"task 7 panicked":                                                                                                                                        problem.DaemonPanicked,
		// Loads of the daemon in Go.
		`load program x: program type mismatch: caller specified tracepoint but ELF section "classifier" implies tc; recompile the .bpf.o with the matching SEC`: problem.ProgramType,
		"program(s) not found in object file: [x]; available programs: [y z]":                                                                                    problem.NoSuchFunctionInFile,
		`load program x: global variable "B" not found in program; available: [A]`:                                                                               problem.NoSuchGlobal,
		`load program x: set variable "A": marshaling value A: []uint8 doesn't marshal to 1 bytes`:                                                               problem.GlobalDataSize,
		"object file /x.o: stat /x.o: no such file or directory":                                                                                                 problem.FileUnreadable,
		"map_owner_id 7 does not exist: map owner not found":                                                                                                     problem.DaemonForgot,
		// Attach points.
		"Invalid Interface":                                                                problem.NoSuchInterface,
		"unknown network interface eth9":                                                   problem.NoSuchInterface,
		"No room to attach program. Please remove one and try again.":                      problem.InterfaceFull,
		"dispatcher failed to load. x":                                                     problem.KernelRefusesInterface,
		"dispatcher is not loaded":                                                         problem.KernelRefusesInterface,
		"netlink error while attaching ebpf program to tc":                                 problem.KernelRefusesInterface,
		"netlink error while attaching XDP program":                                        problem.KernelRefusesInterface,
		"`bpf_link_create` failed":                                                         problem.KernelRefusesInterface,
		"`bpf_mprog_attach` failed":                                                        problem.KernelRefusesInterface,
		"`bpf_raw_tracepoint_open` failed":                                                 problem.KernelRefusesAttach,
		"`perf_event_open` failed":                                                         problem.FunctionNotProbed,
		"`perf_event_open_trace_point` failed":                                             problem.FunctionNotProbed,
		"`PERF_EVENT_IOC_SET_BPF` failed":                                                  problem.KernelRefusesAttach,
		"Failed to pin link `BPF_OBJ_PIN` failed":                                          problem.PinTaken,
		"`/sys/kernel/tracing/events/x/y/id`":                                              problem.NoSuchTracepoint,
		"`/sys/kernel/debug/tracing/events/x/y/id`":                                        problem.NoSuchTracepoint,
		"`/sys/bus/event_source/devices/kprobe/type`":                                      problem.ProbesUnsupported,
		"could not resolve uprobe target `libx`":                                           problem.NoSuchTarget,
		"error reading `/etc/ld.so.cache` file":                                            problem.NoSuchTarget,
		"error resolving symbol":                                                           problem.NoSuchSymbol,
		"Unable to attach uprobe in container with pid 7: it has no file":                  problem.UprobeTargetUnusable,
		"program is not a tracepoint program is not a valid attach point for this program": problem.AttachPointInvalid,
		"An error occurred. Failed to open target netns file: No such file or directory (os error 2)":                      problem.PodGone,
		"An error occurred. Failed to get metadata for namespace path: No such file or directory (os error 2)":             problem.PodGone,
		"An error occurred. setns error: EPERM: Operation not permitted":                                                   problem.PodGone,
		"An error occurred. Program 7 does not exist or was not created by bpfman":                                         problem.DaemonForgot,
		`Database entry type does not exist in tree "link_7": `:                                                            problem.DaemonForgot,
		"Unable to delete program No such file or directory (os error 2)":                                                  problem.DaemonStateUnusable,
		`attach TCX: resolve interface "absent" in netns "": route ip+net: no such network interface: interface not found`: problem.NoSuchInterface,
		"attach XDP: no free dispatcher slots (all 10 occupied)":                                                           problem.InterfaceFull,
		"program 7 is a tcx program; the tracepoint attach accepts tracepoint":                                             problem.AttachPointInvalid,
		`attach uprobe: attach uprobe to x in /bin/y: symbol x: not found`:                                                 problem.NoSuchSymbol,
		`attach uprobe: resolve target "libx": not found in /etc/ld.so.cache (pass an absolute path)`:                      problem.NoSuchTarget,
	} {
		err := &Error{Op: "load x", Cause: (rust{}).refusal(status.Error(codes.Aborted, answer))}
		if got := err.Problem(); got != want {
			t.Errorf("%q: %q, want %q", answer, got, want)
		}
	}
}

// What has no answer, and what the agent refuses itself, has a problem as well.
func TestProblemWithoutAnswer(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]problem.Reason{
		codes.Unavailable: problem.DaemonUnreachable, codes.DeadlineExceeded: problem.DaemonBusy, codes.Unimplemented: problem.DaemonUnsupported, codes.Internal: "",
	} {
		if got := problem.Of(&Error{Op: "load x", Cause: status.Error(code, "no socket")}); got != want {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
	for _, d := range []dialect{rust{}, newGolang()} {
		err := refusal(d, refuse(problem.NamespaceUsedUp, codes.Aborted, "%d MiB of task panicked", 7))
		failed := &Error{Op: "load x from image y", Cause: err}
		if !failed.Refused() || failed.Permanent() || failed.Problem() != problem.NamespaceUsedUp || failed.Error() != "7 MiB of task panicked, when loading x from image y" {
			t.Errorf("%T: %q %s", d, failed.Problem(), failed)
		}
	}
}
