// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"cmp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// A row has the texts by which an answer about a problem is recognized, with "…" for any text.
type row struct {
	reason problem.Reason
	texts  []string
}

// The tables, and those in words.go, have all texts of the daemons, their loaders, and the kernel that name a problem. Nothing else
// in the project knows these texts. Of an answer with texts of several rows, the first row is the problem.
var (
	// inLogs are what the kernel's verifier says.
	inLogs = []row{
		{problem.KernelAddressesHidden, []string{"failed to find the address for kernel symbol"}},
		{problem.NoSuchKernelField, []string{"invalid func unknown#195896080"}},
		{problem.HelperUnavailable, []string{"program of this type cannot use helper"}},
		{problem.LicenseNotGPL, []string{"cannot call GPL-restricted function from non-GPL compatible program"}},
	}
	problems = []row{
		{problem.FileUnreadable, []string{"can't open file", "can't read file", "object file … no such file"}},
		{problem.SectionInvalid, []string{"invalid program section"}},
		{problem.LicenseInvalid, []string{"invalid license"}},
		{problem.MapsWithoutTypes, []string{"error parsing map", "no BTF parsed for object"}},
		{problem.GlobalDataSize, []string{"symbol … has size …, but provided data is of size", "set variable … marshaling value"}},
		{problem.NoSuchGlobal, []string{"symbol with name … not found in the symbols table", "global variable … not found in program"}},
		{problem.LoaderFails, []string{
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
		}},
		{problem.MapRefused, []string{"failed to create map", "map create:"}},
		{problem.PinTaken, []string{
			"invalid map type", "invalid map name", "requested pinning. pinning failed", "Failed to pin", "map_pin_path",
			"map spec is incompatible with existing map",
		}},
		{problem.ProgramType, []string{"unexpected program type", "program type mismatch"}},
		{problem.NoSuchFunctionInFile, []string{"Unable to find a valid program with function name", "program(s) not found in object file"}},
		{problem.NoSuchKernelFunction, []string{"Unknown BTF type"}},
		{problem.ProgramTooComplex, []string{"load program: argument list too long"}},
		{problem.VerifierRefused, []string{"load program: permission denied", "load program: invalid argument"}},
		{problem.OutOfMemory, []string{"load program: cannot allocate memory", "load program: no space left on device"}},
		{problem.ProgramTypeUnsupported, []string{"load program: errno 524", "load program: not supported", "load program: operation not supported"}},
		{problem.DispatcherRefused, []string{"load program: operation not permitted"}},
		{problem.UprobeTargetUnusable, []string{"Unable to attach uprobe in container"}},
		{problem.NoSuchInterface, []string{"Invalid Interface", "unknown network interface", "resolve interface … interface not found"}},
		{problem.InterfaceFull, []string{"No room to attach program", "no free dispatcher slots"}},
		{problem.KernelRefusesInterface, []string{
			"netlink error while attaching",
			"dispatcher failed to load",
			"dispatcher is not loaded",
			"bpf_link_create … failed",
			"bpf_mprog_attach … failed",
			"bpf_link_update … failed",
		}},
		{problem.FunctionNotProbed, []string{"perf_event_open … failed"}},
		{problem.KernelRefusesAttach, []string{
			"PERF_EVENT_IOC_SET_BPF … failed",
			"PERF_EVENT_IOC_ENABLE … failed",
			"bpf_prog_attach … failed",
			"bpf_raw_tracepoint_open … failed",
		}},
		{problem.NoSuchTarget, []string{"could not resolve uprobe target", "error reading … ld.so.cache", "resolve target … not found in", "open executable … no such file"}},
		{problem.NoSuchSymbol, []string{"error resolving symbol", "attach uprobe to … not found"}},
		{problem.AttachPointInvalid, []string{"is not a valid attach point for this program", "attach accepts"}},
		{problem.PodGone, []string{"setns error", "Failed to open target netns file", "Failed to open bpfman netns file", "metadata for namespace path"}},
		{problem.NoTracefs, []string{"tracefs not found"}},
		{problem.DaemonForgot, []string{
			"does not exist or was not created by bpfman",
			"does not exist in tree",
			"map_owner_id does not exist", "map_owner_id … map owner not found",
			"Failed to acquire database lock",
		}},
		{problem.DaemonStateUnusable, []string{
			"can't create map dir",
			"can't delete map dir",
			"Unable to delete program",
			"database entr",
			"database tree",
			"unable to open program tree",
			"dispatcher tree",
			"insert entry during copy",
			"Failed to get links",
			"Failed to get map",
			"Failed to get metadata: ",
			"Failed to get proceed on",
			"Failed to get global data",
			"Failed to add link",
			"Failed to remove link",
			"failed to flush db",
			"failed to read db",
			"failed to write to db",
			"unable to cleanup state",
			"Internal error occurred",
		}},
		{problem.DaemonPanicked, []string{"task panicked"}},
	}
)

// Problem returns the problem that the agent or the daemon's answer names, or "".
func (e *Error) Problem() problem.Reason {
	if reason := problem.Of(e.Cause); reason != "" {
		return reason
	}
	switch answer := status.Convert(e.Cause); answer.Code() {
	case codes.Unavailable:
		return problem.DaemonUnreachable
	case codes.DeadlineExceeded:
		return problem.DaemonBusy
	case codes.Unimplemented:
		return problem.DaemonUnsupported
	default:
		return recognized(answer.Message())
	}
}

// recognized returns the problem in an answer, or "".
func recognized(answer string) problem.Reason {
	if refused := refusedProgram.FindStringSubmatch(answer); refused != nil {
		return cmp.Or(among(inLogs, answer), errnos[refused[1]].reason)
	}
	for _, s := range structures {
		if s.reason != "" && s.text.MatchString(answer) {
			return cmp.Or(among(inLogs, answer), s.reason)
		}
	}
	if refused := refusedByKernel.FindStringSubmatch(answer); refused != nil {
		return cmp.Or(among(inLogs, answer), among(problems, refused[1])) // without the end of the log
	}
	return cmp.Or(among(inLogs, answer), among(problems, answer))
}

// among returns the problem of the first row that has a text of an answer, or "".
func among(rows []row, answer string) problem.Reason {
	for _, p := range rows {
		for _, text := range p.texts {
			if says(answer, text) {
				return p.reason
			}
		}
	}
	return ""
}

// says reports whether an answer contains a text in which "…" stands for any text.
func says(answer, text string) bool {
	for part := range strings.SplitSeq(text, "…") {
		_, rest, found := strings.Cut(answer, strings.TrimSpace(part))
		if !found {
			return false
		}
		answer = rest
	}
	return true
}

// refusedError is the refusal of a call that the agent doesn't make, in the form of the daemon's.
type refusedError struct {
	reason problem.Reason
	status *status.Status
}

// refuse returns a refusal, with the code and the text that dialect.refusal describes.
func refuse(reason problem.Reason, code codes.Code, format string, args ...any) error {
	return &refusedError{reason, status.Newf(code, format, args...)}
}

func (e *refusedError) Error() string { return e.status.Message() }

// GRPCStatus has the code and the text read as those of an answer.
func (e *refusedError) GRPCStatus() *status.Status { return e.status }

// Problem implements the method of errors that name their problem.
func (e *refusedError) Problem() problem.Reason { return e.reason }

// refusal returns a failure in the form that dialect.refusal describes. The agent's own refusals have it.
func refusal(d dialect, err error) error {
	if problem.Of(err) != "" {
		return err
	}
	return d.refusal(err)
}
