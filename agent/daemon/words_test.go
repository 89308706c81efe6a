// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The texts of the daemon of v0.6.0, and what users read of them.
func TestInWords(t *testing.T) {
	t.Parallel()
	const packet = "0: R1=ctx() R10=fp0\n; return *(__u8 *)(long)skb->data; @ rejected.bpf.c:13\n0: (61) r1 = *(u32 *)(r1 +76)         ; R1=pkt(r=0)\n" +
		"1: (71) r0 = *(u8 *)(r1 +0)\ninvalid access to packet, off=0 size=1, R1(id=0,off=0,r=0)\nR1 offset is outside of the packet\n" +
		"stack depth 0\nprocessed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n "
	refused := func(code, message, log string) string {
		return `BpfProgramError(LoadError { io_error: Os { code: ` + code + `, kind: X, message: "` + message + `" }, verifier_log: ` + log + `})`
	}
	several := func(failures ...string) string {
		return "one or more programs failed to load: [" + strings.Join(failures, ", ") + "]"
	}
	denied := refused("13", "Permission denied", packet)
	for name, test := range map[string]struct{ message, cause, log string }{
		"the verifier": {
			several(denied),
			"the kernel's verifier refuses the program: R1 offset is outside of the packet (rejected.bpf.c:13: return *(__u8 *)(long)skb->data;)",
			strings.TrimRight(packet, "\n "),
		},
		"the same twice": {
			several(denied, denied),
			"the kernel's verifier refuses the program: R1 offset is outside of the packet (rejected.bpf.c:13: return *(__u8 *)(long)skb->data;)",
			strings.TrimRight(packet, "\n ") + "\n\n" + strings.TrimRight(packet, "\n "),
		},
		"two verdicts": {
			several(denied, refused("22", "Invalid argument", "; x = y;\n0: (79) r2 = *(u64 *)(r1 +8)\ninvalid bpf_context access off=8 size=8\nprocessed 1 insns\n")),
			"the kernel's verifier refuses the program: R1 offset is outside of the packet (rejected.bpf.c:13: return *(__u8 *)(long)skb->data;), and 1 more refusals",
			strings.TrimRight(packet, "\n ") + "\n\n; x = y;\n0: (79) r2 = *(u64 *)(r1 +8)\ninvalid bpf_context access off=8 size=8\nprocessed 1 insns",
		},
		"a loop": {
			several(refused("22", "Invalid argument", "5: (05) goto pc-2\ninfinite loop detected at insn 5\ncur state: R0=0 R10=fp0\nold state: R0=0 R10=fp0\nprocessed 9 insns\n")),
			"the kernel's verifier refuses the program: infinite loop detected at insn 5",
			"5: (05) goto pc-2\ninfinite loop detected at insn 5\ncur state: R0=0 R10=fp0\nold state: R0=0 R10=fp0\nprocessed 9 insns",
		},
		"no registers of its own": {
			several(refused("13", "Permission denied", "0: (95) exit\nR0 !read_ok\n")),
			"the kernel's verifier refuses the program: R0 !read_ok", "0: (95) exit\nR0 !read_ok",
		},
		"too large": {
			several(refused("7", "Argument list too long", "BPF program is too large. Processed 1000001 insn\nprocessed 1000001 insns\n")),
			"the kernel refuses the program: Argument list too long (E2BIG): BPF program is too large. Processed 1000001 insn",
			"BPF program is too large. Processed 1000001 insn\nprocessed 1000001 insns",
		},
		"the verifier, in Go": {
			"failed to load programs: load program rejected: failed to load collection: program rejected: load program: permission denied: " +
				"invalid access to packet, off=0 size=1, R1(id=0,off=0,r=0): R1 offset is outside of the packet (5 line(s) omitted)",
			"the kernel's verifier refuses the program: invalid access to packet, off=0 size=1, R1(id=0,off=0,r=0): R1 offset is outside of the packet (5 line(s) omitted)", "",
		},
		"the kernel, in Go": {
			"failed to load programs: failed to load collection: program pass: load program: argument list too long: BPF program is too large. Processed 1000001 insn (2 line(s) omitted)",
			"the kernel refuses the program: argument list too long: BPF program is too large. Processed 1000001 insn (2 line(s) omitted)", "",
		},
		"a variable, in Go": {
			`failed to load programs: load program next: global variable "B" not found in program; available: [A]`,
			`load program next: global variable "B" not found in program; available: [A]`, "",
		},
		"without a log":            {several(refused("1", "Operation not permitted", "")), "the kernel refuses the program: Operation not permitted (EPERM)", ""},
		"an unknown number":        {several(refused("16", "Device or resource busy", "")), "the kernel refuses the program: Device or resource busy", ""},
		"a type":                   {several("BpfProgramError(UnexpectedProgramType)"), "the section of the function is for another type of program", ""},
		"a function":               {several(`BpfFunctionNameNotValid("absent")`), "the object has no function absent", ""},
		"a traced function":        {several(`BpfProgramError(Btf(UnknownBtfTypeName { type_name: "do_unlink" }))`), "this kernel has no function do_unlink", ""},
		"a map":                    {several("BpfLoadError(failed to create map `events` with code -1)"), "failed to create map `events` with code -1", ""},
		"a tracepoint":             {"`/sys/kernel/tracing/events/syscalls/sys_enter_kil/id`", "the kernel has no tracepoint syscalls/sys_enter_kil", ""},
		"a tracepoint, in debugfs": {"`/sys/kernel/debug/tracing/events/sched/x/id`", "the kernel has no tracepoint sched/x", ""},
		"a kernel without kprobes": {"`/sys/bus/event_source/devices/kprobe/type`", "the kernel is built without such probes: it has no `/sys/bus/event_source/devices/kprobe/type`", ""},
		"a pin": {
			several(`UnableToPinProgram(SyscallError(SyscallError { call: "BPF_OBJ_PIN", io_error: Os { code: 17, kind: AlreadyExists, message: "File exists" } }))`),
			"can't pin the Program: BPF_OBJ_PIN: File exists", "",
		},
		"a file":  {"An error occurred. can't open file: No such file or directory (os error 2)", "can't open file: No such file or directory", ""},
		"nothing": {"", "", ""},
	} {
		cause, log := inWords(test.message)
		if cause != test.cause || log != test.log {
			t.Errorf("%s:\n%s\n%s\nwant\n%s\n%s", name, cause, log, test.cause, test.log)
		}
		if strings.ContainsAny(cause, "{}\n") {
			t.Errorf("%s: %q", name, cause)
		}
	}
	err := &Error{Op: "load rejected from image quay.io/x:v1", Cause: status.Error(codes.FailedPrecondition, several(denied))}
	first, rest, _ := strings.Cut(err.Error(), "\n")
	if want := "the kernel's verifier refuses the program: R1 offset is outside of the packet (rejected.bpf.c:13: return *(__u8 *)(long)skb->data;), when loading rejected from image quay.io/x:v1"; first != want || !strings.HasPrefix(rest, "0: R1=ctx()") {
		t.Errorf("%s", err)
	}
}

// TestFormOfAnswers has each daemon answer with each text that names a problem, in each form in which it wraps them. The first line
// of the message begins with the cause, in words, and the digest of the image follows.
func TestFormOfAnswers(t *testing.T) {
	t.Parallel()
	const image = "quay.io/x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	forms := map[string]func(string) string{
		"as it is":  func(text string) string { return text },
		"Rust":      func(text string) string { return "An error occurred. " + text + " (os error 2)" },
		"Rust list": func(text string) string { return "one or more programs failed to load: [BpfLoadError(" + text + ")]" },
		"Rust structure": func(text string) string {
			return "one or more programs failed to load: [BpfProgramError(" + text + `: Os { code: 2, kind: NotFound, message: "No such file or directory" })]`
		},
		"Rust log": func(text string) string {
			return `one or more programs failed to load: [BpfProgramError(LoadError { io_error: Os { code: 13, kind: PermissionDenied, message: "Permission denied" }, verifier_log: 0: R1=ctx()` +
				"\n" + text + "\nprocessed 2 insns\n })]"
		},
		"Go": func(text string) string { return "failed to load programs: load program x: " + text },
	}
	for _, row := range slices.Concat(inLogs, problems) {
		for _, text := range row.texts {
			text = strings.ReplaceAll(text, "…", "x")
			for form, of := range forms {
				err := &Error{Op: "load x from image " + image, Cause: status.Error(codes.FailedPrecondition, of(text))}
				message, _, _ := strings.Cut(err.Error(), "\n")
				cause, _, found := strings.Cut(message, ", when loading x from image "+image)
				if !found || !strings.Contains(cause, strings.TrimSpace(text)) {
					t.Errorf("%s, %s: the cause isn't at the beginning of %q", row.reason, form, message)
				}
				for _, wrong := range []string{"{", "}", "Error(", "(os error", "An error occurred", `\n`, "sha256:"} {
					if strings.Contains(cause, wrong) {
						t.Errorf("%s, %s: %q has %q", row.reason, form, message, wrong)
					}
				}
			}
		}
	}
}

// Whoever writes the bytecode chooses the lines of source in a log. The time doesn't grow with more than its length.
func TestVerdictOfLargeLogs(t *testing.T) {
	t.Parallel()
	log := strings.Repeat("; @ @ @ x:1 @ y @ z:2 "+strings.Repeat("a ", 200)+"\n", 100_000)
	if got := verdictOf(log + "R0 !read_ok\n"); !strings.HasPrefix(got, "R0 !read_ok") || len(got) > 300 {
		t.Errorf("%q", got)
	}
}
